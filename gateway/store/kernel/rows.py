"""Rows of the store: the domain's types with what only the store knows of them. Frozen; a change makes a new row.

Lists of ids stand with the row that owns them, so that a transition needs no search. Backends store them or derive
them when they load the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeVar

from gateway.domain.ids import InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Received
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.steps import Step
from gateway.domain.turns import Turn
from gateway.domain.waits import Wait

R = TypeVar("R")
SENDING_AT_MOST = timedelta(seconds=60)
"""Timeout of sending a slot; then it is taken back from its sender."""
FILE_SENDING_AT_MOST = timedelta(minutes=15)
"""Limit for a slot with a file, whose upload may take as long as `file_may_take_s` returns."""
CLOCKS_DIFFER_AT_MOST = timedelta(seconds=5)
"""Most that clocks of two nodes differ by. A time further ahead is of a clock that was wrong: it orders nothing."""


class _Fields:
    """Fields of a dataclass with slots, frozen or not: how to read and to set them."""

    __slots__ = ("puts", "setters", "values")

    def __init__(self, kind: type) -> None:
        """Take a class of two fields or more."""
        names = [one.name for one in fields(kind)]
        self.setters: dict[str, Callable[[Any, Any], None]] = {name: getattr(kind, name).__set__ for name in names}
        self.puts = tuple(self.setters.values())
        self.values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
        """Return the values of a row, in the order of `puts`."""


_FIELDS: dict[type, _Fields] = {}
"""Fields of each type whose rows were changed."""


def changed(row: R, /, **changes: Any) -> R:
    """Return a copy of a frozen dataclass with slots: `dataclasses.replace` at half its cost.

    The types of `gateway.domain` check nothing when they are made. Raises `TypeError` for an unknown field.
    """
    kind = type(row)
    known = _FIELDS.get(kind) or _FIELDS.setdefault(kind, _Fields(kind))
    setters, copy = known.setters, object.__new__(kind)
    for put, value in zip(known.puts, known.values(row), strict=True):
        put(copy, value)
    for name, value in changes.items():
        if name not in setters:
            raise TypeError(f"{kind.__name__} has no {name}")
        setters[name](copy, value)
    return copy


def held_for(since: datetime | None, until: datetime | None, now: datetime) -> timedelta:
    """Return the time under a lease so far: none after its end, when nobody works."""
    return timedelta() if since is None or until is None else max(timedelta(), min(now, until) - since)


def takes_too_long(row: SlotRow, now: datetime) -> bool:
    """Return whether a slot is being sent for so long that its sender must be gone."""
    at_most = FILE_SENDING_AT_MOST if row.slot.kind is SlotKind.FILE else SENDING_AT_MOST
    return row.sending_since is not None and now - row.sending_since > at_most


def latest(*times: datetime | None) -> datetime | None:
    """Return the last of these times."""
    return max((time for time in times if time is not None), default=None)


def not_before(earlier: datetime | None, now: datetime) -> datetime:
    """Return the time now, or the earlier one where the clock of another node was a little ahead."""
    if earlier is None or earlier - now > CLOCKS_DIFFER_AT_MOST:
        return now
    return max(earlier, now)


class Early(IntEnum):
    """Use of a slot by a turn that still writes it."""

    NO = 0
    DRAFT = 1
    """Draft of an answer that no answer took over yet."""
    STATUS = 2
    """Status line of a turn that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session with its turns that have not ended."""

    session: Session
    turns: tuple[TurnId, ...] = ()
    """MODEL turns that have not ended, oldest first."""
    commands: tuple[TurnId, ...] = ()
    """COMMAND turns that have not ended, oldest first."""
    held_commands: int = 0
    """Number of them under a lease."""
    context: tuple[InboundId, ...] = ()
    """Overheard messages since the last model turn of this epoch was created."""
    summary_rev: int = 0
    """`ended_rev` of the last turn in the summary; 0 without one."""
    task: TurnId | None = None
    """For a child: the turn of its present task, which may have ended."""
    parent_wait: WaitId | None = None
    """For a child in mode RUN: the wait of its parent."""
    live: bool = False
    """For a child: true until its task has ended."""
    live_below: tuple[SessionId, ...] = ()
    """For a root: all live children, oldest first."""
    homes: tuple[str, ...] = ()
    """For a root: places that held the files of its family, oldest first. The last one is its home now."""
    last_end: datetime | None = None
    """Latest end of a turn; None without one. The next turn starts no earlier, though its node's clock be behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A turn with its place in the queue, its lease and the ids of its rows."""

    turn: Turn
    ord: int
    rev: int
    queued_at: datetime
    queued_rev: int
    """Revision at which it was queued last; the order of the queue."""
    head: bool
    """True if its lane's order lets it run: every command, and the oldest model turn of its session."""
    node: NodeId | None = None
    fence: int = 0
    lease_until: datetime | None = None
    held_since: datetime | None = None
    gathers_until: datetime | None = None
    """Not claimable before: the rest of its last message is expected."""
    stopped_text: str | None = None
    """Text shown after a stop when no holder is left to end it; None is the default text."""
    ended_rev: int | None = None
    """Revision of its end; the order of a history."""
    inputs: tuple[InboundId, ...] = ()
    steps: int = 0
    """Number of its steps."""
    waits: tuple[WaitId, ...] = ()
    drafts: tuple[SlotId, ...] = ()
    """Draft slots that no answer took over yet, oldest first."""
    status: tuple[SlotId, ...] = ()
    """Its status lines, until it ends."""
    tasks: tuple[TurnId, ...] = ()
    """Tasks that it gave to children itself, each the turn of a child, oldest first."""
    given_by: TurnId | None = None
    """For the task of a child: the turn that gave it."""
    given_n: int = 0
    """Step of that turn."""
    hops: int = 0
    """Messages in a row from session to session that led to it."""
    home: str = ""
    """Home of its family, which alone may claim it; empty while there is none."""
    slots: tuple[SlotId, ...] = ()
    """All its slots, oldest first."""


def is_for(row: TurnRow, home: str) -> bool:
    """Return whether a holder whose files are at this place may claim a turn; empty: a holder of every home."""
    return not home or row.home in ("", home)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A message in its session."""

    received: Received
    session: SessionId
    ord: int
    rev: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step with the fence and the audit row of its last start."""

    step: Step
    session: SessionId
    ord: int
    rev: int
    fence: int = 0
    audit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """A wait with its revision."""

    wait: Wait
    ord: int
    rev: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """A slot with its place in the outbox and its sender."""

    slot: Slot
    seq: int
    """Grows with each slot; the order of the outbox."""
    ord: int | None
    """None for a slot without a session, like `rev`."""
    rev: int | None
    early: Early = Early.NO
    node: NodeId | None = None
    sending_since: datetime | None = None
    shown_by: NodeId | None = None
    """Node that shows a draft or a status line of a running turn, and may be editing it."""
    again_at: datetime | None = None
    """Time at which to show it once more: an edit with unknown result may have overwritten it."""
    again_over: int | None = None
    """Oldest version that such an edit may show; versions no newer than it need not be shown again."""
    why_dead: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A small value under a namespace and a key, with its expiry."""

    value: str
    until: datetime | None = None
