"""Session types: one history, its owner and its kind. Used by routing, permission and the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.domain.children import Lineage
from gateway.domain.ids import OwnerName, SessionId


class SessionKind(StrEnum):
    """Class of rights of a session, decided at ingress and stored."""

    MAIN = "main"
    """Direct conversation with an owner."""
    DM = "dm"
    """Direct conversation with another allowed person."""
    NON_MAIN = "non-main"
    """Groups, channels, threads, children."""


class Origin(StrEnum):
    """Source of a session."""

    DIRECT = "direct"
    GROUP = "group"
    THREAD = "thread"
    CHILD = "child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One history. Its id never changes; `epoch` counts its resets (`/new`)."""

    id: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    """Owner of this main session, or of the main session at its root; None for every other kind."""
    title: str
    """Name in lists."""
    epoch: int
    root_kind: SessionKind
    """Kind whose approval rules apply: its own, or for a child its root's."""
    tools: tuple[str, ...] | None = None
    """For a child: the only tools it may have, already a subset of its parent's. None: the kind decides."""
    created_at: datetime
    active_at: datetime
    lineage: Lineage | None = None
    """For a child: its parent, root and limits."""
    summary: str = ""
    """Summary of the history before the turns of `Queries.history`; empty when nothing was left out, and in lists."""
    preset: str = ""
    """Name of its preset; empty: the default of its kind."""
    preset_before: str = ""
    """Preset that it had before the present one: what the end of a plan returns to."""
    presets_above: tuple[str, ...] = ()
    """For a child: the presets of the sessions above it, the root's first. Their limits hold here too."""
    tools_off: tuple[str, ...] = ()
    """Tools that people switched off here, sorted."""


def rights_of(session: Session) -> tuple[object, ...]:
    """Return everything of a session that decides which tools it has: sessions of equal rights have the same ones."""
    own = session.preset, session.tools_off, session.tools
    return session.kind, session.root_kind, session.lineage is None, session.presets_above, *own


def works_in(session: Session) -> SessionId:
    """Return the session whose folder this one works in: itself, or for a child its root, so that they share files."""
    return session.lineage.root if session.lineage else session.id


def branch_of(session: Session) -> frozenset[SessionId]:
    """Return a sub-session with the one above it, if that is one too; empty for a root. It has two levels at most."""
    return frozenset({session.id, session.lineage.parent} - {session.lineage.root}) if session.lineage else frozenset()
