"""Retention types: how much of each session's history is kept, and why a turn stays beyond that.

`[sessions] keep` sets it (`config/settings.py`), `policy.retention` decides, `app.retention` is the loop, and
`store.kernel.retention` removes rows. Turns are removed, and sub-sessions; a root session never.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.ids import SessionId, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Part of each history that is kept: the last turns, those of the last time, or both. By default everything."""

    turns: int | None = None
    """Last ended turns of each session."""
    age: timedelta | None = None
    """Time since a turn ended."""
    window: int = 0
    """Last ended turns that a model may be given."""

    @property
    def is_everything(self) -> bool:
        """Return whether nothing is ever removed."""
        return self.turns is None and self.age is None


class Stays(StrEnum):
    """Reason why a turn is not removed."""

    EVERYTHING = "everything"
    """No limit is set."""
    NOT_ENDED = "not_ended"
    LAST = "last"
    """It is one of the last turns of its session, of which so many are kept."""
    YOUNG = "young"
    """It ended within the time that is kept."""
    WINDOW = "window"
    """A model may be given it."""
    WAIT = "wait"
    """Somebody may still decide or answer one of its waits, or a timer of it is set."""
    SLOT = "slot"
    """A message of it is not sent yet, or may have to be sent once more."""
    CHILD = "child"
    """A sub-session of it is at work, or has something that stays."""
    GRANT = "grant"
    """A grant that came from its approval is still good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """Facts of a turn for the rule of retention."""

    ended_at: datetime | None
    is_last: bool
    """True if it is one of the last `Keep.turns` ended turns of its session."""
    in_window: bool
    waits: bool
    """True if a wait of it is open, or approved and unused."""
    slots: bool
    """True if a slot of it is unsettled."""
    children: bool
    """True if a sub-session of it is live, or kept."""
    grants: bool
    """True if a grant from its approvals is still valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """Outcome of one round of removal in a session."""

    rows: int = 0
    """Removed rows."""
    turns: int = 0
    """Turns that are gone now."""
    passed: int | None = None
    """Old turns that stay so far, to go on behind them; None: nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFiles:
    """Files of a turn that was removed."""

    turn: TurnId
    session: SessionId
    works_in: SessionId
    """Session in whose folder it worked."""
    inbox: tuple[str, ...] = ()
    """Paths of its attachments, relative to the workspace."""
