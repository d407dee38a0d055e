"""Rows and indexes that a transition on Redis may ask for, over one batch.

Reading a row that is not loaded raises `Missing`, and so does asking an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import merge
from operator import attrgetter
from typing import Any, TypeVar

from gateway.domain.audit import AuditHead, AuditRow
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.turns import COMMANDS_AT_ONCE, ENDED, TurnKind, TurnState
from gateway.policy.audit import beginning_of
from gateway.store.codec import EPOCH, to_us
from gateway.store.constants import HELD
from gateway.store.kernel.budgets import RESERVATIONS
from gateway.store.kernel.part import AccountKey, EventKey, FactKey, Missing, StepKey
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
from gateway.store.redis import indexes, next_slots
from gateway.store.redis.batch import ABSENT, Batch, History, Question
from gateway.store.redis.rows import (
    AUDIT,
    AUDIT_HEAD,
    CARDS,
    EVENT,
    FACT,
    GRANT,
    MESSAGE,
    SESSION,
    SLOT,
    STEP,
    TURN,
    WAIT,
    Kind,
    named_by,
)

K = TypeVar("K")
T = TypeVar("T")
HEAD = "last"
"""Key of the one row that says where the audit ends."""
PAGE, LOADED_AT_ONCE = 100, 32
"""Ready turns, or places of old rows, of one read of an index; and ready turns of one load of their rows."""
_MAY_BE_LOOSE = (f"{MESSAGE.name}:", f"{SLOT.name}:")
"""Key prefixes of rows that may belong to no turn."""


class NotFirst(Exception):
    """An index was asked behind another transition of the batch, whose changes no index has yet."""


class SeveralMissing(Missing):
    """Several acts of one transition miss something each: all of it is loaded together."""

    def __init__(self, each: Sequence[Missing]) -> None:
        """Take the missing rows of each."""
        super().__init__("several")
        self.each = each


class RedisSource:
    """`kernel.part.Source` over a batch, and the reads of sorted sets that queries use."""

    def __init__(self, batch: Batch, load: Callable[[Missing], None], *, guesses: bool = False) -> None:
        """Take the batch, and what loads missing rows for a transition that missed many already.

        `guesses`: take rows for absent that mostly are, such as the one of a new event.
        """
        self.batch = batch
        self._load, self._guesses = load, guesses
        self.misses = 0
        """Times that the running transition may still raise `Missing`: then its rows are loaded at once."""
        self.may_ask = True
        self.named_the_time = False
        """True if a question named the time: it is the same question only at the same time."""
        """False behind a transition that changed something."""
        self.only_new = False
        """True for a claim that runs on the work of its own batch: no index is asked then, and nothing is loaded."""

    def each(self, act: Callable[[K], T], keys: Iterable[K]) -> list[T]:
        """Do something for each key. What they miss is loaded together, and not one after the other."""
        done, missed = list[T](), list[Missing]()
        for key in keys:
            try:
                done.append(act(key))
            except Missing as missing:
                missed.append(missing)
        if missed:
            raise SeveralMissing(missed)
        return done

    # --- rows -------------------------------------------------------------------------------

    def row(self, kind: Kind[Any, T], key: Any) -> T | None:
        """Return a row of any kind."""
        return self.named([kind.key(key)])[0]

    def rows(self, kind: Kind[Any, T], keys: Iterable[Any]) -> list[T]:
        """Return the stored and readable ones of some rows. All missing ones are loaded together."""
        return [row for row in self.readable([kind.key(key) for key in keys]) if row is not None]

    def bare_rows(self, kind: Kind[Any, T], keys: Iterable[Any]) -> list[T]:
        """Return the stored ones of some rows, of damaged ones what can be read, for sweeps and claims."""
        names = [kind.key(key) for key in keys]
        self.need(names)
        return [row for row in map(self.batch.get_bare, names) if row is not None]

    def _bare(self, kind: Kind[Any, T], key: Any) -> T | None:
        """Return a row for a transition, and of a damaged one what can be read. Raises `RowDamaged` without that."""
        name = kind.key(key)
        self.need([name])
        row = self.batch.get_bare(name)
        return self.batch.get(name) if row is None else row

    def named(self, keys: Sequence[str]) -> list[Any]:
        """Return rows by their keys in Redis. All missing ones are loaded together.

        Raises `RowDamaged` for a damaged one.
        """
        self.need(keys)
        return [self.batch.get(key) for key in keys]

    def readable(self, keys: Sequence[str]) -> list[Any]:
        """Return rows like `named`, for lists and sweeps: None for a damaged one too."""
        self.need(keys)
        return [self.batch.get_readable(key) for key in keys]

    def need(self, keys: Sequence[str]) -> None:
        """Have rows at hand, without reading them."""
        missing = [key for key in keys if not self.batch.is_known(key)]
        if missing:
            self._miss(Missing("row", *missing))

    def _new(self, kind: Kind[Any, T], key: Any) -> T | None:
        """Return a row that mostly does not exist."""
        if self._guesses:
            self.batch.take_for_absent(kind.key(key))
        return self.row(kind, key)

    def _miss(self, missing: Missing) -> None:
        if self.misses > 0 or self.only_new:
            raise missing
        self._load(missing)

    def session_row(self, key: SessionId) -> SessionRow | None:
        """Return a session."""
        return self.row(SESSION, key)

    def turn_row(self, key: TurnId) -> TurnRow | None:
        """Return a turn."""
        return self._bare(TURN, key)

    def message_row(self, key: InboundId) -> MessageRow | None:
        """Return a message."""
        return self._bare(MESSAGE, key)

    def step_row(self, key: StepKey) -> StepRow | None:
        """Return a step."""
        return self._bare(STEP, key)

    def wait_row(self, key: WaitId) -> WaitRow | None:
        """Return a wait."""
        return self._bare(WAIT, key)

    def slot_row(self, key: SlotId) -> SlotRow | None:
        """Return a slot. A turn asks for the one of its answer, which mostly is new."""
        return self._new(SLOT, key)

    def cards_row(self, key: WaitId) -> tuple[SlotId, ...] | None:
        """Return the cards that show a wait."""
        return self.row(CARDS, key)

    def event_row(self, key: EventKey) -> str | None:
        """Return the outcome of an event."""
        return self._new(EVENT, key)

    def fact_row(self, key: FactKey) -> Fact | None:
        """Return a fact. A turn asks for its reservation, which there is only with budgets."""
        return self._new(FACT, key) if key[0] == RESERVATIONS else self.row(FACT, key)

    def grant_row(self, key: GrantId) -> Grant | None:
        """Return a grant."""
        return self.row(GRANT, key)

    def fact_rows(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace, by key."""
        keys = self.members(indexes.facts_of(namespace))
        found = zip(keys, self.readable(keys), strict=True)
        return sorted((indexes.fact_key(key)[1], fact) for key, fact in found if fact is not None)

    def expired_facts(self, now: datetime, limit: int) -> list[str]:
        """Return the keys in Redis of facts past their time."""
        keys = self.until(indexes.EXPIRING, to_us(now), limit)
        found = zip(keys, self.readable(keys), strict=True)
        return [key for key, fact in found if fact is not None and fact.until is not None and fact.until <= now]

    def is_whole(self, turn: TurnId) -> bool:
        """Return False for a turn with a damaged row among those that were loaded."""
        damaged = self.batch.damaged
        row = self.turn_row(turn) if damaged else None
        return row is None or damaged.isdisjoint([TURN.key(turn), *named_by(TURN.key(turn), row)])

    def last_audit(self) -> AuditHead:
        """Return the end of the audit."""
        return self.row(AUDIT_HEAD, HEAD) or AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))

    def audit_between(self, first: int, last: int) -> Sequence[AuditRow]:
        """Return rows of the audit by their numbers."""
        return [row for row in self.named([AUDIT.key(seq) for seq in range(first, last + 1)]) if row is not None]

    # --- sorted sets ------------------------------------------------------------------------

    def ask(self, *question: str | int) -> Any:
        """Return the answer to a read of a sorted set. Raises `Missing`, and `NotFirst` behind other changes."""
        if not self.may_ask:
            raise NotFirst
        return self.answer_to(question)

    def candidates(self, name: str, first: int = 0, last: int = -1) -> list[str]:
        """Return members by score, also behind other changes of the batch, which may have removed or added some.

        For claims: they read each row, and additions are announced after the commit. So many share a batch.
        """
        return self.answer_to(("ZRANGE", name, first, last))

    def ask_together(self, questions: Sequence[Question]) -> None:
        """Get the answers to several questions in one round trip."""
        if unanswered := [one for one in questions if one not in self.batch.answers]:
            self._miss(Missing("answers", *unanswered))

    def answer_to(self, question: Question) -> Any:
        """Return the answer to a read of a sorted set, also behind other changes of the batch. Raises `Missing`."""
        if question not in self.batch.answers:
            self._miss(Missing("answer", *question))
        return self.batch.answers[question]

    def members(self, name: str, first: int = 0, last: int = -1) -> list[str]:
        """Return members by score."""
        return self.ask("ZRANGE", name, first, last)

    def until(self, name: str, score: int, limit: int) -> list[str]:
        """Return the first members with at most this score."""
        self.named_the_time = True
        return self.ask("ZRANGEBYSCORE", name, "-inf", score, "LIMIT", 0, limit)

    def size(self, name: str) -> int:
        """Return the number of members."""
        return self.ask("ZCARD", name)

    def last_ended(self, session: SessionId, epoch: int, after: int, limit: int) -> list[str]:
        """Return the last turns of a history that ended, those of this batch too. The session was read before."""
        batch, key = self.batch, SESSION.key(session)
        asked = History(epoch=epoch, after=after, limit=limit, turns=())
        known, stored = batch.histories.get(key) or batch.kept.histories.get(key), batch.known(key)
        if stored is not None and stored.row is None:
            known = asked  # nothing has ended yet in a new session
        elif known is None or not known.is_of(asked) or not self._still_holds(key, known):
            found = self._stored_ended(session, asked)
            known = batch.histories[key] = replace(asked, turns=tuple(found))
        new = [row.turn.id for row in batch.ended_in(session, epoch)]
        return [*known.turns, *new][-limit:]

    def _still_holds(self, key: str, known: History) -> bool:
        """Return whether nothing of a session has ended since a kept history of it."""
        if self.batch.histories.get(key) is known:
            return True
        stored = self.batch.known(key)
        gone = (self.batch.known(TURN.key(TurnId(turn))) == ABSENT for turn in known.turns)
        return stored is not None and stored.stamp == known.stamp and not any(gone)

    def _stored_ended(self, session: SessionId, asked: History) -> list[str]:
        name = indexes.ended_in(session, asked.epoch)
        return self.answer_to(("ZREVRANGEBYSCORE", name, "+inf", f"({asked.after}", "LIMIT", 0, asked.limit))[::-1]

    # --- turns that are due -----------------------------------------------------------------

    def ready_turns(self, now: datetime, limit: int, home: str = "") -> list[TurnId]:
        """Return queued turns that may run there, the longest waiting first. Rows behind the last one are not read."""
        found: list[TurnId] = []
        held: dict[SessionId, int] = {}
        for row in self._queued(home) if limit > 0 else ():
            turn, gathers = row.turn, row.gathers_until is not None and row.gathers_until > now
            if turn.state is not TurnState.QUEUED or not row.head or gathers or not is_for(row, home):
                continue
            if turn.kind is TurnKind.COMMAND:
                session = self.session_row(turn.session)
                held.setdefault(turn.session, 0 if session is None else session.held_commands)
                if held[turn.session] >= COMMANDS_AT_ONCE:
                    continue
                held[turn.session] += 1
            found.append(turn.id)
            if len(found) == limit:
                break
        return found

    def _queued(self, home: str) -> Iterator[TurnRow]:
        """Yield turns that may be ready, the longest waiting first: those of no home, and those of this or any."""
        if self.only_new:
            rows = [row for row in self.batch.changed.values() if isinstance(row, TurnRow)]
            return iter(sorted(rows, key=_queued_rev))
        names = (indexes.READY, indexes.ready_at(home) if home else indexes.READY_SOMEWHERE)
        self.ask_together([("ZRANGE", name, 0, PAGE - 1) for name in names])
        self.need([TURN.key(TurnId(turn)) for name in names for turn in self._first_of_queue(name)])
        return merge(*(self._queued_in(name) for name in names), key=_queued_rev)

    def _first_of_queue(self, name: str) -> list[str]:
        return self.candidates(name, 0, PAGE - 1)[:LOADED_AT_ONCE]

    def _queued_in(self, name: str) -> Iterator[TurnRow]:
        """Yield turns of one set, the longest waiting first."""
        first, is_last = 0, False
        while not is_last:
            page = self.candidates(name, first, first + PAGE - 1)
            first, is_last = first + PAGE, len(page) < PAGE
            for start in range(0, len(page), LOADED_AT_ONCE):
                some = page[start : start + LOADED_AT_ONCE]
                self.need([TURN.key(TurnId(turn)) for turn in some])
                yield from (row for turn in some for row in self.bare_rows(TURN, [turn]))

    def turns_at(self, home: str, limit: int) -> list[TurnId]:
        """Return turns of a home that have not ended."""
        first = indexes.at_home(home)
        found = self._homed(f"[{first}", f"({first}\x7f", limit)
        return [TurnId(indexes.home_in(member)[1]) for member in found]

    def homes_at_work(self) -> list[str]:
        """Return the homes of turns that have not ended: one question for each, however many turns there are."""
        homes, after = list[str](), "-"
        while found := self._homed(after, "+", 1):
            homes.append(indexes.home_in(found[0])[0])
            after = f"({indexes.at_home(homes[-1])}\x7f"
        return homes

    def _homed(self, first: str, last: str, limit: int) -> list[str]:
        return self.ask("ZRANGEBYLEX", indexes.HOMED, first, last, "LIMIT", 0, limit)

    def leaves_turns(self, now: datetime) -> bool:
        """Return whether another claim may take a turn because of this batch. Called while `only_new`."""
        changed = [row for row in self.batch.changed.values() if isinstance(row, TurnRow)]
        if any(row.turn.kind is TurnKind.COMMAND and row.turn.state not in HELD for row in changed):
            return True  # its place may be that of a command that waits
        return bool(self.ready_turns(now, 1))

    def held_turns(self, lapsed: datetime | None = None) -> list[tuple[TurnId, NodeId]]:
        """Return leased turns in the order in which they return to the queue."""
        name = indexes.HELD_TURNS
        turns = self.members(name) if lapsed is None else self.ask("ZRANGEBYSCORE", name, "-inf", to_us(lapsed))
        rows = [row for row in self.bare_rows(TURN, turns) if row.turn.state in HELD]
        rows.sort(key=lambda row: (row.held_since or row.queued_at, row.queued_rev))
        late = [row for row in rows if lapsed is None or (row.lease_until is not None and row.lease_until <= lapsed)]
        return [(row.turn.id, row.node) for row in late if row.node is not None]

    def gathering_turns(self) -> list[TurnId]:
        """Return queued turns that wait, or waited, for the rest of a message."""
        return [TurnId(turn) for turn in self.members(indexes.GATHERING)]

    def orphans(self, limit: int) -> list[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        live = self.rows(SESSION, self.members(indexes.LIVE_CHILDREN))
        waited = [row for row in live if row.live and row.task is not None and row.parent_wait is not None]
        waits = {row.wait.id: row.wait.turn for row in self.bare_rows(WAIT, [row.parent_wait for row in waited])}
        tasks = [row.task for row in waited]
        turns = {row.turn.id: row.turn.state for row in self.bare_rows(TURN, [*waits.values(), *tasks])}
        return [
            row.session.id
            for row in waited
            if row.task is not None
            and row.parent_wait is not None
            and row.parent_wait in waits
            and turns.get(waits[row.parent_wait]) in ENDED
            and turns.get(row.task) not in (None, TurnState.STOPPING)
        ][:limit]

    # --- what is old ------------------------------------------------------------------------

    def ended_turns(self, session: SessionId, last: int, passed: int, limit: int) -> list[TurnId]:
        """Return ended turns of a session by epoch and end, but for the last ones and the first ones."""
        row = self.session_row(session)
        names = [] if row is None else [indexes.ended_in(session, epoch) for epoch in range(row.session.epoch + 1)]
        self.ask_together([("ZCARD", name) for name in names])
        sizes = [self.size(name) for name in names]
        left, found = max(0, min(limit, sum(sizes) - last - passed)), list[TurnId]()
        for name, size in zip(names, sizes, strict=True):
            if passed < size and left > len(found):
                found += [TurnId(one) for one in self.members(name, passed, passed + left - len(found) - 1)]
            passed = max(0, passed - size)
        return found

    def loose_rows(self, session: SessionId, before: int, limit: int) -> tuple[list[InboundId], list[SlotId]]:
        """Return the oldest messages and slots of a session that belong to no turn."""
        name, messages, slots, at = indexes.by_place(session), list[InboundId](), list[SlotId](), 0
        while len(messages) < limit and len(slots) < limit:
            keys = self.ask("ZRANGEBYSCORE", name, "-inf", f"({before}", "LIMIT", at, PAGE)
            rows = self.readable([key for key in keys if key.startswith(_MAY_BE_LOOSE)])
            messages += [row.received.id for row in rows if isinstance(row, MessageRow) and row.received.turn is None]
            slots += [row.slot.id for row in rows if isinstance(row, SlotRow) and row.slot.turn is None]
            at += PAGE
            if len(keys) < PAGE:
                break
        return messages[:limit], slots[:limit]

    def grants_from(self, wait: WaitId) -> list[GrantId]:
        """Return the grants that this approval gave."""
        return [GrantId(one) for one in self.members(indexes.grants_from(wait))]

    # --- waits that are due -----------------------------------------------------------------

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> list[WaitId]:
        """Return open waits past their time, timers excepted, and decided ones that nobody uses since before then."""
        open_ = self.bare_rows(WAIT, self.until(indexes.OPEN, to_us(now), limit))
        decided = self.bare_rows(WAIT, self.until(indexes.APPROVED, to_us(unused_since) - 1, limit))
        turns = {row.turn.id: row.turn.state for row in self.bare_rows(TURN, {row.wait.turn for row in decided})}
        unused = [row for row in decided if turns.get(row.wait.turn) not in (None, *HELD)]
        return [row.wait.id for row in sorted([*open_, *unused], key=lambda row: row.ord)][:limit]

    def due_timers(self, now: datetime, limit: int) -> list[WaitId]:
        """Return open timers past their time."""
        rows = self.bare_rows(WAIT, self.until(indexes.TIMERS, to_us(now), limit))
        return [row.wait.id for row in sorted(rows, key=lambda row: row.ord)]

    def asked_waits(self) -> list[WaitId]:
        """Return all open approvals."""
        return [WaitId(wait) for wait in self.members(indexes.ASKED)]

    def open_questions(self) -> list[WaitId]:
        """Return all open questions."""
        return [WaitId(wait) for wait in self.members(indexes.QUESTIONS)]

    # --- slots that are due -----------------------------------------------------------------

    def claimable_slots(
        self, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey] = ()
    ) -> list[SlotId]:
        """Return the oldest due slot of each conversation where none is being sent; refusals last."""
        find = next_slots.new_slots if self.only_new else next_slots.claimable_slots
        return find(self, now, channels, limit, without)

    def sending_slots(self, lapsed: datetime | None = None) -> list[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders; with `lapsed` only those that take too long."""
        rows = self.rows(SLOT, self.members(indexes.SENDING))
        late = [row for row in rows if lapsed is None or takes_too_long(row, lapsed)]
        return [(row.slot.id, row.node) for row in late if row.node is not None]

    def doubtful_slots(self, now: datetime, limit: int) -> list[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        rows = self.rows(SLOT, self.until(indexes.AGAIN, to_us(now), limit))
        return [row.slot.id for row in sorted(rows, key=_seq)]

    def expired_grants(self, now: datetime, limit: int) -> list[GrantId]:
        """Return grants past their time that did not end yet."""
        return [GrantId(grant) for grant in self.until(indexes.GRANTS, to_us(now), limit)]


_seq: Callable[[SlotRow], int] = attrgetter("seq")
_queued_rev: Callable[[TurnRow], int] = attrgetter("queued_rev")
