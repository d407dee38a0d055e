"""Queries in SQLite: reads, each on one snapshot of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, TypeVar

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.grants import Grant
from gateway.domain.ids import SessionId, SlotId, TurnId, WaitId
from gateway.domain.messages import Received
from gateway.domain.sessions import Session
from gateway.domain.slots import REFUSALS_AT_ONCE, Slot
from gateway.domain.steps import Step
from gateway.domain.turns import Turn
from gateway.domain.views import ChildLine, Counts, Item, Row, RowPage, SessionLine, Spent, TurnView
from gateway.domain.waits import Wait
from gateway.errors import NotFound
from gateway.ports import Clock
from gateway.store.codec import dump_json, from_us
from gateway.store.decode import (
    UNREADABLE,
    Columns,
    audit_row_of,
    moment,
    readable,
    received_of,
    session_of,
    slot_of,
    spent_of,
    step_of,
    turn_of,
    wait_of,
)
from gateway.store.kernel.part import AccountKey, FactKey
from gateway.store.kernel.retention import REMOVED, removed_in
from gateway.store.kernel.rows import Fact, held_for
from gateway.store.kernel_store import KernelStore
from gateway.store.sqlite import children, grants, records
from gateway.store.sqlite.turn_cache import TurnCache
from gateway.store.sqlite.tx import ReadTx
from gateway.store.sqlite.writer import ReaderPool

T = TypeVar("T")

NEWEST = (1 << 63) - 1

_ITEMS: Mapping[str, tuple[str, Callable[[tuple[Any, ...]], Item]]] = {
    "turn": ("turns_at", turn_of),
    "message": ("messages_at", received_of),
    "step": ("steps_at", step_of),
    "wait": ("waits_at", wait_of),
    "slot": ("slots_at", slot_of),
}


class SqliteQueries(KernelStore):
    """`ports.Queries`, and the reads of `Children`, `UsageStore`, `TurnJournal`, `Outbox` and `Audit`."""

    def __init__(self, clock: Clock, readers: ReaderPool) -> None:
        """Take the running readers."""
        super().__init__(clock)
        self.readers = readers
        self.ended = TurnCache()

    async def read(self, view: Callable[[ReadTx], T]) -> T:
        """Run a read on one snapshot of the store. Raises its exception, or `StoreError`."""
        return await self.readers.submit(view)

    async def session(self, session: SessionId) -> Session | None:
        """Return one session."""
        return await self.read(lambda reader: _session(reader, session))

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """Return roots with their live children, and some ended ones, most recently active first."""
        return await self.read(lambda reader: _sessions(reader, limit, ended, always))

    async def turn(self, turn: TurnId) -> TurnView:
        """Return one turn with all its stored rows."""
        return await self.read(lambda reader: turn_view(reader, turn))

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the last ended turns, or the first, in the order they ended."""
        read: dict[int, TurnView] = {}

        def view(reader: ReadTx) -> list[TurnView]:
            found = _session(reader, session)
            if found is None:
                return []
            places = places_of_ended(reader, session, epoch, limit, oldest=oldest)
            return history_of(reader, found, places, self.ended, read)

        history = await self.read(view)
        if not oldest:  # the oldest are read once, for a summary
            self.ended.keep(read)
        return history

    async def changes(self, session: SessionId, after: int, limit: int) -> RowPage:
        """Return the rows that changed since a revision."""
        return await self.read(lambda reader: _changes(reader, session, after, limit))

    async def older(self, session: SessionId, before: int | None, limit: int) -> RowPage:
        """Return the last rows before a place."""
        return await self.read(lambda reader: _older(reader, session, before, limit))

    async def some_roots(self, after: str, limit: int) -> tuple[Sequence[SessionId], str]:
        """Return some root sessions, by id."""
        roots = [SessionId(id_) for (id_,) in await self.read(lambda reader: reader.run("some_roots", after, limit))]
        return roots, roots[-1] if len(roots) == limit else ""

    async def wait(self, wait: WaitId) -> Wait | None:
        """Return one wait."""
        columns = await self.read(lambda reader: reader.one("wait", wait))
        return None if columns is None else wait_of(columns)

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals, oldest first."""
        return await self.read(lambda reader: _open_approvals(reader, limit))

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """Return the card slots that show an approval."""
        return await self.read(lambda reader: readable(slot_of, reader.run("card_slots", wait), "card"))

    async def counts(self) -> Counts:
        """Return figures of the store."""
        ((queued, running, parked, asked, due, dead, queued_at, granted),) = await self.read(
            lambda reader: reader.run("counts")
        )
        return Counts(
            queued_turns=queued,
            running_turns=running,
            parked_turns=parked,
            open_approvals=asked,
            due_slots=due,
            dead_slots=dead,
            oldest_queued_at=moment(queued_at),
            grants=granted,
        )

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether a slot is due now."""
        return await self.read(lambda reader: bool(claimable(reader, channels, reader.now, 1)))

    async def facts(self, keys: Sequence[FactKey]) -> list[Fact | None]:
        """Return stored facts."""
        return await self.read(lambda reader: [_fact(reader.one("fact", *key)) for key in keys])

    async def facts_in(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace."""
        found = await self.read(lambda reader: reader.run("facts", namespace))
        return [(key, Fact(value, moment(until))) for key, value, until in found]

    # --- children, usage, grants ------------------------------------------------------------

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session, live ones first."""
        return await self.read(lambda reader: children.family(reader, session, limit))

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the children that a turn spawned itself, in the order of its steps."""
        return await self.read(lambda reader: children.children_of(reader, turn))

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first."""
        return await self.read(lambda reader: readable(spent_of, reader.run("spent", since.isoformat()), "day"))

    async def grants_for(self, turn: TurnId) -> Sequence[Grant]:
        """Return the grants that hold for calls of this turn, oldest first."""
        return await self.read(lambda reader: grants.grants_for(reader, turn))

    async def live_grants(self, limit: int = 1000) -> Sequence[Grant]:
        """Return live grants, newest first."""
        return await self.read(lambda reader: grants.live_grants(reader, limit))

    # --- audit ------------------------------------------------------------------------------

    async def audit_head(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        return await self.read(records.audit_head)

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the audit row of a step's last start; None when it never started."""
        return await self.read(
            lambda reader: next((audit_row_of(one) for one in reader.run("audit_row", turn, n)), None)
        )

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows after a place, in order."""
        return await self.read(lambda reader: [audit_row_of(one) for one in reader.run("audit_rows", after, limit)])

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return the calls that were started, each with its row."""
        return await self.read(
            lambda reader: [records.call_of(one) for one in reader.run("started_calls", after, limit)]
        )


def claimable(
    reader: ReadTx, channels: Sequence[str], now: int, limit: int, without: Sequence[AccountKey] = ()
) -> list[SlotId]:
    """Return slots that may be sent at a time in microseconds, refusals last, but for those of some accounts."""
    left_out = dump_json([f"{dump_json(list(account))[:-1]}," for account in without])
    rows = reader.run("claimable_slots", dump_json(list(channels)), now, limit, left_out)
    found = [SlotId(id_) for (id_,) in rows]
    for channel in channels:
        rows = reader.run("claimable_refusals", channel, now, limit - len(found), REFUSALS_AT_ONCE, left_out)
        found += [SlotId(id_) for (id_,) in rows]
    return found


def _fact(found: Columns | None) -> Fact | None:
    return None if found is None else Fact(found[0], moment(found[1]))


def _open_approvals(reader: ReadTx, limit: int) -> list[Wait]:
    """Return the first readable ones, however many damaged ones stand before them."""
    waits, passed, is_last = list[Wait](), 0, limit <= 0
    while len(waits) < limit and not is_last:
        found = reader.run("open_approvals", limit, passed)
        waits += readable(wait_of, found, "approval")
        passed, is_last = passed + len(found), len(found) < limit
    return waits[:limit]


def _session(reader: ReadTx, session: SessionId) -> Session | None:
    columns = reader.one("session", session)
    return None if columns is None else session_of(columns)


def _sessions(reader: ReadTx, limit: int, ended: int, always: SessionId | None) -> list[SessionLine]:
    lines = readable(_session_line, reader.run("session_lines", limit, ended, always), "session")
    return sorted(lines, key=lambda line: (line.session.active_at, line.rev), reverse=True)


def _session_line(columns: Columns) -> SessionLine:
    *session, rev, waiting, running, queued = columns
    return SessionLine(session=session_of(tuple(session)), rev=rev, waiting=waiting, running=running, queued=queued)


# --- turns ----------------------------------------------------------------------------------


def turn_view(reader: ReadTx, turn: TurnId) -> TurnView:
    """Return a turn with all its stored rows. Raises `NotFound`."""
    columns = reader.one("turn", turn)
    if columns is None:
        raise NotFound(f"There is no turn {turn}.")
    *columns, since, until = columns
    held = held_for(moment(since), moment(until), from_us(reader.now))
    return replace(views_of(reader, [tuple(columns)])[0], held=held)


def places_of_ended(reader: ReadTx, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> list[int]:
    """Return the places of the last ended turns of a session, or of the first, in the order they ended."""
    if oldest:
        return [place for (place,) in reader.run("oldest_ended_turns", session, epoch, limit)]
    return [place for (place,) in reader.run("ended_turns", session, epoch, limit)][::-1]


def history_of(
    reader: ReadTx, session: Session, places: Sequence[int], ended: TurnCache, read: dict[int, TurnView]
) -> list[TurnView]:
    """Return the ended turns at these places, without damaged ones.

    Turns missing in the cache `ended` are put into `read` too: the caller caches them once its snapshot is committed.
    """
    views = ended.find(places, session)
    unread = [place for place in places if place not in views]
    if unread:
        columns = {place: tuple(rest) for place, *rest in reader.run("turns_at", dump_json(unread))}
        fresh = _readable_views(reader, columns, session)
        read.update(fresh)
        views.update(fresh)
    return [views[place] for place in places if place in views]


def _readable_views(reader: ReadTx, columns: Mapping[int, tuple[Any, ...]], session: Session) -> Mapping[int, TurnView]:
    """Return the turns that can be read, by place. They are read one by one only when one of them is damaged."""
    try:
        return dict(zip(columns, views_of(reader, list(columns.values()), session), strict=True))
    except UNREADABLE:
        places = {turn: place for place, (turn, *_) in columns.items()}
        views = readable(lambda turn: views_of(reader, [turn], session)[0], columns.values(), "turn")
        return {places[view.turn.id]: view for view in views}


def views_of(reader: ReadTx, rows: list[tuple[Any, ...]], session: Session | None = None) -> list[TurnView]:
    """Build the views of turns of one session from their columns; read the session unless given."""
    turns = [turn_of(columns) for columns in rows]
    session = session or _session_of(reader, turns[0])
    named = dump_json([turn.id for turn in turns])
    inputs: defaultdict[TurnId | None, list[Received]] = defaultdict(list)
    for received in map(received_of, reader.run("messages_of_turns", named)):
        inputs[received.turn].append(received)
    steps: defaultdict[TurnId, list[Step]] = defaultdict(list)
    for step in map(step_of, reader.run("steps_of_turns", named)):
        steps[step.turn].append(step)
    waits: defaultdict[TurnId, list[Wait]] = defaultdict(list)
    for wait in map(wait_of, reader.run("waits_of_turns", named)):
        waits[wait.turn].append(wait)
    return [
        TurnView(
            turn=turn,
            session=session,
            inputs=tuple(inputs[turn.id]),
            steps=tuple(steps[turn.id]),
            waits=tuple(waits[turn.id]),
        )
        for turn in turns
    ]


def _session_of(reader: ReadTx, turn: Turn) -> Session:
    session = _session(reader, turn.session)
    assert session is not None, "foreign keys hold"
    return session


# --- rows of a session ----------------------------------------------------------------------


def _changes(reader: ReadTx, session: SessionId, after: int, limit: int) -> RowPage:
    found = reader.run("changed_rows", session, after, limit + 1)
    rows = _rows(reader, found[:limit])
    # From all rows found, readable or not: the next page must start after them.
    rev = found[:limit][-1][3] if found[:limit] else after
    return RowPage(session=session, rows=rows, rev=rev, more=len(found) > limit)


def _older(reader: ReadTx, session: SessionId, before: int | None, limit: int) -> RowPage:
    found = reader.run("older_rows", session, NEWEST if before is None else before, limit + 1)
    ((rev,),) = reader.run("last_rev", session)
    more = len(found) > limit
    removed = 0 if more else removed_in(_fact(reader.one("fact", REMOVED, session)))
    return RowPage(session=session, rows=_rows(reader, found[:limit][::-1]), rev=rev, more=more, removed=removed)


def _rows(reader: ReadTx, places: Iterable[tuple[str, int, int, int]]) -> tuple[Row, ...]:
    """Return the rows at these places: what, key, ord, rev. An unreadable one is left out."""
    places = list(places)
    items: dict[tuple[str, int], Item] = {}
    for what, (statement, make) in _ITEMS.items():
        keys = [at for one, at, _, _ in places if one == what]
        if keys:
            at_place = partial(_at_place, make)
            for at, item in readable(at_place, reader.run(statement, dump_json(keys)), f"{what} of a session"):
                items[what, at] = item
    known = (place for place in places if place[:2] in items)
    return tuple(Row(ord=ord_, rev=rev, item=items[what, at]) for what, at, ord_, rev in known)


def _at_place(make: Callable[[Columns], Item], columns: Columns) -> tuple[int, Item]:
    at, *rest = columns
    return at, make(tuple(rest))
