"""Results of store queries: whole turns, rows of a session in order, figures. Returned by `Queries`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TypeAlias

from gateway.domain.ids import Principal, SessionId
from gateway.domain.messages import Conversation, Received
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot
from gateway.domain.steps import Step, Usage
from gateway.domain.turns import Lease, Turn
from gateway.domain.waits import Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """Turn with everything stored of it: enough to continue it on any machine."""

    turn: Turn
    session: Session
    inputs: tuple[Received, ...]
    """Messages in order of arrival; those with `given` None were not yet given to the model."""
    steps: tuple[Step, ...]
    """Steps by number."""
    waits: tuple[Wait, ...]
    """Waits in order of opening; the last one of a step is the valid one."""
    held: timedelta = timedelta()
    """Time under the present lease, by the store's clock; zero when nobody holds the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Claimed turn, as it was at the claim."""

    lease: Lease
    view: TurnView | None
    """None when it cannot be read: the turn is held all the same, so that it can be ended."""
    history: Sequence[TurnView] | None = None
    """Ended turns before it, as `Queries.history` returns them; None when they were not requested."""

    @property
    def begun(self) -> int:
        """Number of earlier starts after which it neither ended nor waited for a decision."""
        waits = 0 if self.view is None else len(self.view.waits)
        return max(0, self.lease.claims - 1 - waits)


Item: TypeAlias = Received | Turn | Step | Wait | Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Stored object of a session. `ord` is its position and never changes; `rev` grows with each change."""

    ord: int
    rev: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage:
    """Page of rows of a session."""

    session: SessionId
    rows: tuple[Row, ...]
    rev: int
    """Revision up to which every change is in `rows` or already with the reader."""
    more: bool
    """True when there are further rows in the requested direction."""
    removed: int = 0
    """Turns before the first row that were removed under the retention setting; 0 while there are older rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """Session as lists show it."""

    session: Session
    rev: int
    waiting: int
    """Open approvals and questions."""
    running: int
    """Turns held under a lease now."""
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Figures of the whole store, for health, metrics and `/status`."""

    queued_turns: int
    running_turns: int
    parked_turns: int
    open_approvals: int
    due_slots: int
    dead_slots: int
    oldest_queued_at: datetime | None
    """Time at which the longest waiting turn was queued."""
    grants: int = 0
    """Grants that were neither revoked nor swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Usage of one person's turns on one model in one day, those of their children included."""

    day: date
    """Day in UTC."""
    principal: Principal
    model: str
    answers: int
    usage: Usage
    """Sums over these answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastContact:
    """Conversations and times at which an owner was last reachable."""

    direct: dict[Principal, tuple[Conversation, datetime]]
    """Last direct conversation of each principal, and when it was used."""
    page_seen_at: datetime | None
    """Last time one of them had the web page open, signed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLine:
    """Child session as lists show it."""

    session: Session
    """Session with its lineage."""
    turn: Turn
    """Turn of its present task, or of an earlier one where a turn's tasks are listed."""
    waiting: int
    """Open approvals and questions."""
    input_tokens: int
    output_tokens: int
    """Output tokens of that turn so far, as `input_tokens` for the input."""
    n: int = 0
    """Step of the parent's turn that gave this task."""
