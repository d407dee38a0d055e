"""What is read from the store: whole turns, rows of a session in order, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
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
    """A turn with all that is stored of it; enough to go on with it on any machine."""

    turn: Turn
    session: Session
    inputs: tuple[Received, ...]
    """Its messages in the order they came; those with `given` None were not yet given to the model."""
    steps: tuple[Step, ...]
    """By number."""
    waits: tuple[Wait, ...]
    """In the order they were opened; the last one of a step is the one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A turn that was handed out, as it stood then."""

    lease: Lease
    view: TurnView | None
    """None when it cannot be read: the turn is held all the same, so that it can be ended."""
    history: Sequence[TurnView] | None = None
    """The ended turns before it, as `Queries.history` gives them; None when nobody asked for them."""


Item: TypeAlias = Received | Turn | Step | Wait | Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stored thing of a session. `ord` is its place in it and never changes; `rev` grows with each change."""

    ord: int
    rev: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a session."""

    session: SessionId
    rows: tuple[Row, ...]
    rev: int
    """Every change up to this revision is in `rows` or in what the reader has."""
    more: bool
    """True when there are further ones in the direction that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session as lists show it."""

    session: Session
    rev: int
    waiting: int
    """Open approvals."""
    running: int
    """Turns that are held now."""
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
    """When the turn that waits longest for a runner was queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one person's turns used of one model in one day, those of their children included."""

    day: date
    """In UTC."""
    principal: Principal
    model: str
    answers: int
    usage: Usage
    """The sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastContact:
    """Where some people can be reached."""

    direct: dict[Principal, tuple[Conversation, datetime]]
    """Each principal's last direct conversation and when it was used."""
    page_seen_at: datetime | None
    """When one of them last had the web page open, signed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLine:
    """A child as lists show it."""

    session: Session
    """With its lineage."""
    turn: Turn
    """The one that does its task."""
    waiting: int
    """Open approvals."""
    input_tokens: int
    output_tokens: int
    """Of that turn so far."""
