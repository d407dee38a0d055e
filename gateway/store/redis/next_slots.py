"""Unsent slots in Redis that may be claimed: which one of each conversation is next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from gateway.domain.ids import SessionId, SlotId
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import REFUSALS_AT_ONCE, SlotKind
from gateway.store.codec import dump_conversation, dump_json, to_us
from gateway.store.kernel.part import AccountKey
from gateway.store.kernel.rows import SessionRow, SlotRow
from gateway.store.redis import indexes
from gateway.store.redis.batch import UNSENT, Batch, Question
from gateway.store.redis.rows import SESSION, SLOT, Kind

T = TypeVar("T")
LANES_PAGE = 1000
"""Unsent slots of a channel that a claim reads together, without their rows."""
_seq: Callable[[SlotRow], int] = attrgetter("seq")


class SlotReads(Protocol):
    """Reads of a claim, as `RedisSource` has them."""

    batch: Batch

    def rows(self, kind: Kind[Any, T], keys: Iterable[Any]) -> list[T]:
        """Return the stored and readable ones of some rows."""
        ...

    def need(self, keys: Sequence[str]) -> None:
        """Have rows at hand, without reading them."""
        ...

    def session_row(self, key: SessionId) -> SessionRow | None:
        """Return a session."""
        ...

    def candidates(self, name: str, first: int = 0, last: int = -1) -> list[str]:
        """Return members of a sorted set by score."""
        ...

    def ask_together(self, questions: Sequence[Question]) -> None:
        """Get the answers to several questions in one round trip."""
        ...

    def answer_to(self, question: Question) -> Any:
        """Return the answer to a read of a sorted set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Conversations and slots that a claim skips without reading their rows."""

    busy: frozenset[str]
    """Conversations where something is being sent."""
    later: frozenset[str]
    """Slots that are due later."""
    accounts: tuple[str, ...]
    """Prefixes of the conversations of accounts that are left out."""

    def is_open(self, lane: str, slots: Sequence[SlotId]) -> bool:
        """Return whether the next of these slots of a conversation may be due."""
        return lane not in self.busy and not lane.startswith(self.accounts) and not self.later.issuperset(slots)


def claimable_slots(
    source: SlotReads, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey]
) -> list[SlotId]:
    """Return the oldest due slot of each conversation where none is being sent; refusals last."""
    due_later = ("ZRANGEBYSCORE", indexes.DUE, f"({to_us(now)}", "+inf")
    first = [("ZRANGE", indexes.unsent_on(channel), 0, LANES_PAGE - 1) for channel in channels]
    source.ask_together([("ZRANGE", indexes.SENDING, 0, -1), due_later, *first])
    sending = [row for row in source.rows(SLOT, source.candidates(indexes.SENDING)) if row.sending_since is not None]
    closed = Closed(
        busy=frozenset(dump_conversation(row.slot.conversation) for row in sending),
        later=frozenset(source.answer_to(due_later)),
        accounts=tuple(f"{dump_json(list(one))[:-1]}," for one in without),
    )
    found: list[SlotRow] = []
    refusals: list[SlotRow] = []
    for channel in channels:
        due = [row for row in _heads(source, channel, closed, limit) if row.slot.due_at <= now]
        found += [row for row in due if row.slot.kind is not SlotKind.REFUSAL]
        sent = sum(row.slot.kind is SlotKind.REFUSAL and row.slot.conversation.channel == channel for row in sending)
        waiting = sorted((row for row in due if row.slot.kind is SlotKind.REFUSAL), key=_seq)
        refusals += waiting[: max(0, REFUSALS_AT_ONCE - sent)]
    return [row.slot.id for row in [*sorted(found, key=_seq), *refusals][:limit]]


def new_slots(
    source: SlotReads, now: datetime, channels: Sequence[str], limit: int, without: Sequence[AccountKey]
) -> list[SlotId]:
    """Return the next slots of conversations whose unsent ones this batch has all changed itself."""
    found: list[SlotRow] = []
    for where, rows in source.batch.unsent().items():
        row = min(rows, key=lambda row: _place(source, row), default=None)
        if row is None or row.slot.due_at > now or row.slot.kind is SlotKind.REFUSAL:
            continue
        place = row.slot.conversation
        is_ours = place.channel in channels and (place.channel, place.account) not in without
        if is_ours and all(one.sending_since is None for one in rows):
            source.batch.must_be_alone(where)
            found.append(row)
    return [row.slot.id for row in sorted(found, key=_seq)[:limit]]


def _place(source: SlotReads, row: SlotRow) -> tuple[bool, int]:
    """Return the place of a slot in its conversation: cards of sessions other than a main one come last."""
    session = row.slot.session
    if row.slot.kind is not SlotKind.CARD or session is None:
        return False, row.seq
    known = source.session_row(session)
    return known is not None and known.session.root_kind is not SessionKind.MAIN, row.seq


def _heads(source: SlotReads, channel: str, closed: Closed, limit: int) -> list[SlotRow]:
    """Return the next slots of conversations where none is being sent, of so many at least if there are."""
    lanes, heads, lacking = _lanes(source, channel, closed), list[SlotRow](), limit
    while lacking > 0 and (some := list(islice(lanes, lacking))):
        heads += _first_of(source, some)
        lacking = limit - sum(row.slot.kind is not SlotKind.REFUSAL for row in heads)
    return heads


def _lanes(source: SlotReads, channel: str, closed: Closed) -> Iterator[list[SlotId]]:
    """Yield the slots of each open conversation that may be next, by age: the first but cards, and cards before it.

    Of refusals no more than may be sent at once.
    """
    lanes: dict[str, list[SlotId]] = {}
    decided, refusals, first, is_last = set[str](), 0, 0, False
    while not is_last:
        page = source.candidates(indexes.unsent_on(channel), first, first + LANES_PAGE - 1)
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


def _first_of(source: SlotReads, lanes: Sequence[Sequence[SlotId]]) -> list[SlotRow]:
    """Return the slot of each conversation that is next: cards of sessions other than a main one come last."""
    rows = {row.slot.id: row for row in source.rows(SLOT, [slot for lane in lanes for slot in lane])}
    sessions = {row.slot.session for row in rows.values() if row.slot.kind is SlotKind.CARD}
    source.need([SESSION.key(one) for one in sessions if one is not None])
    unsent = ([rows[slot] for slot in lane if slot in rows and rows[slot].slot.state in UNSENT] for lane in lanes)
    idle = (lane for lane in unsent if lane and all(row.sending_since is None for row in lane))
    return [min(lane, key=lambda row: _place(source, row)) for lane in idle]


def leaves_slots(source: SlotReads, now: datetime) -> bool:
    """Return whether another claim may take a slot because of this batch."""
    for rows in source.batch.unsent().values():
        if all(row.sending_since is None for row in rows):
            was_sending = any(source.batch.was_sending(row) for row in rows)
            if was_sending or any(row.slot.due_at <= now for row in rows):
                return True
    return False
