"""View of the store for one transition: loaded rows, and the changes over them.

A transition reads and puts rows here and has no other effect. Its backend loads rows, writes what changed, and drops
everything when the transition raises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId, mint
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot, SlotState
from gateway.domain.turns import ENDED, LIFE_BITS, Turn, TurnKind
from gateway.domain.views import Spent
from gateway.errors import NotFound
from gateway.policy.audit import sealed
from gateway.store.constants import HELD
from gateway.store.kernel.rows import (
    Fact,
    MessageRow,
    SessionRow,
    SlotRow,
    StepRow,
    TurnRow,
    WaitRow,
    changed,
    not_before,
)
from gateway.store.notifications import Notifications

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

EventKey: TypeAlias = tuple[str, str, str]
"""Channel, account and the platform's key of the event."""
StepKey: TypeAlias = tuple[TurnId, int]
AccountKey: TypeAlias = tuple[str, str]
"""Channel and account."""
FactKey: TypeAlias = tuple[str, str]
"""Namespace and key."""
_UNCHANGED: Any = object()


class Missing(Exception):
    """A row is not loaded. A backend that cannot load it at once loads it now, and runs the transition again."""

    def __init__(self, rows: str, *key: Any, **named: Any) -> None:
        """Take the method of `Source` that was called, and its arguments."""
        super().__init__(rows, *key)
        self.rows, self.key, self.named = rows, key, named


class Rows(Protocol):
    """Stored rows by key. Each method returns None when there is no row, and raises `Missing` for one not loaded."""

    # The docstring of the class holds for each method, so none has its own (D102).

    def session_row(self, key: SessionId) -> SessionRow | None: ...  # noqa: D102
    def turn_row(self, key: TurnId) -> TurnRow | None: ...  # noqa: D102
    def message_row(self, key: InboundId) -> MessageRow | None: ...  # noqa: D102
    def step_row(self, key: StepKey) -> StepRow | None: ...  # noqa: D102
    def wait_row(self, key: WaitId) -> WaitRow | None: ...  # noqa: D102
    def slot_row(self, key: SlotId) -> SlotRow | None: ...  # noqa: D102
    def cards_row(self, key: WaitId) -> tuple[SlotId, ...] | None: ...  # noqa: D102
    def event_row(self, key: EventKey) -> str | None: ...  # noqa: D102
    def fact_row(self, key: FactKey) -> Fact | None: ...  # noqa: D102
    def grant_row(self, key: GrantId) -> Grant | None: ...  # noqa: D102

    def fact_rows(self, namespace: str) -> Sequence[tuple[str, Fact]]:
        """Return all facts of a namespace."""
        ...

    def is_whole(self, turn: TurnId) -> bool:
        """Return False for a turn with a damaged row: its payloads are stand-ins, enough to end it."""
        ...

    def last_audit(self) -> AuditHead:
        """Return the end of the audit."""
        ...

    def audit_between(self, first: int, last: int) -> Sequence[AuditRow]:
        """Return the rows of the audit with these numbers, both included, by number."""
        ...


class Index(Protocol):
    """Rows that time or a free place makes due, oldest first. Called at the beginning of a transition."""

    def ready_turns(self, now: datetime, limit: int, home: str = "") -> Sequence[TurnId]:
        """Return queued turns that may run, the longest waiting first.

        `home`: only those of this home and those of none; empty: those of every home.
        """
        ...

    def turns_at(self, home: str, limit: int) -> Sequence[TurnId]:
        """Return turns of a home that have not ended, in any order."""
        ...

    def homes_at_work(self) -> Sequence[str]:
        """Return the homes of turns that have not ended."""
        ...

    def claimable_slots(
        self, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey] = ()
    ) -> Sequence[SlotId]:
        """Return slots that may be sent, as `Outbox.claim_slots` orders them, but for those of some accounts."""
        ...

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> Sequence[WaitId]:
        """Return open waits past their time, timers excepted, and decided ones that nobody uses since before then."""
        ...

    def due_timers(self, now: datetime, limit: int) -> Sequence[WaitId]:
        """Return open timers past their time."""
        ...

    def asked_waits(self) -> Sequence[WaitId]:
        """Return all open approvals."""
        ...

    def open_questions(self) -> Sequence[WaitId]:
        """Return all open questions."""
        ...

    def held_turns(self, lapsed: datetime | None = None) -> Sequence[tuple[TurnId, NodeId]]:
        """Return leased turns with their holders; with `lapsed` only those whose lease ended by then."""
        ...

    def sending_slots(self, lapsed: datetime | None = None) -> Sequence[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders; with `lapsed` only those that take too long by then."""
        ...

    def gathering_turns(self) -> Sequence[TurnId]:
        """Return queued turns that wait, or waited, for the rest of a message."""
        ...

    def orphans(self, limit: int) -> Sequence[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        ...

    def expired_grants(self, now: datetime, limit: int) -> Sequence[GrantId]:
        """Return grants past their time that did not end yet."""
        ...

    def doubtful_slots(self, now: datetime, limit: int) -> Sequence[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        ...

    def ended_turns(self, session: SessionId, last: int, passed: int, limit: int) -> Sequence[TurnId]:
        """Return ended turns of a session by epoch and end, but for the `last` ones and the first `passed` ones."""
        ...

    def loose_rows(self, session: SessionId, before: int, limit: int) -> tuple[Sequence[InboundId], Sequence[SlotId]]:
        """Return the oldest messages and slots of a session that belong to no turn, with a place before this one."""
        ...

    def grants_from(self, wait: WaitId) -> Sequence[GrantId]:
        """Return the grants that this approval gave, ended ones too."""
        ...


class Source(Rows, Index, Protocol):
    """Everything a transition may ask of its backend."""


class Table(Generic[K, R]):
    """Rows of one kind as a transition sees them."""

    __slots__ = ("_load", "changed")

    def __init__(self, load: Callable[[K], R | None]) -> None:
        """Take the function that returns a stored row."""
        self._load = load
        self.changed: dict[K, R | None] = {}

    def get(self, key: K) -> R | None:
        """Return the row; None when there is none."""
        found = self.changed.get(key, _UNCHANGED)
        return self._load(key) if found is _UNCHANGED else found

    def __getitem__(self, key: K) -> R:
        """Return the row. Raises `NotFound`."""
        found = self.changed.get(key, _UNCHANGED)
        if found is _UNCHANGED:
            found = self._load(key)
        if found is None:
            raise NotFound(f"There is no {key}.")
        return found

    def put(self, key: K, row: R) -> None:
        """Store a new or changed row."""
        self.changed[key] = row

    def delete(self, key: K) -> None:
        """Remove the row."""
        self.changed[key] = None


class Part:
    """Rows of one transition, its time and its wake-ups."""

    def __init__(
        self,
        rows: Source,
        now: datetime,
        rev: int,
        touched: Notifications | None = None,
        minted: Iterator[str] | None = None,
    ) -> None:
        """Begin at the store's last revision.

        `touched` collects the wake-ups of several transitions. `minted` gives the random parts of new ids: the same in
        each run of one transition, which may load rows by them.
        """
        self.now = now
        self.index: Index = rows
        self.rev = rev
        self.life = 0
        """Number of losses of the store; one whose backend loses nothing has none."""
        self.back_since: datetime | None = None
        """Time at which the backend's server was back after an outage; None without a server."""
        self.touched = Notifications() if touched is None else touched
        self.sessions = Table(rows.session_row)
        self.turns = Table(rows.turn_row)
        self.messages = Table(rows.message_row)
        self.steps = Table(rows.step_row)
        self.waits = Table(rows.wait_row)
        self.slots = Table(rows.slot_row)
        self.cards = Table(rows.cards_row)
        self.events = Table(rows.event_row)
        self.facts = Table(rows.fact_row)
        self.grants = Table(rows.grant_row)
        rows_of_sessions = (self.sessions, self.turns, self.messages, self.steps, self.waits, self.slots)
        self.tables: tuple[Table[Any, Any], ...] = (*rows_of_sessions, self.cards, self.facts, self.grants)
        """Tables whose rows a backend may keep."""
        self.audit: list[AuditRow] = []
        self.audit_removed: list[int] = []
        """Numbers of rows of the audit to remove."""
        self.spent: list[Spent] = []
        self.poison: list[tuple[EventKey, str, str]] = []
        self.forgets_expired = False
        """True when the backend may delete all expired facts now."""
        self.freed: set[Conversation] = set()
        """Conversations whose next slot may be claimable now."""
        self._rows = rows
        self._minted = minted

    def mint(self, prefix: str) -> str:
        """Return a new id."""
        return mint(prefix) if self._minted is None else f"{prefix}{next(self._minted)}"

    def message_id(self, ord_: int) -> InboundId:
        """Return the id of a new message: its place, where a backend numbers rows at once."""
        return InboundId(f"i{ord_}")

    def next_fence(self, fence: int) -> int:
        """Return the fence that follows: higher than any that an earlier life of the store gave and lost."""
        return max(fence, self.life << LIFE_BITS) + 1

    def next_rev(self, session: SessionId | None = None) -> int:
        """Return the revision of a new or changed row of a session."""
        self.rev += 1
        if session is not None:
            self.touched.sessions.add(session)
        return self.rev

    def facts_in(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all stored facts of a namespace."""
        return list(self._rows.fact_rows(namespace))

    def is_whole(self, turn: TurnId) -> bool:
        """Return False for a turn with a damaged row."""
        return self._rows.is_whole(turn)

    def last_audit(self) -> AuditHead:
        """Return the end of the stored audit."""
        return self._rows.last_audit()

    def audit_between(self, first: int, last: int) -> Sequence[AuditRow]:
        """Return stored rows of the audit by their numbers, both included."""
        return self._rows.audit_between(first, last) if first <= last else ()

    def add_audit_row(self, row: AuditRow) -> int:
        """Append a row, ignoring its place and hashes. Return its place."""
        if self.audit:
            last = self.audit[-1]
            head = AuditHead(since=last.at, seq=last.seq, hash=last.hash)
        else:
            head = self._rows.last_audit()
        self.audit.append(sealed(row, head))
        return self.audit[-1].seq

    # --- changes: each one gets a revision ------------------------------------------------------

    def set_session(self, session: SessionId, /, **changes: Any) -> SessionRow:
        """Change a session. Its revision is the last one of its rows."""
        row = changed(self.sessions[session], **changes)
        self.sessions.put(session, row)
        return row

    def set_turn(self, turn: TurnId, /, *, of_turn: dict[str, Any] | None = None, **changes: Any) -> TurnRow:
        """Change a turn, and its session's lists of unended turns when it ends."""
        before = self.turns[turn]
        rev = self.next_rev(before.turn.session)
        if of_turn:
            after = changes["turn"] = changed(before.turn, **of_turn)
            if after.state is not before.turn.state and self._moved(before.turn, after):
                changes.update(ended_rev=rev, head=False)
        row = changed(before, rev=rev, **changes)
        self.turns.put(turn, row)
        return row

    def relink_turn(self, turn: TurnId, /, **changes: Any) -> TurnRow:
        """Change a turn's fields that no page shows: these need no revision."""
        row = changed(self.turns[turn], **changes)
        self.turns.put(turn, row)
        return row

    def _moved(self, before: Turn, turn: Turn) -> bool:
        """Let its session's lane follow a turn in its new state. Return whether the turn has ended now."""
        changes, ends = dict[str, Any](), turn.state in ENDED and before.state not in ENDED
        if turn.kind is TurnKind.COMMAND:
            held = (turn.state in HELD) - (before.state in HELD)
            if held:
                changes["held_commands"] = self.sessions[turn.session].held_commands + held
        if ends:
            lane = "turns" if turn.kind is TurnKind.MODEL else "commands"
            unended = getattr(self.sessions[turn.session], lane)
            changes[lane] = tuple(one for one in unended if one != turn.id)
            changes["last_end"] = not_before(self.sessions[turn.session].last_end, turn.ended_at or self.now)
        if changes:
            self.set_session(turn.session, **changes)
        return ends

    def set_message(self, message: InboundId, /, **changes: Any) -> MessageRow:
        """Change a message."""
        before = self.messages[message]
        row = changed(before, received=changed(before.received, **changes), rev=self.next_rev(before.session))
        self.messages.put(message, row)
        return row

    def set_step(
        self, turn: TurnId, n: int, /, *, fence: int | None = None, audit: int | None = None, **changes: Any
    ) -> None:
        """Change a step; `fence` and `audit` are those of its start."""
        before = self.steps[turn, n]
        start = {} if fence is None else {"fence": fence, "audit": audit}
        row = changed(before, step=changed(before.step, **changes), rev=self.next_rev(before.session), **start)
        self.steps.put((turn, n), row)

    def set_slot(self, slot: SlotId, /, *, of_slot: dict[str, Any] | None = None, **changes: Any) -> SlotRow:
        """Change a slot."""
        before = self.slots[slot]
        session = before.slot.session
        if of_slot:
            changes["slot"] = changed(before.slot, **of_slot)
        row = changed(before, rev=None if session is None else self.next_rev(session), **changes)
        self.slots.put(slot, row)
        self.slot_moved(row.slot)
        return row

    def slot_moved(self, slot: Slot) -> None:
        """Wake claims for a due slot. A sent or dead one makes room for the next one of its conversation."""
        if slot.state is SlotState.DUE:
            self.touched.slots_due = True
        elif slot.state is not SlotState.SENDING and not slot.conversation.on_page:
            self.freed.add(slot.conversation)
