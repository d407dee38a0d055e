"""Rows of the SQLite store for the kernel: loaded when asked for, kept while they are used, written when changed.

Only the writer's thread uses it. The file has no other writer, so a kept row is the stored one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import compress
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.turns import COMMANDS_AT_ONCE, TurnKind
from gateway.store.codec import dump_conversation, from_us, load_json, to_us
from gateway.store.constants import AT_ONCE, HELD
from gateway.store.decode import (
    BARE_MESSAGE,
    BARE_STEP,
    BARE_TURN,
    BARE_WAIT,
    Columns,
    audit_row_of,
    grant_of,
    moment,
    readable,
    received_of,
    session_of,
    slot_of,
    step_of,
    turn_of,
    wait_of,
    whole_or_bare,
)
from gateway.store.kernel.part import AccountKey, EventKey, FactKey, Part, StepKey, Table
from gateway.store.kernel.rows import (
    FILE_SENDING_AT_MOST,
    SENDING_AT_MOST,
    Early,
    Fact,
    MessageRow,
    SessionRow,
    SlotRow,
    StepRow,
    TurnRow,
    WaitRow,
)
from gateway.store.sqlite import tables
from gateway.store.sqlite.queries import claimable
from gateway.store.sqlite.records import add_audit_row, add_spent, audit_head
from gateway.store.sqlite.row_cache import RowCache
from gateway.store.sqlite.tables import RowTable
from gateway.store.sqlite.tx import Tx

R = TypeVar("R")

_TARGETS: tuple[RowTable[Any] | None, ...] = (
    tables.SESSIONS,
    tables.TURNS,
    tables.MESSAGES,
    tables.STEPS,
    tables.WAITS,
    tables.SLOTS,
    None,
    None,
    tables.GRANTS,
)
"""Tables of the rows in `Part.tables`, parents before their rows. None: cards and facts, written otherwise."""
_Changed: TypeAlias = tuple[RowTable[Any] | None, Table[Any, Any], RowCache[Any, Any]]
_changes: Callable[[Table[Any, Any]], object] = attrgetter("changed")
TRIM_EVERY = 16
"""Transitions between two checks of the cache's bounds."""
SESSION, TURN, MESSAGE, STEP, WAIT, SLOT = 16, 12, 20, 12, 13, 20
"""Numbers of columns that the functions of `decode` take; the store's own follow."""


class SqliteSource:
    """`kernel.part.Source` and `Index` over one transaction at a time."""

    tx: Tx

    def __init__(self) -> None:
        """Start with nothing kept."""
        self._sessions = RowCache[SessionId, SessionRow](self._load_session)
        self._turns = RowCache[TurnId, TurnRow](self._load_turn)
        self._messages = RowCache[InboundId, MessageRow](self._load_message, lambda row: len(row.received.message.text))
        self._steps = RowCache[StepKey, StepRow](self._load_step, _step_size)
        self._waits = RowCache[WaitId, WaitRow](self._load_wait)
        self._slots = RowCache[SlotId, SlotRow](self._load_slot, lambda row: len(row.slot.text))
        self._cards = RowCache[WaitId, tuple[SlotId, ...]](self._load_cards)
        self._facts = RowCache[FactKey, Fact](self._load_fact)
        self._grants = RowCache[GrantId, Grant](self._load_grant)
        kept = (self._sessions, self._turns, self._messages, self._steps, self._waits, self._slots)
        self._all: tuple[RowCache[Any, Any], ...] = (*kept, self._cards, self._facts, self._grants)
        self.session_row, self.turn_row, self.message_row = self._sessions.get, self._turns.get, self._messages.get
        self.step_row, self.wait_row, self.slot_row = self._steps.get, self._waits.get, self._slots.get
        self.cards_row, self.fact_row, self.grant_row = self._cards.get, self._facts.get, self._grants.get
        self._damaged: set[TurnId] = set()
        self._since_trim = 0

    def forget(self) -> None:
        """Forget all kept rows: what was rolled back may be among them."""
        for kept in self._all:
            kept.clear()
        self._damaged.clear()

    # --- rows by key ------------------------------------------------------------------------

    def event_row(self, key: EventKey) -> str | None:
        """Return the outcome of an event."""
        found = self.tx.one("event_outcome", *key)
        return None if found is None else str(found[0])

    def fact_rows(self, namespace: str) -> Sequence[tuple[str, Fact]]:
        """Return all facts of a namespace."""
        return [(key, _fact(tuple(rest))) for key, *rest in self.tx.run("facts", namespace)]

    def is_whole(self, turn: TurnId) -> bool:
        """Return False for a turn with a row that could not be read whole."""
        return turn not in self._damaged

    def last_audit(self) -> AuditHead:
        """Return the end of the audit."""
        return audit_head(self.tx)

    def audit_between(self, first: int, last: int) -> Sequence[AuditRow]:
        """Return rows of the audit by their numbers."""
        found = map(audit_row_of, self.tx.run("audit_rows", first - 1, last - first + 1))
        return [row for row in found if row.seq <= last]

    def _load(self, name: str, make: Callable[[Columns], R], *key: Any) -> R | None:
        return None if (found := self.tx.one(name, *key)) is None else make(found)

    def _load_step(self, key: StepKey) -> StepRow | None:
        return self._load("step_row", self._step, *key)

    def _load_wait(self, key: WaitId) -> WaitRow | None:
        return self._load("wait_row", self._wait, key)

    def _load_slot(self, key: SlotId) -> SlotRow | None:
        return self._load("slot_row", _slot, key)

    def _load_fact(self, key: FactKey) -> Fact | None:
        return self._load("fact", _fact, *key)

    def _load_grant(self, key: GrantId) -> Grant | None:
        """Return a grant; one that cannot be read allows nothing."""
        found = readable(grant_of, self.tx.run("grant_row", key), "grant")
        return found[0] if found else None

    def _load_session(self, key: SessionId) -> SessionRow | None:
        """Return a session with its unended turns and, for a root, its live children."""
        found = self.tx.one("session_row", key)
        if found is None:
            return None
        session = session_of(found[:SESSION])
        context, summary_rev, task, parent_wait, live, homes, last_end = found[SESSION:]
        turns = self.tx.run("unended_turns", key)
        below = self.tx.run("live_below", key) if session.lineage is None else []
        commands = [(turn, state) for turn, kind, state in turns if kind == TurnKind.COMMAND]
        return SessionRow(
            session=session,
            turns=tuple(TurnId(turn) for turn, kind, _ in turns if kind == TurnKind.MODEL),
            commands=tuple(TurnId(turn) for turn, _ in commands),
            held_commands=sum(state in HELD for _, state in commands),
            context=tuple(load_json(context)),
            summary_rev=summary_rev,
            task=task,
            parent_wait=parent_wait,
            live=bool(live),
            live_below=tuple(SessionId(child) for (child,) in below),
            homes=tuple(load_json(homes)),
            last_end=moment(last_end),
        )

    def _load_turn(self, key: TurnId) -> TurnRow | None:
        """Return a turn; keep its messages, steps and waits, which are read with it."""
        found = self.tx.one("turn_row", key)
        if found is None:
            return None
        turn, is_whole = whole_or_bare(turn_of, found[:TURN], bare=BARE_TURN)
        if not is_whole:
            self._damaged.add(key)
        ord_, rev, queued_at, queued_rev, head, node, fence, lease, since, gathers, ended_rev, *task = found[TURN:]
        given_by, given_n, hops, home = task
        messages = [self._message(one) for one in self.tx.run("message_rows", key)]
        for one in messages:
            self._messages.put(one.received.id, one)
        # A turn that nobody held has messages and nothing else.
        steps = [self._step(one) for one in self.tx.run("step_rows", key)] if fence else []
        for one in steps:
            self._steps.put((key, one.step.n), one)
        waits = [self._wait(one) for one in self.tx.run("wait_rows", key)] if fence else []
        for one in waits:
            self._waits.put(one.wait.id, one)
        slots = self.tx.run("slots_of_turn", key)
        tasks = self.tx.run("tasks_of_turn", key) if fence else []
        return TurnRow(
            turn=turn,
            ord=ord_,
            rev=rev,
            queued_at=from_us(queued_at),
            queued_rev=queued_rev,
            head=bool(head),
            node=node,
            fence=fence,
            lease_until=moment(lease),
            held_since=moment(since),
            gathers_until=moment(gathers),
            stopped_text=found[TURN - 1],
            ended_rev=ended_rev,
            inputs=tuple(one.received.id for one in messages),
            steps=len(steps),
            waits=tuple(one.wait.id for one in waits),
            drafts=tuple(SlotId(id_) for id_, how in slots if how == Early.DRAFT),
            status=tuple(SlotId(id_) for id_, how in slots if how == Early.STATUS),
            slots=tuple(SlotId(id_) for id_, _ in slots),
            tasks=tuple(TurnId(task) for (task,) in tasks),
            given_by=given_by,
            given_n=given_n,
            hops=hops,
            home=home,
        )

    def _load_message(self, key: InboundId) -> MessageRow | None:
        """Return a message. Its id names its place, unless it came from another kind of store."""
        place = key.removeprefix("i")
        found = self._load("message_row", self._message, int(place)) if place.isdecimal() else None
        return found or self._load("moved_message", self._message, key)

    def _load_cards(self, key: WaitId) -> tuple[SlotId, ...]:
        return tuple(SlotId(id_) for (id_,) in self.tx.run("cards_of_wait", key))

    def _message(self, found: Columns) -> MessageRow:
        session, ord_, rev = found[MESSAGE:]
        received, is_whole = whole_or_bare(received_of, found[:MESSAGE], bare=BARE_MESSAGE)
        if not is_whole and received.turn is not None:
            self._damaged.add(received.turn)
        return MessageRow(received=received, session=session, ord=ord_, rev=rev)

    def _step(self, found: Columns) -> StepRow:
        session, ord_, rev, fence, audit = found[STEP:]
        step, is_whole = whole_or_bare(step_of, found[:STEP], bare=BARE_STEP)
        if not is_whole:
            self._damaged.add(step.turn)
        return StepRow(step=step, session=session, ord=ord_, rev=rev, fence=fence, audit=audit)

    def _wait(self, found: Columns) -> WaitRow:
        wait, is_whole = whole_or_bare(wait_of, found[:WAIT], bare=BARE_WAIT)
        if not is_whole:
            self._damaged.add(wait.turn)
        ord_, rev = found[WAIT:]
        return WaitRow(wait=wait, ord=ord_, rev=rev)

    # --- changes ----------------------------------------------------------------------------

    def store(self, part: Part) -> None:
        """Write the changes of a transition and keep its rows, but for those of turns that ended."""
        tables = zip(_TARGETS, part.tables, self._all, strict=True)
        changed = [*compress(tables, map(_changes, part.tables))]
        self._write(part, changed)
        for _, table, kept in changed:
            for key, row in table.changed.items():
                if row is None:
                    kept.drop(key)
                else:
                    kept.put(key, row)
        self._since_trim += 1
        if self._since_trim >= TRIM_EVERY:
            self._since_trim = 0
            for kept in self._all:
                kept.trim()
        for turn, row in part.turns.changed.items():
            if row is not None and row.ended_rev is not None:
                self._drop_turn(turn, row)

    def _write(self, part: Part, changed: Sequence[_Changed]) -> None:
        """Write parents before their rows, and remove rows before their parents."""
        for target, table, kept in changed:
            if target is not None:
                self._write_rows(target, table, kept)
        self._write_cards(part)
        self._write_records(part)
        for target, table, kept in reversed(changed):
            if target is not None:
                for key, row in table.changed.items():
                    if row is None:
                        target.delete(self.tx.db, kept.rows[key])  # whoever removes a row has read it
        if part.freed and not part.touched.slots_due:  # a finished slot makes room for the next one
            unsent = (self.tx.run("is_unsent", dump_conversation(place)) for place in part.freed)
            part.touched.slots_due = any(found == [(1,)] for found in unsent)

    def _drop_turn(self, turn: TurnId, row: TurnRow) -> None:
        self._turns.drop(turn)
        for message in row.inputs:
            self._messages.drop(message)
        for n in range(row.steps):
            self._steps.drop((turn, n))
        for wait in row.waits:
            self._waits.drop(wait)
        self._damaged.discard(turn)

    def _write_rows(self, target: RowTable[R], table: Table[Any, R], kept: RowCache[Any, R]) -> None:
        for key, row in table.changed.items():
            if row is None:
                continue
            before = kept.rows.get(key)
            if before is None:
                target.insert(self.tx.db, row)
            else:
                target.update(self.tx.db, before, row)

    def _write_cards(self, part: Part) -> None:
        for wait, slots in part.cards.changed.items():
            if slots is None:
                self.tx.run("delete_cards", wait)
            known = self._cards.rows.get(wait, ())
            for slot in (slots or ())[len(known) :]:
                self.tx.run("add_card", wait, part.slots[slot].seq)

    def _write_records(self, part: Part) -> None:
        for key, outcome in part.events.changed.items():
            if outcome is None:
                self.tx.run("delete_event", *key)
            else:
                self.tx.run("put_event", *key, outcome)
        for (namespace, key), fact in part.facts.changed.items():
            if fact is None:
                self.tx.run("delete_fact", namespace, key)
            else:
                self.tx.run("put_fact", namespace, key, fact.value, None if fact.until is None else to_us(fact.until))
        if part.forgets_expired:
            self.tx.run("forget_facts", self.tx.now)
            self._facts.clear()
        for spent in part.spent:
            add_spent(self.tx, spent)
        for row in part.audit:
            add_audit_row(self.tx, row)
        for seq in part.audit_removed:
            self.tx.run("delete_audit_row", seq)
        for key, raw, why in part.poison:
            self.tx.run("add_poison", *key, raw, why, self.tx.now)

    # --- indexes: rows that time or a free place makes due ------------------------------------

    def ready_turns(self, now: datetime, limit: int, home: str = "") -> Sequence[TurnId]:
        """Return queued turns that may run there, the longest waiting first."""
        return self._ids("ready_turns", to_us(now), COMMANDS_AT_ONCE, limit, home)

    def turns_at(self, home: str, limit: int) -> Sequence[TurnId]:
        """Return turns of a home that have not ended."""
        return self._ids("turns_of_home", home, limit)

    def homes_at_work(self) -> Sequence[str]:
        """Return the homes of turns that have not ended."""
        return self._ids("homes_at_work")

    def held_turns(self, lapsed: datetime | None = None) -> Sequence[tuple[TurnId, NodeId]]:
        """Return leased turns with their holders."""
        if lapsed is None:
            return [(turn, node) for turn, node in self.tx.run("held_turns")]
        return [(turn, node) for turn, node in self.tx.run("lapsed_turns", to_us(lapsed), AT_ONCE)]

    def gathering_turns(self) -> Sequence[TurnId]:
        """Return new turns that wait, or waited, for the rest of a message."""
        return self._ids("gathering_turns")

    def orphans(self, limit: int) -> Sequence[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        return self._ids("orphans", limit)

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> Sequence[WaitId]:
        """Return open waits past their time, and decided ones that nobody uses since before then."""
        return self._ids("expired_waits", to_us(now), to_us(unused_since), limit)

    def due_timers(self, now: datetime, limit: int) -> Sequence[WaitId]:
        """Return open timers past their time."""
        return self._ids("due_timers", to_us(now), limit)

    def asked_waits(self) -> Sequence[WaitId]:
        """Return all open approvals."""
        return self._ids("asked_waits")

    def open_questions(self) -> Sequence[WaitId]:
        """Return all open questions."""
        return self._ids("open_questions")

    def claimable_slots(
        self, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey] = ()
    ) -> Sequence[SlotId]:
        """Return slots that may be sent, refusals last."""
        return claimable(self.tx, channels, to_us(now), limit, without)

    def sending_slots(self, lapsed: datetime | None = None) -> Sequence[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders."""
        if lapsed is None:
            return [(slot, node) for slot, node in self.tx.run("sending_slots")]
        long_ago = [to_us(lapsed - at_most) for at_most in (SENDING_AT_MOST, FILE_SENDING_AT_MOST)]
        return [(slot, node) for slot, node in self.tx.run("lapsed_slots", *long_ago, AT_ONCE)]

    def expired_grants(self, now: datetime, limit: int) -> Sequence[GrantId]:
        """Return grants past their time that did not end yet."""
        return self._ids("expired_grants", to_us(now), limit)

    def ended_turns(self, session: SessionId, last: int, passed: int, limit: int) -> Sequence[TurnId]:
        """Return ended turns of a session by epoch and end, but for the last ones and the first ones."""
        key = session, passed, limit
        return self._ids("old_turns_but", *key, last) if last else self._ids("old_turns", *key)

    def loose_rows(self, session: SessionId, before: int, limit: int) -> tuple[Sequence[InboundId], Sequence[SlotId]]:
        """Return the oldest messages and slots of a session that belong to no turn."""
        key = session, before, limit
        return self._ids("loose_messages", *key), self._ids("loose_slots", *key)

    def grants_from(self, wait: WaitId) -> Sequence[GrantId]:
        """Return the grants that this approval gave."""
        return self._ids("grants_from", wait)

    def doubtful_slots(self, now: datetime, limit: int) -> Sequence[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        return self._ids("slots_again", to_us(now), limit)

    def _ids(self, name: str, *values: Any) -> list[Any]:
        return [id_ for (id_,) in self.tx.run(name, *values)]


def _step_size(row: StepRow) -> int:
    answer, result = row.step.answer, row.step.result
    return (0 if answer is None else len(answer.text)) + (0 if result is None else len(result.text))


def _slot(found: Columns) -> SlotRow:
    seq, ord_, rev, early, node, sending_since, shown_by, again_at, again_over, why_dead = found[SLOT:]
    return SlotRow(
        slot=slot_of(found[:SLOT]),
        seq=seq,
        ord=ord_,
        rev=rev,
        early=Early(early),
        node=node,
        sending_since=moment(sending_since),
        shown_by=shown_by,
        again_at=moment(again_at),
        again_over=again_over,
        why_dead=why_dead,
    )


def _fact(found: Columns) -> Fact:
    value, until = found
    return Fact(value, moment(until))
