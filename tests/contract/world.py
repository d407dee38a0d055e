"""One store under the state machine. Ids are named in order of appearance, so that two stores compare."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeVar

from gateway.domain.budgets import BudgetUse
from gateway.domain.ids import OwnerName, SessionId, TurnId, WaitId
from gateway.domain.messages import Inbound
from gateway.domain.slots import Slot, SlotState
from gateway.domain.steps import Step, StepState
from gateway.domain.turns import ENDED, Lease, Turn, TurnState
from gateway.domain.views import Row, TurnView
from gateway.domain.waits import WaitKind, WaitState
from gateway.policy.audit import AuditVerdict, verify
from gateway.ports import Store
from tests.support.faulty_store import Faults
from tests.support.makers import ANN_TELEGRAM, BOB, route

MINTED = re.compile(r"\b(?:[to][0-9a-f]{16}|i[0-9a-f]+)\b")
SESSIONS = (route(), route(SessionId("chat:g")))
EVERYTHING = 1_000_000
HELD = (TurnState.RUNNING, TurnState.STOPPING)
T = TypeVar("T")
NOTHING = "nothing"
"""Result of a rule that found nothing to do."""


@dataclass(slots=True)
class World:
    """A store, its leases and claims, and a name for each of its ids."""

    open: Callable[[], Store]
    """Open the store, again after a crash."""
    store: Store
    faults: Faults = field(default_factory=Faults)
    leases: list[Lease] = field(default_factory=list[Lease])
    claimed: list[Slot] = field(default_factory=list[Slot])
    messages: list[Inbound] = field(default_factory=list[Inbound])
    names: dict[str, str] = field(default_factory=dict[str, str])
    last: Snapshot = field(default_factory=lambda: Snapshot(rows=[], views={}, text=[]))
    """Content at the last check."""

    def said(self, result: object) -> str:
        """Return a result as text, minted ids replaced by names in order of first appearance."""
        return MINTED.sub(lambda found: self.names.setdefault(found[0], f"#{len(self.names)}"), repr(result))

    async def snapshot(self) -> Snapshot:
        """Return all readable rows, as objects for the invariants and as text to compare."""
        rows: list[Row] = []
        text: list[str] = []
        for page in await _together(self.store.older(way.session, None, EVERYTHING) for way in SESSIONS):
            rows += page.rows
            # By kind and then by place: in which order one transition stores rows of different kinds is its own affair.
            items = sorted(page.rows, key=lambda row: (type(row.item).__name__, row.ord))
            text += [self.said(row.item) for row in items]
        turns = [row.item for row in rows if isinstance(row.item, Turn)]
        views = {view.turn.id: view for view in await _together(self.store.turn(turn.id) for turn in turns)}
        waits = [wait.id for view in views.values() for wait in view.waits]
        epochs = [(way.session, epoch) for way in SESSIONS for epoch in (0, 1)]
        store = self.store
        async with asyncio.TaskGroup() as reads:  # together, for each has to wait
            sessions = reads.create_task(store.sessions())
            histories = reads.create_task(_together(store.history(*epoch, limit=5) for epoch in epochs))
            cards = reads.create_task(_together(store.card_slots(wait) for wait in waits))
            counts = reads.create_task(store.counts())
            approvals = reads.create_task(store.open_approvals())
            spent = reads.create_task(store.spent(date.min))
            audit_rows = reads.create_task(store.audit_rows(0, EVERYTHING))
            uses = reads.create_task(store.budget_uses())
            contact = reads.create_task(store.last_contact(OwnerName("ann"), [ANN_TELEGRAM, BOB]))
            audit = reads.create_task(verify(store))
        lines = [(line.session, line.waiting, line.running, line.queued) for line in sessions.result()]
        text += [
            *(self.said(view) for view in views.values()),
            self.said(sorted(lines, key=lambda line: line[0].id)),
            self.said([[view.turn.id for view in history] for history in histories.result()]),
            self.said([[slot.id for slot in shown] for shown in cards.result()]),
            self.said(counts.result()),
            self.said([wait.id for wait in approvals.result()]),
            self.said(spent.result()),
            self.said([replace(row, prev_hash="", hash="") for row in audit_rows.result()]),
            self.said(sorted(uses.result(), key=lambda use: use.account)),
            self.said(contact.result()),
        ]
        self.last = Snapshot(rows=rows, views=views, text=text, audit=audit.result(), uses=uses.result())
        return self.last

    # --- what to do next: what is useful now first, then a little of what is not --------------

    def lease(self, which: int) -> Lease | None:
        """Return a current lease, or sometimes a stale one."""
        held, stale = self._leases()
        return _pick(which, held, stale)

    def asking(self, which: int) -> Lease | None:
        """Return a lease whose turn has planned calls, or sometimes another one."""
        held, stale = self._leases()
        planned = [lease for lease in held if self._calls(lease, StepState.PLANNED)]
        return _pick(which, planned, held + stale)

    def starting(self, which: int) -> tuple[Lease, Step] | None:
        """Return an approved or planned call, or sometimes one that must not start."""
        held, stale = self._leases()
        calls = [(lease, step) for lease in held for step in self._calls(lease)]
        waits = [wait for view in self.last.views.values() for wait in view.waits]
        approved = {(wait.turn, wait.n) for wait in waits if wait.state is WaitState.APPROVED}
        good = [(lease, step) for lease, step in calls if (lease.turn, step.n) in approved]
        good += [(lease, step) for lease, step in calls if step.state is StepState.PLANNED]
        return _pick(which, good, calls + [(lease, step) for lease in stale for step in self._calls(lease)])

    def finishing(self, which: int) -> tuple[Lease, Step] | None:
        """Return a running call, or sometimes another one."""
        held, stale = self._leases()
        running = [(lease, step) for lease in held for step in self._calls(lease, StepState.STARTED)]
        return _pick(which, running, [(lease, step) for lease in held + stale for step in self._calls(lease)])

    def slot(self, which: int) -> Slot | None:
        """Return a slot being sent, as claimed, or sometimes one that was sent before."""
        now = {row.item.id: row.item for row in self.last.rows if isinstance(row.item, Slot)}
        newest = self.claimed[::-1]
        sending = [slot for slot in newest if now[slot.id].state is SlotState.SENDING]
        return _pick(which, sending, newest)

    def ended(self, which: int, session: SessionId) -> Turn | None:
        """Return an ended turn of the session, or sometimes another one."""
        turns = [view.turn for view in self.last.views.values() if view.turn.session == session][::-1]
        return _pick(which, [turn for turn in turns if turn.state in ENDED], turns)

    def message(self, which: int) -> Inbound | None:
        """Return one of the last messages."""
        return _pick(which, self.messages[::-1], self.messages)

    def approval(self, which: int) -> WaitId | None:
        """Return an open approval, or sometimes a decided one."""
        waits = [wait for view in self.last.views.values() for wait in view.waits if wait.kind is WaitKind.APPROVAL]
        waits.sort(key=lambda wait: wait.opened_at, reverse=True)
        is_open = [wait.id for wait in waits if wait.state is WaitState.OPEN]
        return _pick(which, is_open or [wait.id for wait in waits], [wait.id for wait in waits])

    def _leases(self) -> tuple[list[Lease], list[Lease]]:
        newest = {lease.turn: lease for lease in self.leases}
        held = [
            lease
            for lease in self.leases[::-1]
            if newest[lease.turn] is lease and self.last.views[lease.turn].turn.state in HELD
        ]
        return held, [lease for lease in self.leases[::-1] if lease not in held]

    def _calls(self, lease: Lease, state: StepState | None = None) -> list[Step]:
        steps = self.last.views[lease.turn].steps
        return [step for step in steps if step.call is not None and state in (None, step.state)]


@dataclass(slots=True)
class Snapshot:
    """Rows of a store at one moment."""

    rows: list[Row]
    views: dict[TurnId, TurnView]
    text: list[str]
    audit: AuditVerdict | None = None
    """Verdict on the whole audit."""
    uses: Sequence[BudgetUse] = ()
    """Use of each budget."""


def _pick(which: int, useful: Sequence[T], others: Sequence[T]) -> T | None:
    """Return one of the first four useful candidates, or, for 4, the first of the others."""
    things = [thing for thing in others if thing not in useful][:1] if which == 4 else useful[:4]
    return things[which % len(things)] if things else None


async def _together(reads: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of reads that wait at the same time, in their order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in reads]
    return [task.result() for task in tasks]
