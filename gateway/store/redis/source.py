"""Rows of one batch of transitions: those that were loaded, and what the batch changed so far.

Reading a row that is not loaded raises `Missing`, and so does asking an index. A row counts as read with its stamp: the
batch is written only when all of them are still stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from gateway.domain.audit import AuditHead
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import REFUSALS_AT_ONCE, SlotKind, SlotState
from gateway.domain.steps import StepState
from gateway.domain.turns import ENDED, TurnKind, TurnState
from gateway.policy.audit import beginning_of
from gateway.store.codec import EPOCH, dump_conversation, dump_json, to_us
from gateway.store.constants import COMMANDS_AT_ONCE, FILE_SENDING_AT_MOST, HELD, SENDING_AT_MOST
from gateway.store.kernel.part import AccountKey, EventKey, FactKey, Missing, StepKey
from gateway.store.kernel.rows import Fact, MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow
from gateway.store.redis import indexes
from gateway.store.redis.rows import (
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
)

T = TypeVar("T")
Question: TypeAlias = tuple[str | int, ...]
"""Command on a sorted set: its name, the set, and the rest."""
HEAD = "last"
"""Key of the one row that says where the audit ends."""
UNSENT = frozenset({SlotState.DUE, SlotState.SENDING})
LANES_PAGE = 1000
"""Unsent slots of a channel that a claim looks at together, without their rows."""
PAGE = 100
"""Ready turns that are looked at together."""


class NotFirst(Exception):
    """An index was asked behind another transition of the batch, whose changes no index has yet."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A row as it is stored."""

    row: Any
    """None: there is none."""
    stamp: str = ""
    """How its value begins; empty when there is none."""
    size: int = 0
    """Characters of its value."""


@dataclass(slots=True)
class Batch:
    """Rows, answers and changes of one batch of transitions."""

    kept: dict[str, Stored]
    """Rows of earlier batches; another node may have changed them since."""
    loaded: dict[str, Stored] = field(default_factory=dict[str, Stored])
    answers: dict[Question, Any] = field(default_factory=dict[Question, Any])
    read: dict[str, str] = field(default_factory=dict[str, str])
    """Stamps of the rows that were read."""
    changed: dict[str, Any] = field(default_factory=dict[str, Any])
    """Changed rows; None for a removed one."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Characters of the changed rows, once they are written."""
    loads: int = 0
    """Times that rows were loaded. Rows of one load are of one moment."""

    def known(self, key: str) -> Stored | None:
        """Return a row as it was stored when it was read, if it is loaded."""
        return self.loaded.get(key) or self.kept.get(key)

    def get(self, key: str) -> Any:
        """Return a row that is loaded; None when there is none."""
        if key in self.changed:
            return self.changed[key]
        stored = self.known(key)
        assert stored is not None, "it is loaded"
        self.read[key] = stored.stamp
        return stored.row

    def before(self, key: str) -> Any:
        """Return the stored row that a change replaces. A row that nobody read is new, and must be so."""
        stored = self.known(key) or Stored(None)
        self.read.setdefault(key, stored.stamp)
        return stored.row

    def trust_ended(self, before: Collection[str]) -> None:
        """Do not compare rows that were read since `before` and that nobody changes any more: a history has many."""
        for key in [key for key in self.read if key not in before]:
            stored = self.known(key)
            if key not in self.changed and stored is not None and _has_ended(stored.row):
                del self.read[key]

    @property
    def is_of_one_moment(self) -> bool:
        """Return whether no other node can have come between the reads."""
        return self.loads <= 1 and all(key in self.loaded for key in self.read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Conversations and slots that a claim passes by without a look at their rows."""

    busy: frozenset[str]
    """Conversations where something is being sent."""
    later: frozenset[str]
    """Slots that are due later."""
    accounts: tuple[str, ...]
    """How conversations begin whose account is left out."""

    def is_open(self, lane: str, slots: Sequence[SlotId]) -> bool:
        """Return whether the next of these slots of a conversation may be due."""
        return lane not in self.busy and not lane.startswith(self.accounts) and not self.later.issuperset(slots)


class RedisSource:
    """`kernel.part.Source` over a batch, and the reads of sorted sets that queries use."""

    def __init__(self, batch: Batch, load: Callable[[Missing], None]) -> None:
        """Take the batch, and what loads missing rows for a transition that missed many already."""
        self.batch = batch
        self._load = load
        self.misses = 0
        """Times that the running transition may still raise `Missing`: then its rows are loaded at once."""
        self.may_ask = True
        """False behind a transition that changed something."""

    # --- rows -------------------------------------------------------------------------------

    def row(self, kind: Kind[Any, T], key: Any) -> T | None:
        """Return a row of any kind."""
        return self.named([kind.key(key)])[0]

    def rows(self, kind: Kind[Any, T], keys: Iterable[Any]) -> list[T]:
        """Return the stored ones of some rows. All missing ones are loaded together."""
        return [row for row in self.named([kind.key(key) for key in keys]) if row is not None]

    def named(self, keys: Sequence[str]) -> list[Any]:
        """Return rows by their keys in Redis. All missing ones are loaded together."""
        batch = self.batch
        missing = [key for key in keys if key not in batch.changed and batch.known(key) is None]
        if missing:
            self._miss(Missing("row", *missing))
        return [batch.get(key) for key in keys]

    def _miss(self, missing: Missing) -> None:
        if self.misses > 0:
            raise missing
        self._load(missing)

    def session_row(self, key: SessionId) -> SessionRow | None:
        """Return a session."""
        return self.row(SESSION, key)

    def turn_row(self, key: TurnId) -> TurnRow | None:
        """Return a turn."""
        return self.row(TURN, key)

    def message_row(self, key: InboundId) -> MessageRow | None:
        """Return a message."""
        return self.row(MESSAGE, key)

    def step_row(self, key: StepKey) -> StepRow | None:
        """Return a step."""
        return self.row(STEP, key)

    def wait_row(self, key: WaitId) -> WaitRow | None:
        """Return a wait."""
        return self.row(WAIT, key)

    def slot_row(self, key: SlotId) -> SlotRow | None:
        """Return a slot."""
        return self.row(SLOT, key)

    def cards_row(self, key: WaitId) -> tuple[SlotId, ...] | None:
        """Return the cards that show a wait."""
        return self.row(CARDS, key)

    def event_row(self, key: EventKey) -> str | None:
        """Return the outcome of an event."""
        return self.row(EVENT, key)

    def fact_row(self, key: FactKey) -> Fact | None:
        """Return a fact."""
        return self.row(FACT, key)

    def grant_row(self, key: GrantId) -> Grant | None:
        """Return a grant."""
        return self.row(GRANT, key)

    def fact_rows(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace, by key."""
        keys = self.members(indexes.facts_of(namespace))
        found = zip(keys, self.named(keys), strict=True)
        return sorted((indexes.fact_key(key)[1], fact) for key, fact in found if fact is not None)

    def expired_facts(self, now: datetime, limit: int) -> list[str]:
        """Return the keys in Redis of facts past their time."""
        keys = self.until(indexes.EXPIRING, to_us(now), limit)
        found = zip(keys, self.named(keys), strict=True)
        return [key for key, fact in found if fact is not None and fact.until is not None and fact.until <= now]

    def is_whole(self, turn: TurnId) -> bool:
        """Return True: a value is written and read as a whole."""
        del turn
        return True

    def last_audit(self) -> AuditHead:
        """Return the end of the audit."""
        return self.row(AUDIT_HEAD, HEAD) or AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))

    # --- sorted sets ------------------------------------------------------------------------

    def ask(self, *question: str | int) -> Any:
        """Return the answer to a read of a sorted set. Raises `Missing`, and `NotFirst` behind other changes."""
        if not self.may_ask:
            raise NotFirst
        return self._answer(question)

    def candidates(self, name: str, first: int = 0, last: int = -1) -> list[str]:
        """Return members by score, also behind other changes of the batch, which may have removed or added some.

        For claims: they look at each row, and what was added is announced after the commit. So many share a batch.
        """
        return self._answer(("ZRANGE", name, first, last))

    def _ask_together(self, questions: Sequence[Question]) -> None:
        """Get the answers to several questions in one round trip."""
        if unanswered := [one for one in questions if one not in self.batch.answers]:
            self._miss(Missing("answers", *unanswered))

    def _answer(self, question: Question) -> Any:
        if question not in self.batch.answers:
            self._miss(Missing("answer", *question))
        return self.batch.answers[question]

    def members(self, name: str, first: int = 0, last: int = -1) -> list[str]:
        """Return members by score."""
        return self.ask("ZRANGE", name, first, last)

    def until(self, name: str, score: int, limit: int) -> list[str]:
        """Return the first members with at most this score."""
        return self.ask("ZRANGEBYSCORE", name, "-inf", score, "LIMIT", 0, limit)

    def size(self, name: str) -> int:
        """Return the number of members."""
        return self.ask("ZCARD", name)

    # --- turns that are due -----------------------------------------------------------------

    def ready_turns(self, now: datetime, limit: int) -> list[TurnId]:
        """Return queued turns that may run, the longest waiting first."""
        found: list[TurnId] = []
        first, is_last = 0, False
        while len(found) < limit and not is_last:
            page = self.candidates(indexes.READY, first, first + PAGE - 1)
            is_last = len(page) < PAGE
            rows = self.rows(TURN, page)
            sessions = self.rows(SESSION, {row.turn.session for row in rows})
            held = {row.session.id: row.held_commands for row in sessions}
            for row in rows:
                turn, gathers = row.turn, row.gathers_until is not None and row.gathers_until > now
                has_room = turn.kind is TurnKind.MODEL or held[turn.session] < COMMANDS_AT_ONCE
                if turn.state is TurnState.QUEUED and row.head and not gathers and has_room:
                    held[turn.session] += turn.kind is TurnKind.COMMAND
                    found.append(turn.id)
            first += PAGE
        return found[:limit]

    def held_turns(self, lapsed: datetime | None = None) -> list[tuple[TurnId, NodeId]]:
        """Return leased turns in the order in which they return to the queue."""
        name = indexes.HELD_TURNS
        turns = self.members(name) if lapsed is None else self.ask("ZRANGEBYSCORE", name, "-inf", to_us(lapsed))
        rows = [row for row in self.rows(TURN, turns) if row.turn.state in HELD]
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
        waits = {row.wait.id: row.wait.turn for row in self.rows(WAIT, [row.parent_wait for row in waited])}
        tasks = [row.task for row in waited]
        turns = {row.turn.id: row.turn.state for row in self.rows(TURN, [*waits.values(), *tasks])}
        return [
            row.session.id
            for row in waited
            if row.task is not None
            and row.parent_wait is not None
            and turns[waits[row.parent_wait]] in ENDED
            and turns[row.task] is not TurnState.STOPPING
        ][:limit]

    # --- waits that are due -----------------------------------------------------------------

    def expired_waits(self, now: datetime, unused_since: datetime, limit: int) -> list[WaitId]:
        """Return open waits past their time, timers excepted, and decided ones that nobody uses since before then."""
        open_ = self.rows(WAIT, self.until(indexes.OPEN, to_us(now), limit))
        decided = self.rows(WAIT, self.until(indexes.APPROVED, to_us(unused_since) - 1, limit))
        turns = {row.turn.id: row.turn.state for row in self.rows(TURN, {row.wait.turn for row in decided})}
        unused = [row for row in decided if turns[row.wait.turn] not in HELD]
        return [row.wait.id for row in sorted([*open_, *unused], key=lambda row: row.ord)][:limit]

    def due_timers(self, now: datetime, limit: int) -> list[WaitId]:
        """Return open timers past their time."""
        rows = self.rows(WAIT, self.until(indexes.TIMERS, to_us(now), limit))
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
        due_later = ("ZRANGEBYSCORE", indexes.DUE, f"({to_us(now)}", "+inf")
        first = [("ZRANGE", indexes.unsent_on(channel), 0, LANES_PAGE - 1) for channel in channels]
        self._ask_together([("ZRANGE", indexes.SENDING, 0, -1), due_later, *first])
        sending = [row for row in self.rows(SLOT, self.candidates(indexes.SENDING)) if row.sending_since is not None]
        closed = Closed(
            busy=frozenset(dump_conversation(row.slot.conversation) for row in sending),
            later=frozenset(self._answer(due_later)),
            accounts=tuple(f"{dump_json(list(one))[:-1]}," for one in without),
        )
        found: list[SlotRow] = []
        refusals: list[SlotRow] = []
        for channel in channels:
            due = [row for row in self._heads(channel, closed, limit) if row.slot.due_at <= now]
            found += [row for row in due if row.slot.kind is not SlotKind.REFUSAL]
            sent = sum(
                row.slot.kind is SlotKind.REFUSAL and row.slot.conversation.channel == channel for row in sending
            )
            waiting = sorted((row for row in due if row.slot.kind is SlotKind.REFUSAL), key=_seq)
            refusals += waiting[: max(0, REFUSALS_AT_ONCE - sent)]
        return [row.slot.id for row in [*sorted(found, key=_seq), *refusals][:limit]]

    def _heads(self, channel: str, closed: Closed, limit: int) -> list[SlotRow]:
        """Return the next slots of conversations where none is being sent, of so many at least if there are."""
        lanes, heads, lacking = self._lanes(channel, closed), list[SlotRow](), limit
        while lacking > 0 and (some := list(islice(lanes, lacking))):
            heads += self._first_of(some)
            lacking = limit - sum(row.slot.kind is not SlotKind.REFUSAL for row in heads)
        return heads

    def _lanes(self, channel: str, closed: Closed) -> Iterator[list[SlotId]]:
        """Yield the slots of each open conversation that may be next, by age: the first but cards, and cards before it.

        Of refusals no more than may be sent at once.
        """
        lanes: dict[str, list[SlotId]] = {}
        decided, refusals, first, is_last = set[str](), 0, 0, False
        while not is_last:
            page = self.candidates(indexes.unsent_on(channel), first, first + LANES_PAGE - 1)
            first, is_last = first + LANES_PAGE, len(page) < LANES_PAGE
            for slot, kind, lane in map(indexes.lane_of, page):
                if lane in decided:
                    continue
                lanes.setdefault(lane, []).append(slot)
                if kind is SlotKind.CARD:
                    continue
                decided.add(lane)
                slots = lanes.pop(lane)
                if closed.is_open(lane, slots) and (kind is not SlotKind.REFUSAL or refusals < REFUSALS_AT_ONCE):
                    refusals += kind is SlotKind.REFUSAL
                    yield slots
        yield from (slots for lane, slots in lanes.items() if closed.is_open(lane, slots))

    def _first_of(self, lanes: Sequence[Sequence[SlotId]]) -> list[SlotRow]:
        """Return the slot of each conversation that is next: cards of sessions other than a main one come last."""
        rows = {row.slot.id: row for row in self.rows(SLOT, [slot for lane in lanes for slot in lane])}
        cards = {row.slot.session for row in rows.values() if row.slot.kind is SlotKind.CARD}
        sessions = self.rows(SESSION, [one for one in cards if one is not None])
        others = {row.session.id for row in sessions if row.session.root_kind is not SessionKind.MAIN}

        def place(row: SlotRow) -> tuple[bool, int]:
            return row.slot.kind is SlotKind.CARD and row.slot.session in others, row.seq

        unsent = ([rows[slot] for slot in lane if slot in rows and rows[slot].slot.state in UNSENT] for lane in lanes)
        idle = (lane for lane in unsent if lane and all(row.sending_since is None for row in lane))
        return [min(lane, key=place) for lane in idle]

    def sending_slots(self, lapsed: datetime | None = None) -> list[tuple[SlotId, NodeId]]:
        """Return slots being sent with their senders; with `lapsed` only those that take too long."""
        rows = self.rows(SLOT, self.members(indexes.SENDING))
        late = [row for row in rows if lapsed is None or _takes_too_long(row, lapsed)]
        return [(row.slot.id, row.node) for row in late if row.node is not None]

    def doubtful_slots(self, now: datetime, limit: int) -> list[SlotId]:
        """Return slots that an edit settled by now may have overwritten."""
        rows = self.rows(SLOT, self.until(indexes.AGAIN, to_us(now), limit))
        return [row.slot.id for row in sorted(rows, key=_seq)]

    def expired_grants(self, now: datetime, limit: int) -> list[GrantId]:
        """Return grants past their time that did not end yet."""
        return [GrantId(grant) for grant in self.until(indexes.GRANTS, to_us(now), limit)]


def _has_ended(row: object) -> bool:
    match row:
        case TurnRow():
            return row.turn.state in ENDED
        case StepRow():
            return row.step.state is StepState.FINISHED
        case MessageRow():
            return row.received.given is not None
        case _:
            return False


_seq: Callable[[SlotRow], int] = attrgetter("seq")


def _takes_too_long(row: SlotRow, now: datetime) -> bool:
    at_most = FILE_SENDING_AT_MOST if row.slot.kind is SlotKind.FILE else SENDING_AT_MOST
    return row.sending_since is not None and now - row.sending_since > at_most
