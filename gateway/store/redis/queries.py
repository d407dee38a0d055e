"""Reads of the Redis store: each runs like a transition that changes nothing, on rows of one moment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import TypeVar

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.grants import CallPlace, Grant, GrantPlace
from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot
from gateway.domain.views import ChildLine, Counts, Item, Row, RowPage, SessionLine, Spent, TurnView
from gateway.domain.waits import Wait
from gateway.errors import NotFound, RowDamaged
from gateway.policy.grants import holds, is_live
from gateway.store import child_rules
from gateway.store.kernel import audit, lines, turns
from gateway.store.kernel.part import FactKey, Part
from gateway.store.kernel.retention import REMOVED, removed_in
from gateway.store.kernel.rows import Fact, MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow
from gateway.store.kernel_store import KernelStore
from gateway.store.redis import indexes
from gateway.store.redis.rows import AUDIT, CARDS, FACT, GRANT, SESSION, SLOT, STEP, TURN, WAIT
from gateway.store.redis.source import RedisSource

T = TypeVar("T")


class RedisQueries(KernelStore):
    """`ports.Queries`, and the reads of `Children`, `UsageStore`, `TurnJournal`, `Outbox` and `Audit`."""

    @abstractmethod
    async def view(self, view: Callable[[Part], T]) -> T:
        """Run a read. Raises its exception, or `StoreError`."""

    async def read(self, view: Callable[[RedisSource], T]) -> T:
        """Run a read that needs no part."""
        return await self.view(lambda part: view(source_of(part)))

    # --- sessions and turns -----------------------------------------------------------------

    async def session(self, session: SessionId) -> Session | None:
        """Return one session."""
        row = await self.read(lambda source: source.session_row(session))
        return None if row is None else row.session

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """Return roots with their live children, and some ended ones, most recently active first."""
        return await self.read(lambda source: _sessions(source, limit, ended, always))

    async def turn(self, turn: TurnId) -> TurnView:
        """Return one turn with all its stored rows."""

        def view(part: Part) -> TurnView:
            if part.turns.get(turn) is None:
                raise NotFound(f"There is no turn {turn}.")
            return turns.view_of(part, turn)

        return await self.view(view)

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the last ended turns, or the first, in the order they ended."""
        return await self.view(lambda part: history_of(part, session, epoch, limit, oldest=oldest))

    # --- rows of a session ------------------------------------------------------------------

    async def changes(self, session: SessionId, after: int, limit: int) -> RowPage:
        """Return the rows that changed since a revision."""
        return await self.read(lambda source: _changes(source, session, after, limit))

    async def older(self, session: SessionId, before: int | None, limit: int) -> RowPage:
        """Return the last rows before a place."""
        return await self.read(lambda source: _older(source, session, before, limit))

    async def some_roots(self, after: str, limit: int) -> tuple[Sequence[SessionId], str]:
        """Return some root sessions, those active longest ago first. One that becomes active moves to the end."""
        first = int(after or 0)
        roots = await self.read(lambda source: source.members(indexes.ROOTS, first, first + limit - 1))
        return [SessionId(one) for one in roots], str(first + limit) if len(roots) == limit else ""

    async def wait(self, wait: WaitId) -> Wait | None:
        """Return one wait."""
        row = await self.read(lambda source: source.row(WAIT, wait))
        return None if row is None else row.wait

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals, oldest first."""
        return await self.read(lambda source: _open_approvals(source, limit))

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """Return the card slots that show an approval."""
        return await self.read(lambda source: [row.slot for row in source.rows(SLOT, source.row(CARDS, wait) or ())])

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether a slot is due now."""
        return await self.view(lambda part: bool(part.index.claimable_slots(part.now, channels, 1)))

    async def counts(self) -> Counts:
        """Return figures of the store."""
        return await self.read(_counts)

    async def facts(self, keys: Sequence[FactKey]) -> list[Fact | None]:
        """Return stored facts."""
        return await self.read(lambda source: source.named([FACT.key(key) for key in keys]))

    async def facts_in(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace."""
        return await self.read(lambda source: source.fact_rows(namespace))

    # --- children, usage, grants ------------------------------------------------------------

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session, live ones first."""
        return await self.read(lambda source: _family(source, session, limit))

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the tasks that a turn gave itself, in the order of its steps."""

        def found(source: RedisSource) -> list[ChildLine]:
            row = source.row(TURN, turn)
            tasks = [] if row is None else source.rows(TURN, row.tasks)
            readable = [task for task in tasks if source.rows(SESSION, [task.turn.session])]
            return sorted((_task_line(source, task) for task in readable), key=lambda line: line.n)

        return await self.read(found)

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first."""

        def rows(source: RedisSource) -> list[Spent]:
            keys: list[str] = source.ask("ZRANGEBYSCORE", indexes.DAYS, since.toordinal(), "+inf")
            found: list[Spent] = [row for row in source.readable(keys) if row is not None]
            found.sort(key=lambda one: (one.principal, one.model))
            return sorted(found, key=lambda one: one.day, reverse=True)

        return await self.read(rows)

    async def grants_for(self, turn: TurnId) -> Sequence[Grant]:
        """Return the grants that hold for calls of this turn, oldest first."""

        def grants(part: Part) -> list[Grant]:
            source = source_of(part)
            here = _place_of(source, turn)
            if here is None:
                return []
            ids = {one for key in here.keys for one in source.members(indexes.grants_of(key))}
            found = source.rows(GRANT, sorted(ids))
            return [one for one in sorted(found, key=_age) if holds(one, here, part.now)]

        return await self.view(grants)

    async def live_grants(self, limit: int = 1000) -> Sequence[Grant]:
        """Return live grants, newest first."""

        def grants(part: Part) -> list[Grant]:
            source = source_of(part)
            found = [one for one in source.rows(GRANT, source.members(indexes.GRANTS)) if is_live(one, part.now)]
            sessions = source.rows(SESSION, {one.session for one in found})
            epochs = {row.session.id: row.session.epoch for row in sessions}
            present = [
                one for one in found if one.place is not GrantPlace.SESSION or one.epoch == epochs.get(one.session)
            ]
            return sorted(present, key=_age, reverse=True)[:limit]

        return await self.view(grants)

    # --- audit ------------------------------------------------------------------------------

    async def audit_head(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        return await self.read(lambda source: source.last_audit())

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the audit row of a step's last start; None when it never started."""
        return await self.read(lambda source: _audit_row_of(source, source.row(STEP, (turn, n))))

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows after a place, in order."""

        def rows(source: RedisSource) -> list[AuditRow]:
            mark, last = source.fact_row(audit.REMOVED), source.last_audit().seq
            removed = audit.mark_of(None if mark is None else mark.value)
            first = max(after, 0 if removed is None else removed.seq) + 1
            return list(source.audit_between(first, min(last, first + limit - 1)))

        return await self.read(rows)

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return the calls that were started, each with its row."""

        def calls(source: RedisSource) -> list[StartedCall]:
            keys = source.ask("ZRANGEBYSCORE", indexes.STARTED, f"({after}", "+inf", "LIMIT", 0, limit)
            return [_started(source, row) for row in source.named(keys) if row is not None]

        return await self.read(calls)


def source_of(part: Part) -> RedisSource:
    """Return the source of a part of this store."""
    assert isinstance(part.index, RedisSource), "a part of this store"
    return part.index


def history_of(part: Part, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> list[TurnView]:
    """Return the last, or first, ended turns of an epoch beyond its summary, in the order they ended.

    Damaged ones are left out.
    """
    source = source_of(part)
    before = set(source.batch.read)
    known = source.session_row(session)
    after = known.summary_rev if known is not None and known.session.epoch == epoch else 0
    if oldest:
        name = indexes.ended_in(session, epoch)
        found = source.ask("ZRANGEBYSCORE", name, f"({after}", "+inf", "LIMIT", 0, limit)
    else:
        found = source.last_ended(session, epoch, after, limit)
    views: list[TurnView] = []
    for row in source.rows(TURN, found):
        try:
            views.append(turns.view_of(part, row.turn.id))
        except RowDamaged:  # the log has named its row
            continue
    source.batch.trust_ended(before)
    return views


# --- sessions -------------------------------------------------------------------------------


def _sessions(source: RedisSource, limit: int, ended: int, always: SessionId | None) -> list[SessionLine]:
    roots = set(_last_active(source, indexes.ROOTS, limit))
    roots |= {always} if always is not None else set()
    live = [child for row in source.rows(SESSION, sorted(roots)) for child in row.live_below]
    listed = {*roots, *live, *_last_active(source, indexes.PAST_CHILDREN, ended)}
    return sorted((_line(source, row) for row in source.rows(SESSION, sorted(listed))), key=_activity, reverse=True)


def _last_active(source: RedisSource, name: str, limit: int) -> list[SessionId]:
    """Return the sessions active last. Of those active at one moment, the ones that changed last."""
    if limit <= 0:
        return []
    newest = source.ask("ZREVRANGE", name, 0, limit - 1)
    if len(newest) < limit:
        return [SessionId(one) for one in newest]
    ((_, oldest),) = _scored(source.ask("ZREVRANGE", name, limit - 1, limit - 1, "WITHSCORES"))
    tied = source.ask("ZREVRANGEBYSCORE", name, "+inf", oldest)
    by_activity = sorted((_line(source, row) for row in source.rows(SESSION, tied)), key=_activity, reverse=True)
    return [line.session.id for line in by_activity[:limit]]


def _activity(line: SessionLine) -> tuple[object, int]:
    return line.session.active_at, line.rev


def _line(source: RedisSource, row: SessionRow) -> SessionLine:
    id_, unended = row.session.id, source.rows(TURN, (*row.turns, *row.commands))
    waiting = source.size(indexes.waiting_in(id_))
    return lines.session_line(row, unended, rev=_last_rev(source, id_), waiting=waiting)


def _last_rev(source: RedisSource, session: SessionId) -> int:
    last = _scored(source.ask("ZREVRANGE", indexes.by_rev(session), 0, 0, "WITHSCORES"))
    return last[0][1] if last else 0


def _scored(answer: Sequence[object]) -> list[tuple[str, int]]:
    """Return members with their scores, from a flat list."""
    flat = [str(one) for one in answer]
    return [(member, int(float(score))) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def _open_approvals(source: RedisSource, limit: int) -> list[Wait]:
    """Return the first readable ones, however many damaged ones stand before them."""
    asked, waits = source.asked_waits(), list[Wait]()
    while asked and len(waits) < limit:
        some, asked = asked[:limit], asked[limit:]
        waits += [row.wait for row in source.rows(WAIT, some)]
    return waits[:limit]


def _counts(source: RedisSource) -> Counts:
    queued = source.rows(TURN, source.members(indexes.QUEUED, 0, 0))
    return Counts(
        queued_turns=source.size(indexes.QUEUED),
        running_turns=source.size(indexes.HELD_TURNS),
        parked_turns=source.size(indexes.PARKED),
        open_approvals=source.size(indexes.ASKED),
        due_slots=source.size(indexes.DUE),
        dead_slots=source.size(indexes.DEAD),
        oldest_queued_at=queued[0].queued_at if queued else None,
        grants=source.size(indexes.GRANTS),
    )


# --- rows of a session ----------------------------------------------------------------------


def _changes(source: RedisSource, session: SessionId, after: int, limit: int) -> RowPage:
    question = ("ZRANGEBYSCORE", indexes.by_rev(session), f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, limit + 1)
    found = _scored(source.ask(*question))
    rows = _rows(source, [key for key, _ in found[:limit]])
    rev = found[:limit][-1][1] if found[:limit] else after
    return RowPage(session=session, rows=tuple(rows), rev=rev, more=len(found) > limit)


def _older(source: RedisSource, session: SessionId, before: int | None, limit: int) -> RowPage:
    end = "+inf" if before is None else f"({before}"
    found = source.ask("ZREVRANGEBYSCORE", indexes.by_place(session), end, "-inf", "LIMIT", 0, limit + 1)
    rows = _rows(source, found[:limit][::-1])
    more, removed = len(found) > limit, 0
    if not more:
        removed = removed_in(source.row(FACT, (REMOVED, session)))
    return RowPage(session=session, rows=tuple(rows), rev=_last_rev(source, session), more=more, removed=removed)


def _rows(source: RedisSource, keys: Sequence[str]) -> list[Row]:
    return [Row(ord=row.ord, rev=row.rev, item=_item(row)) for row in source.readable(keys) if row is not None]


def _item(row: TurnRow | MessageRow | StepRow | WaitRow | SlotRow) -> Item:
    match row:
        case TurnRow():
            return row.turn
        case MessageRow():
            return row.received
        case StepRow():
            return row.step
        case WaitRow():
            return row.wait
        case SlotRow():
            return row.slot


# --- children, grants, audit ----------------------------------------------------------------


def _family(source: RedisSource, session: SessionId, limit: int) -> list[ChildLine]:
    found = list(_below(source, session))
    tasks = {row.turn.id: row for row in source.rows(TURN, [row.task for row, _ in found])}
    found = [(row, born) for row, born in found if row.task in tasks]
    task_of = {row.session.id: tasks[row.task] for row, _ in found if row.task is not None}
    family = [lines.child_rows(row, task_of[row.session.id], born) for row, born in found]
    return [_task_line(source, task_of[child]) for child in child_rules.in_order(family)[: max(0, limit)]]


def _below(source: RedisSource, session: SessionId) -> Iterator[tuple[SessionRow, int]]:
    """Yield the children at any depth, each with its place among all children."""
    children = _scored(source.ask("ZRANGE", indexes.below(session), 0, -1, "WITHSCORES"))
    rows = source.readable([SESSION.key(SessionId(child)) for child, _ in children])
    for row, (_, born) in zip(rows, children, strict=True):
        if row is not None:
            yield row, born
            yield from _below(source, row.session.id)


def _task_line(source: RedisSource, task: TurnRow) -> ChildLine:
    (row,) = source.rows(SESSION, [task.turn.session])
    steps = source.rows(STEP, [(task.turn.id, n) for n in range(task.steps)])
    return lines.child_line(row, task, steps, waiting=source.size(indexes.waiting_in(row.session.id)))


def _place_of(source: RedisSource, turn: TurnId) -> CallPlace | None:
    row = source.row(TURN, turn)
    return None if row is None else lines.call_place(row, list(_up(source, row.turn.session)))


def _up(source: RedisSource, id_: SessionId | None) -> Iterator[Session]:
    """Yield the session and those above it."""
    while id_ is not None and (row := source.session_row(id_)) is not None:
        yield row.session
        id_ = row.session.lineage.parent if row.session.lineage else None


def _age(grant: Grant) -> tuple[object, str]:
    return grant.granted_at, grant.id


def _audit_row_of(source: RedisSource, step: StepRow | None) -> AuditRow | None:
    return None if step is None or step.audit is None else source.row(AUDIT, step.audit)


def _started(source: RedisSource, row: StepRow) -> StartedCall:
    step, at = row.step, row.step.started_at
    assert at is not None, "it is among the started ones"
    return StartedCall(
        ord=row.ord, turn=step.turn, n=step.n, started_at=at, row=_audit_row_of(source, row), seq=row.audit
    )
