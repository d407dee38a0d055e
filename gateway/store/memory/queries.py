"""Reads of the memory store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from typing import TypeVar

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.grants import Grant, GrantPlace
from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot, SlotState
from gateway.domain.steps import Step
from gateway.domain.views import ChildLine, Counts, RowPage, SessionLine, Spent, TurnView
from gateway.domain.waits import Wait
from gateway.errors import NotFound
from gateway.policy.audit import beginning_of
from gateway.policy.grants import holds, is_live
from gateway.store import child_rules
from gateway.store.codec import EPOCH
from gateway.store.kernel import lines
from gateway.store.kernel.retention import REMOVED, removed_in
from gateway.store.kernel.rows import SessionRow, held_for
from gateway.store.memory.index import MemoryIndex

T = TypeVar("T")


class MemoryQueries(MemoryIndex):
    """`ports.Queries`, and the reads of `Children`, `UsageStore`, `TurnJournal` and `Audit`."""

    # --- sessions ---------------------------------------------------------------------------

    async def session(self, session: SessionId) -> Session | None:
        """Return one session."""
        row = self.sessions_by_id.get(session)
        return row.session if row else None

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """Return roots with their live children, and some ended ones, most recently active first."""
        every = [self._line(row) for row in self.sessions_by_id.values()]
        every.sort(key=lambda line: (line.session.active_at, line.rev), reverse=True)
        roots = {line.session.id for line in [line for line in every if line.session.lineage is None][:limit]}
        roots |= {always} if always is not None else set()
        over = [one for one in every if one.session.lineage is not None and not self._is_live(one.session.id)]
        listed = roots | {line.session.id for line in over[:ended]}
        live = [line.session for line in every if self._is_live(line.session.id)]
        listed |= {one.id for one in live if one.lineage is not None and one.lineage.root in roots}
        return [line for line in every if line.session.id in listed]

    def _is_live(self, session: SessionId) -> bool:
        return self.sessions_by_id[session].live

    def _line(self, row: SessionRow) -> SessionLine:
        id_ = row.session.id
        rev = max((one.rev for one in self.rows.get(id_, {}).values()), default=0)
        unended = [self.turns[turn] for turn in (*row.turns, *row.commands)]
        return lines.session_line(row, unended, rev=rev, waiting=self.waiting_in(id_))

    # --- turns ------------------------------------------------------------------------------

    async def turn(self, turn: TurnId) -> TurnView:
        """Return one turn with all its stored rows."""
        if turn not in self.turns:
            raise NotFound(f"There is no turn {turn}.")
        return self.view_of(turn)

    def view_of(self, turn: TurnId) -> TurnView:
        """Return a stored turn with all its rows."""
        row = self.turns[turn]
        return TurnView(
            turn=row.turn,
            session=self.sessions_by_id[row.turn.session].session,
            inputs=tuple(self.messages[one].received for one in row.inputs),
            steps=tuple(self.steps[turn, n].step for n in range(row.steps)),
            waits=tuple(self.waits[one].wait for one in row.waits),
            held=held_for(row.held_since, row.lease_until, self.clock.now()),
        )

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the last ended turns, or the first, in the order they ended."""
        return self.history_of(session, epoch, limit, oldest=oldest)

    def history_of(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> list[TurnView]:
        """Return the last, or first, ended turns of an epoch beyond its summary, in the order they ended."""
        known = self.sessions_by_id.get(session)
        after = known.summary_rev if known is not None and known.session.epoch == epoch else 0
        rows = [self.turns[turn] for turn in self.ended.get(session, [])]
        ended = [row.turn.id for row in rows if row.turn.epoch == epoch and (row.ended_rev or 0) > after]
        return [self.view_of(turn) for turn in (ended[:limit] if oldest else _last(ended, limit))]

    # --- rows -------------------------------------------------------------------------------

    async def changes(self, session: SessionId, after: int, limit: int) -> RowPage:
        """Return the rows that changed since a revision."""
        rows = sorted((r for r in self.rows.get(session, {}).values() if r.rev > after), key=lambda r: r.rev)
        taken = tuple(rows[:limit])
        rev = taken[-1].rev if taken else after
        return RowPage(session=session, rows=taken, rev=rev, more=len(rows) > limit)

    async def older(self, session: SessionId, before: int | None, limit: int) -> RowPage:
        """Return the last rows before a place."""
        known = self.rows.get(session, {}).values()
        rows = sorted((r for r in known if before is None or r.ord < before), key=lambda r: r.ord)
        rev = max((r.rev for r in known), default=0)
        more = len(rows) > limit
        removed = 0 if more else removed_in(self.all_facts.get((REMOVED, session)))
        return RowPage(session=session, rows=tuple(_last(rows, limit)), rev=rev, more=more, removed=removed)

    async def some_roots(self, after: str, limit: int) -> tuple[Sequence[SessionId], str]:
        """Return some root sessions, by id."""
        roots = sorted(id_ for id_, row in self.sessions_by_id.items() if id_ > after and _parent(row) is None)[:limit]
        return roots, roots[-1] if len(roots) == limit else ""

    async def wait(self, wait: WaitId) -> Wait | None:
        """Return one wait."""
        found = self.waits.get(wait)
        return None if found is None else found.wait

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals, oldest first."""
        return [self.waits[wait].wait for wait in self.asked_waits()][:limit]

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """Return the card slots that show an approval."""
        return [self.slots[slot].slot for slot in self.cards_by_wait.get(wait, ())]

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether a slot is due now."""
        return bool(self.claimable_slots(self.clock.now(), channels, 1))

    async def counts(self) -> Counts:
        """Return figures of the store."""
        unsent = [row for here in self.unsent.values() for row in here.values()]
        return Counts(
            queued_turns=len(self.queued),
            running_turns=len(self.held_now),
            parked_turns=len(self.parked),
            open_approvals=len(self.asked_waits()),
            due_slots=sum(row.sending_since is None for row in unsent),
            dead_slots=sum(row.slot.state is SlotState.DEAD for row in self.slots.values()),
            oldest_queued_at=min((row.queued_at for row in self.queued.values()), default=None),
            grants=sum(not one.ended for one in self.grants.values()),
        )

    # --- children ---------------------------------------------------------------------------

    async def family(self, session: SessionId, limit: int = 50) -> Sequence[ChildLine]:
        """Return the children below a session, live ones first."""
        places = {id_: place for place, id_ in enumerate(self.sessions_by_id)}
        family = [self._child_rows(row, places[row.session.id]) for row in self._below(session)]
        ordered = child_rules.in_order(family)[: max(0, limit)]
        return [self._child_line(self.sessions_by_id[child]) for child in ordered]

    async def children_of(self, turn: TurnId) -> Sequence[ChildLine]:
        """Return the tasks that a turn gave itself, in the order of its steps."""
        row = self.turns.get(turn)
        return sorted((self._task_line(task) for task in row.tasks) if row else (), key=lambda line: line.n)

    def _below(self, session: SessionId) -> list[SessionRow]:
        found = [row for row in self.sessions_by_id.values() if _parent(row) == session]
        return found + [row for child in found for row in self._below(child.session.id)]

    def _child_rows(self, row: SessionRow, place: int) -> child_rules.ChildRows:
        assert row.task is not None
        return lines.child_rows(row, self.turns[row.task], place)

    def _child_line(self, row: SessionRow) -> ChildLine:
        assert row.task is not None
        return self._task_line(row.task)

    def _task_line(self, id_: TurnId) -> ChildLine:
        task = self.turns[id_]
        row = self.sessions_by_id[task.turn.session]
        steps = [self.steps[id_, n] for n in range(task.steps)]
        return lines.child_line(row, task, steps, waiting=self.waiting_in(row.session.id))

    # --- usage and grants -------------------------------------------------------------------

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first."""
        found = [one for one in self.books.values() if one.day >= since]
        found.sort(key=lambda one: (one.principal, one.model))
        return sorted(found, key=lambda one: one.day, reverse=True)

    async def grants_for(self, turn: TurnId) -> Sequence[Grant]:
        """Return the grants that hold for calls of this turn, oldest first."""
        row = self.turns.get(turn)
        if row is None:
            return []
        here = lines.call_place(row, list(self._up(row.turn.session)))
        return [one for one in self._by_age() if holds(one, here, self.clock.now())]

    async def live_grants(self, limit: int = 1000) -> Sequence[Grant]:
        """Return live grants, newest first."""
        live = [one for one in reversed(self._by_age()) if is_live(one, self.clock.now()) and self._is_present(one)]
        return live[:limit]

    def _by_age(self) -> list[Grant]:
        return sorted(self.grants.values(), key=lambda one: (one.granted_at, one.id))

    def _is_present(self, grant: Grant) -> bool:
        session = self.sessions_by_id[grant.session].session
        return grant.place is not GrantPlace.SESSION or grant.epoch == session.epoch

    def _up(self, id_: SessionId | None) -> Iterator[Session]:
        """Yield the session and those above it."""
        while id_ is not None and id_ in self.sessions_by_id:
            session = self.sessions_by_id[id_].session
            yield session
            id_ = session.lineage.parent if session.lineage else None

    # --- audit ------------------------------------------------------------------------------

    async def audit_head(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        return self.last_audit()

    def last_audit(self) -> AuditHead:
        """Return the end of the audit."""
        if not self.audit:
            return AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))
        return AuditHead(since=EPOCH, seq=self.audit[-1].seq, hash=self.audit[-1].hash)

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the audit row of a step's last start; None when it never started."""
        return next((row for row in reversed(self.audit) if (row.turn, row.n) == (turn, n)), None)

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows after a place, in order."""
        return self.audit_between(after + 1, self.last_audit().seq)[:limit]

    def audit_between(self, first: int, last: int) -> Sequence[AuditRow]:
        """Return rows by their numbers."""
        before = self.audit[0].seq if self.audit else 1
        return self.audit[max(0, first - before) : max(0, last - before + 1)]

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return the calls that were started, each with its row."""
        last = {(row.turn, row.n): row for row in self.audit}
        started = sorted(
            (row.ord, step.started_at, step)
            for rows in self.rows.values()
            for row in rows.values()
            if isinstance(step := row.item, Step) and step.started_at is not None and row.ord > after
        )
        return [
            StartedCall(
                ord=ord_,
                turn=step.turn,
                n=step.n,
                started_at=at,
                row=last.get((step.turn, step.n)),
                seq=self.steps[step.turn, step.n].audit,
            )
            for ord_, at, step in islice(started, limit)
        ]


def _parent(row: SessionRow) -> SessionId | None:
    return None if row.session.lineage is None else row.session.lineage.parent


def _last(rows: Sequence[T], limit: int) -> Sequence[T]:
    return rows[max(0, len(rows) - limit) :]
