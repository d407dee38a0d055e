"""Sessions: one history, whose it is, and of which kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.children import Lineage
from gateway.domain.ids import OwnerName, SessionId


class SessionKind(StrEnum):
    """What a session may have, decided at ingress and stored."""

    MAIN = "main"
    """An owner speaking directly."""
    DM = "dm"
    """Another allowed person speaking directly."""
    NON_MAIN = "non-main"
    """Groups, channels, threads, children."""


class Origin(StrEnum):
    """Where a session comes from."""

    DIRECT = "direct"
    GROUP = "group"
    THREAD = "thread"
    CHILD = "child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One history. Its id never changes; `epoch` counts its fresh starts (`/new`)."""

    id: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    """The owner whose main session it is, or is at its root; None for every other kind."""
    title: str
    """How it is called in lists."""
    epoch: int
    root_kind: SessionKind
    """The kind whose approval rules hold: its own, or for a child its root's."""
    tools: tuple[str, ...] | None = None
    """For a child: the only tools it may have, already a part of its parent's. None: the kind decides."""
    created_at: datetime
    active_at: datetime
    lineage: Lineage | None = None
    """For a child: where it comes from."""
    summary: str = ""
    """What was said before the turns that `Queries.history` gives, in short; empty when nothing was left out, and in
    lists."""


def works_in(session: Session) -> SessionId:
    """Whose folder a session works in: its own, or for a child its root's, so that they see the same files."""
    return session.lineage.root if session.lineage else session.id


LEASE_LASTS = timedelta(seconds=15)
"""From when a lease was given, or renewed."""
