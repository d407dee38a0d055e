"""Queries in memory: reads of all stored rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot, SlotState
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import Counts, Rows, SessionLine, TurnView
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.store.memory.turn_ops import TurnOps


class MemoryQueries(TurnOps):
    """`ports.Queries`."""

    async def session(self, session: SessionId) -> Session | None:
        """Return one session."""
        row = self.all_sessions.get(session)
        return row.session if row else None

    async def sessions(
        self, limit: int = 200, ended: int = 50, *, always: SessionId | None = None
    ) -> Sequence[SessionLine]:
        """Return roots with their live children, and some ended ones, most recently active first."""
        rows = sorted(self.all_sessions.values(), key=lambda row: (row.session.active_at, row.rev), reverse=True)
        roots = {row.session.id for row in [row for row in rows if row.session.lineage is None][:limit]} | {always}
        over = [row for row in rows if row.session.lineage is not None and row.session.id not in self.live_children]
        listed = roots | {row.session.id for row in over[:ended]}
        for row in self.live_children.values():
            if row.session.lineage is not None and row.session.lineage.root in roots:
                listed.add(row.session.id)
        waiting = Counter(w.session for w in await self.open_approvals(limit=len(self.undecided)))
        return [self._line(row.session, row.rev, waiting[row.session.id]) for row in rows if row.session.id in listed]

    def _line(self, session: Session, rev: int, waiting: int) -> SessionLine:
        lanes = [self.lane(session.id, kind) for kind in TurnKind]
        states = [row.turn.state for lane in lanes for row in lane.turns.values()]
        return SessionLine(
            session=replace(session, summary=""),
            rev=rev,
            waiting=waiting,
            running=sum(lane.held for lane in lanes),
            queued=states.count(TurnState.QUEUED),
        )

    async def turn(self, turn: TurnId) -> TurnView:
        """Return one turn with all its stored rows."""
        return self.view_of(self.turn_row(turn))

    async def history(self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False) -> Sequence[TurnView]:
        """Return the last ended turns, or the first, in the order they ended."""
        return self.history_of(session, epoch, limit, oldest=oldest)

    async def changes(self, session: SessionId, after: int, limit: int) -> Rows:
        """Return the rows that changed since a revision."""
        rows = sorted((r for r in self.rows.get(session, {}).values() if r.rev > after), key=lambda r: r.rev)
        taken = tuple(rows[:limit])
        rev = taken[-1].rev if taken else after
        return Rows(session=session, rows=taken, rev=rev, more=len(rows) > limit)

    async def older(self, session: SessionId, before: int | None, limit: int) -> Rows:
        """Return the last rows before a place."""
        known = self.rows.get(session, {}).values()
        rows = sorted((r for r in known if before is None or r.ord < before), key=lambda r: r.ord)
        rev = max((r.rev for r in known), default=0)
        return Rows(session=session, rows=tuple(_last(rows, limit)), rev=rev, more=len(rows) > limit)

    async def wait(self, wait: WaitId) -> Wait | None:
        """Return one wait."""
        return self.waits.get(wait)

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals, oldest first."""
        return self._open_approvals()[:limit]

    def _open_approvals(self) -> list[Wait]:
        undecided = self.undecided.values()
        return [one for one in undecided if one.kind is WaitKind.APPROVAL and one.state is WaitState.OPEN]

    async def card_slots(self, wait: WaitId) -> Sequence[Slot]:
        """Return the card slots that show an approval."""
        return [self.slots[slot].slot for slot in self.cards.get(wait, ())]

    async def counts(self) -> Counts:
        """Return figures of the store."""
        rows = self.unended.values()
        return Counts(
            queued_turns=sum(1 for row in rows if row.turn.state is TurnState.QUEUED),
            running_turns=len(self.held_turns),
            parked_turns=sum(1 for row in rows if row.turn.state is TurnState.PARKED),
            open_approvals=len(self._open_approvals()),
            due_slots=sum(1 for here in self.unsent.values() for row in here.values() if row.sending_since is None),
            dead_slots=sum(1 for row in self.slots.values() if row.slot.state is SlotState.DEAD),
            oldest_queued_at=min((row.queued_at for row in rows if row.turn.state is TurnState.QUEUED), default=None),
        )


T = TypeVar("T")


def _last(rows: Sequence[T], limit: int) -> Sequence[T]:
    return rows[max(0, len(rows) - limit) :]
