"""Tables of the memory store and their indexes: with ten thousand parked turns no transition may scan them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, TypeVar

from gateway.domain.audit import AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, Principal, SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Conversation, Received
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import REFUSALS_AT_ONCE, Slot, SlotKind, SlotState
from gateway.domain.turns import COMMANDS_AT_ONCE, ENDED, TurnKind, TurnState
from gateway.domain.views import Item, Row, Spent
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.ports import Clock
from gateway.store.constants import HELD, UNDECIDED
from gateway.store.kernel.part import AccountKey, FactKey, Part, StepKey, Table
from gateway.store.kernel.rows import (
    Fact,
    MessageRow,
    SessionRow,
    SlotRow,
    StepRow,
    TurnRow,
    WaitRow,
    is_for,
    takes_too_long,
)
from gateway.store.kernel_store import KernelStore

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

UNSENT = frozenset({SlotState.DUE, SlotState.SENDING})


class MemoryIndex(KernelStore):
    """All rows by key, and what the kernel asks of an index."""

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        super().__init__(clock)
        self.sessions_by_id: dict[SessionId, SessionRow] = {}
        self.turns: dict[TurnId, TurnRow] = {}
        self.messages: dict[InboundId, MessageRow] = {}
        self.steps: dict[StepKey, StepRow] = {}
        self.waits: dict[WaitId, WaitRow] = {}
        self.slots: dict[SlotId, SlotRow] = {}
        self.cards_by_wait: dict[WaitId, tuple[SlotId, ...]] = {}
        self.grants: dict[GrantId, Grant] = {}
        self.audit: list[AuditRow] = []
        self.all_facts: dict[FactKey, Fact] = {}
        self.books: dict[tuple[date, Principal, str], Spent] = {}
        # Rows of a session by kind and key, for pages.
        self.rows: dict[SessionId, dict[tuple[str, object], Row]] = {}
        self.queued: dict[TurnId, TurnRow] = {}
        self.held_now: dict[TurnId, TurnRow] = {}
        self.parked: dict[TurnId, TurnRow] = {}
        self.ended: dict[SessionId, list[TurnId]] = {}
        self.undecided: dict[WaitId, WaitRow] = {}
        self.unsent: dict[Conversation, dict[SlotId, SlotRow]] = {}

    def index_rows(self, part: Part) -> None:
        """Store the changed rows of a transition, in the order of their revisions."""
        for turn, row in _stored(part.turns):
            self._index_turn(turn, row)
        for message, row in _stored(part.messages):
            self.messages[message] = row
            self._show(row.session, ("message", message), row.ord, row.rev, row.received)
        for key, row in _stored(part.steps):
            self.steps[key] = row
            self._show(row.session, ("step", key), row.ord, row.rev, row.step)
        for wait, row in _stored(part.waits):
            self._index_wait(wait, row)
        for slot, row in _stored(part.slots):
            self._index_slot(slot, row)

    def drop_rows(self, part: Part) -> None:
        """Forget the removed rows of a transition: only what has ended is removed."""
        for turn in _removed(part.turns):
            session = self.turns.pop(turn).turn.session
            self.ended[session].remove(turn)
            self._hide(session, ("turn", turn))
        for message in _removed(part.messages):
            self._hide(self.messages.pop(message).session, ("message", message))
        for key in _removed(part.steps):
            self._hide(self.steps.pop(key).session, ("step", key))
        for wait in _removed(part.waits):
            self._hide(self.waits.pop(wait).wait.session, ("wait", wait))
        for slot in _removed(part.slots):
            row = self.slots.pop(slot)
            if row.slot.session is not None:
                self._hide(row.slot.session, ("slot", slot))
        for session in _removed(part.sessions):
            del self.sessions_by_id[session]
            self.rows.pop(session, None)
            self.ended.pop(session, None)
        for wait in _removed(part.cards):
            del self.cards_by_wait[wait]
        for grant in _removed(part.grants):
            del self.grants[grant]

    def _hide(self, session: SessionId, key: tuple[str, object]) -> None:
        self.rows[session].pop(key, None)

    def _show(self, session: SessionId, key: tuple[str, object], ord_: int, rev: int, item: Item) -> None:
        self.rows.setdefault(session, {})[key] = Row(ord=ord_, rev=rev, item=item)

    def _index_turn(self, turn: TurnId, row: TurnRow) -> None:
        before, state = self.turns.get(turn), row.turn.state
        self.turns[turn] = row
        self._show(row.turn.session, ("turn", turn), row.ord, row.rev, row.turn)
        for states, index in (
            ({TurnState.QUEUED}, self.queued),
            (HELD, self.held_now),
            ({TurnState.PARKED}, self.parked),
        ):
            if state not in states:
                index.pop(turn, None)
            elif before is not None and before.queued_rev != row.queued_rev:
                index.pop(turn, None)  # queued again: behind those already queued
                index[turn] = row
            else:
                index[turn] = row
        if state in ENDED and (before is None or before.turn.state not in ENDED):
            self.ended.setdefault(row.turn.session, []).append(turn)

    def _index_wait(self, wait: WaitId, row: WaitRow) -> None:
        self.waits[wait] = row
        self._show(row.wait.session, ("wait", wait), row.ord, row.rev, row.wait)
        if row.wait.state in UNDECIDED:
            self.undecided[wait] = row
        else:
            self.undecided.pop(wait, None)

    def _index_slot(self, slot: SlotId, row: SlotRow) -> None:
        self.slots[slot] = row
        if row.slot.session is not None and row.ord is not None and row.rev is not None:
            self._show(row.slot.session, ("slot", slot), row.ord, row.rev, row.slot)
        here = self.unsent.setdefault(row.slot.conversation, {})
        if row.slot.state in UNSENT:
            here[slot] = row
        else:
            here.pop(slot, None)
        if not here:
            del self.unsent[row.slot.conversation]

    @property
    def unended(self) -> list[TurnRow]:
        """All turns that have not ended."""
        return [*self.queued.values(), *self.held_now.values(), *self.parked.values()]

    # --- turns ------------------------------------------------------------------------------

    def ready_turns(self, now: datetime, limit: int, home: str = "") -> Sequence[TurnId]:
        """Return queued turns that may run there, the longest waiting first."""
        found: list[TurnId] = []
        for turn, row in self.queued.items():
            if len(found) == limit:
                break
            gathers = row.gathers_until is not None and row.gathers_until > now
            if not gathers and row.head and is_for(row, home) and self._has_room(row):
                found.append(turn)
        return found

    def turns_at(self, home: str, limit: int) -> Sequence[TurnId]:
        """Return turns of a home that have not ended."""
        return [row.turn.id for row in sorted(self.unended, key=lambda row: row.ord) if row.home == home][:limit]

    def homes_at_work(self) -> Sequence[str]:
        """Return the homes of turns that have not ended."""
        return sorted({row.home for row in self.unended if row.home})

    def _has_room(self, row: TurnRow) -> bool:
        held = self.sessions_by_id[row.turn.session].held_commands
        return row.turn.kind is TurnKind.MODEL or held < COMMANDS_AT_ONCE

    def held_turns(self, lapsed: datetime | None = None) -> Sequence[tuple[TurnId, NodeId]]:
        """Return leased turns in the order in which they return to the queue."""
        rows = sorted(self.held_now.values(), key=lambda row: (row.held_since or row.queued_at, row.queued_rev))
        late = [row for row in rows if lapsed is None or (row.lease_until is not None and row.lease_until <= lapsed)]
        return [(row.turn.id, row.node) for row in late if row.node is not None]

    def gathering_turns(self) -> Sequence[TurnId]:
        """Return queued turns that wait, or waited, for the rest of a message."""
        return [turn for turn, row in self.queued.items() if row.gathers_until is not None]

    def orphans(self, limit: int) -> Sequence[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        found: list[SessionId] = []
        for id_, row in self.sessions_by_id.items():
            if len(found) < limit and row.live and row.task is not None and row.parent_wait is not None:
                waiting = self.turns[self.waits[row.parent_wait].wait.turn].turn.state
                if waiting in ENDED and self.turns[row.task].turn.state is not TurnState.STOPPING:
                    found.append(id_)
        return found

    def ended_turns(self, session: SessionId, last: int, passed: int, limit: int) -> Sequence[TurnId]:
        """Return ended turns of a session by epoch and end, but for the last ones and the first ones."""
        ended = sorted(self.ended.get(session, ()), key=lambda one: (self.turns[one].turn.epoch, self._end(one)))
        return ended[: max(0, len(ended) - last)][passed : passed + limit]

    def _end(self, turn: TurnId) -> int:
        return self.turns[turn].ended_rev or 0

    def loose_rows(self, session: SessionId, before: int, limit: int) -> tuple[Sequence[InboundId], Sequence[SlotId]]:
        """Return the oldest messages and slots of a session that belong to no turn."""
        known = sorted((row for row in self.rows.get(session, {}).values() if row.ord < before), key=_place)
        items = [row.item for row in known]
        messages = [item.id for item in items if isinstance(item, Received) and item.turn is None]
        slots = [item.id for item in items if isinstance(item, Slot) and item.turn is None]
        return messages[:limit], slots[:limit]

    def grants_from(self, wait: WaitId) -> Sequence[GrantId]:
        """Return the grants that this approval gave."""
        return [one.id for one in self.grants.values() if one.wait == wait]

    # --- waits ------------------------------------------------------------------------------

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> Sequence[WaitId]:
        """Return open waits past their time, timers excepted, and decided ones that nobody uses since before then."""
        return [one.id for one in self._waits() if self._expired(one, now, unused_since)][:limit]

    def _expired(self, wait: Wait, now: datetime, unused_since: datetime) -> bool:
        if wait.state is WaitState.OPEN:
            return wait.expires_at <= now and wait.kind is not WaitKind.TIMER
        return (wait.decided_at or wait.opened_at) < unused_since and wait.turn not in self.held_now

    def due_timers(self, now: datetime, limit: int) -> Sequence[WaitId]:
        """Return open timers past their time."""
        timers = (one for one in self._waits() if one.kind is WaitKind.TIMER and one.expires_at <= now)
        return [one.id for one in timers][:limit]

    def waiting_in(self, session: SessionId) -> int:
        """Return the number of open approvals and questions of a session."""
        people = (WaitKind.APPROVAL, WaitKind.QUESTION)
        waits = [wait for wait in self._waits() if wait.session == session and wait.kind in people]
        return sum(wait.state is WaitState.OPEN for wait in waits)

    def asked_waits(self) -> Sequence[WaitId]:
        """Return all open approvals."""
        return self._open(WaitKind.APPROVAL)

    def open_questions(self) -> Sequence[WaitId]:
        """Return all open questions."""
        return self._open(WaitKind.QUESTION)

    def _open(self, kind: WaitKind) -> list[WaitId]:
        return [one.id for one in self._waits() if (one.kind, one.state) == (kind, WaitState.OPEN)]

    def _waits(self) -> Iterator[Wait]:
        return (row.wait for row in self.undecided.values())

    # --- slots ------------------------------------------------------------------------------

    def claimable_slots(
        self, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey] = ()
    ) -> Sequence[SlotId]:
        """Return the oldest due slot of each conversation where none is being sent; refusals last."""
        idle = [here for here in self.unsent.values() if all(row.sending_since is None for row in here.values())]
        heads = [min(here.values(), key=self._place) for here in idle]
        due = [row for row in heads if row.slot.due_at <= now and row.slot.conversation.channel in channels]
        due = [row for row in due if (row.slot.conversation.channel, row.slot.conversation.account) not in without]
        due.sort(key=lambda row: row.seq)
        found = [row for row in due if row.slot.kind is not SlotKind.REFUSAL]
        for channel in channels:
            refusals = [row for row in due if row.slot.kind is SlotKind.REFUSAL and _is_on(row, channel)]
            found += refusals[: max(0, REFUSALS_AT_ONCE - self._refusals_sent(channel))]
        return [row.slot.id for row in found[:limit]]

    def _place(self, row: SlotRow) -> tuple[bool, int]:
        """Return the sort key of a slot in its conversation: cards of sessions other than a main one come last."""
        session = None if row.slot.session is None else self.sessions_by_id[row.slot.session].session
        others = session is not None and session.root_kind is not SessionKind.MAIN
        return row.slot.kind is SlotKind.CARD and others, row.seq

    def _refusals_sent(self, channel: str) -> int:
        rows = (self.slots[slot] for slot, _ in self.sending_slots())
        return sum(row.slot.kind is SlotKind.REFUSAL and _is_on(row, channel) for row in rows)

    def sending_slots(self, lapsed: datetime | None = None) -> Sequence[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders, oldest first; with `lapsed` only those that take too long."""
        rows = [row for here in self.unsent.values() for row in here.values() if row.slot.state is SlotState.SENDING]
        late = sorted((row for row in rows if lapsed is None or takes_too_long(row, lapsed)), key=lambda row: row.seq)
        return [(row.slot.id, row.node) for row in late if row.node is not None]

    def expired_grants(self, now: datetime, limit: int) -> Sequence[GrantId]:
        """Return grants past their time that did not end yet."""
        rows = [one for one in self.grants.values() if not one.ended and one.expires_at <= now]
        return [one.id for one in sorted(rows, key=lambda one: (one.expires_at, one.id))[:limit]]

    def doubtful_slots(self, now: datetime, limit: int) -> Sequence[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        rows = [row for row in self.slots.values() if row.again_at is not None and row.again_at <= now]
        return [row.slot.id for row in sorted(rows, key=lambda row: row.seq)[:limit]]


def _place(row: Row) -> int:
    return row.ord


def _stored(table: Table[K, R]) -> Iterator[tuple[K, R]]:
    return ((key, row) for key, row in table.changed.items() if row is not None)


def _removed(table: Table[K, Any]) -> Iterator[K]:
    return (key for key, row in table.changed.items() if row is None)


def _is_on(row: SlotRow, channel: str) -> bool:
    return row.slot.conversation.channel == channel
