"""Turn queue and turn journal transitions in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gateway.domain.audit import StartRecord
from gateway.domain.ids import InboundId, NodeId, WaitId
from gateway.domain.live import TURNS
from gateway.domain.messages import FetchedFile
from gateway.domain.sessions import LEASE_LASTS
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Step, StepKind, StepState
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait, StartOutcome, Wait, WaitState
from gateway.errors import LeaseLost, NotFound
from gateway.store.answer_rules import cost_of
from gateway.store.call_rules import audit_row, limit_approvals, may_consume
from gateway.store.child_rules import last_words
from gateway.store.memory.rows import TurnRow
from gateway.store.memory.turn_ops import TurnOps


class MemoryEngine(TurnOps):
    """`ports.TurnQueue` and `ports.TurnJournal`."""

    async def claim(self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0) -> Sequence[Claimed]:
        """Lease turns that may run, the longest waiting first."""
        claimed = self._claim(node, limit, history)
        if not claimed and wait_s > 0 and await self.live_bus.wait_for(TURNS, wait_s):
            claimed = self._claim(node, limit, history)
        return claimed

    def _claim(self, node: NodeId, limit: int, history: int) -> list[Claimed]:
        with self.transition() as now:
            claimed: list[Claimed] = []
            while len(claimed) < limit and (row := self.next_ready()) is not None:
                lease, turn = self._lease(row, node, now), row.turn
                asked = history and turn.kind is TurnKind.MODEL
                before = self.history_of(turn.session, turn.epoch, history) if asked else None
                claimed.append(Claimed(lease=lease, view=self.view_of(row), history=before))
            return claimed

    def _lease(self, row: TurnRow, node: NodeId, now: datetime) -> Lease:
        row.node, row.fence = node, row.fence + 1
        row.lease_until, row.held_since = now + LEASE_LASTS, now
        self.hold_back(row, None)
        turn = replace(row.turn, state=TurnState.RUNNING, started_at=row.turn.started_at or now)
        self.put_turn(row, turn)
        return Lease(turn=turn.id, session=turn.session, node=node, fence=row.fence, expires_at=row.lease_until)

    async def renew(self, lease: Lease) -> TurnState:
        """Extend the lease."""
        with self.transition() as now:
            row = self.held(lease)
            if row.held_since is not None and row.lease_until is not None:  # between expiry and now nobody worked
                row.held_since += max(timedelta(), now - row.lease_until)
            row.lease_until = now + LEASE_LASTS
            return row.turn.state

    async def park(self, lease: Lease) -> bool:
        """Release the lease until a wait is decided."""
        with self.transition():
            row = self.held(lease)
            if row.turn.state is not TurnState.RUNNING or not self._only_waits(row):
                return False
            self.let_go(row, TurnState.PARKED)
            return True

    def _only_waits(self, row: TurnRow) -> bool:
        """Return whether a wait is open, and every call without a result waits: nothing runs or can run."""
        open_steps = {self.waits[w].n for w in row.waits if self.waits[w].state is WaitState.OPEN}
        unfinished = {step.n for step in row.steps if step.state is not StepState.FINISHED}
        return bool(open_steps) and unfinished <= open_steps

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[InboundId],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn with its last answer."""
        with self.transition():
            row = self.held(lease)
            ungiven = [i for i in row.inputs if self.inbounds[i].given is None and i not in given]
            if state is TurnState.DONE and (ungiven or row.turn.state is TurnState.STOPPING):
                return False
            if answer is not None:
                self._answer(row, answer, given)
            self.say(row, slots, ends=True)
            self.end_turn(row, state, last_words(answer, slots))
            # Opened after the end, which withdraws every wait: these outlive the turn.
            for timer in timers:
                self.open_wait(row, timer)
            return True

    async def release(self, lease: Lease) -> None:
        """Return the turn to the queue."""
        with self.transition():
            try:
                row = self.held(lease)
            except LeaseLost:
                return
            if row.turn.state is TurnState.STOPPING:
                self.end_stopped(row)
            else:
                self.queue(row)

    async def plan(
        self, lease: Lease, answer: Answer, *, given: Sequence[InboundId], slots: Sequence[NewSlot]
    ) -> TurnView:
        """Store an answer with its calls planned."""
        with self.transition():
            row = self._running(lease)
            n = self._answer(row, answer, given)
            for call in answer.calls:
                self.put_step(
                    row,
                    Step(
                        turn=row.turn.id,
                        n=len(row.steps),
                        kind=StepKind.TOOL,
                        state=StepState.PLANNED,
                        call=call,
                        answer_n=n,
                    ),
                )
            self.say(row, slots)
            return self.view_of(row)

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Store the slot of an answer being written or of a status line, or its newer text."""
        with self.transition():
            row = self.held(lease)
            if row.turn.state is TurnState.STOPPING:
                return False
            known = None if slot.id is None else self.slots.get(slot.id)
            if known is None:
                id_ = self.add_slot(slot, row.turn.session, row.turn.id)
                (row.status if slot.kind is SlotKind.STATUS else row.early)[id_] = self.slots[id_]
            elif known.slot.id not in row.early and known.slot.id not in row.status:
                return False  # the whole answer is stored: its beginning must not replace it
            elif known.slot.text != slot.text:
                self.rewrite(known, slot.text, slot.n)
            return True

    async def open_waits(
        self, lease: Lease, waits: Sequence[NewWait], slots: Sequence[NewSlot], *, most: int | None = None
    ) -> int | None:
        """Open waits on planned steps, with their cards."""
        with self.transition():
            row = self.held(lease)
            planned = all(row.steps[new.n].state is StepState.PLANNED for new in waits)
            if row.turn.state is TurnState.STOPPING or not planned:
                return None
            already = 0 if most is None else self.approvals_asked_by(row.turn.session, row.turn.principal)
            waits, slots = limit_approvals(waits, slots, already, most)
            for new in waits:
                self.put_step(row, replace(row.steps[new.n], state=StepState.ASKED))
                self.open_wait(row, new)
            for slot in slots:
                self.add_slot(slot, row.turn.session, row.turn.id)
            return len(waits)

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Record that a call's effect may begin, with its audit row; consume its approval."""
        with self.transition() as now:
            row = self.held(lease)
            if row.turn.state is TurnState.STOPPING:
                return StartOutcome.STOPPING
            step, used = row.steps[n], None if wait is None else self.waits.get(wait)
            if wait is None:
                start = StartOutcome.STARTED if self._may_start(row, step) else StartOutcome.NOT_APPROVED
            else:
                start = (
                    StartOutcome.NOT_APPROVED if used is None else self._consume(used, lease, n, beginning.action_sha)
                )
            if start is StartOutcome.STARTED:
                row.started_under[n] = row.fence
                self.add_audit_row(audit_row(lease, n, row.turn.kind, step.state, used, beginning, now))
                self.put_step(row, replace(step, state=StepState.STARTED, started_at=now))
            return start

    def _may_start(self, row: TurnRow, step: Step) -> bool:
        """Return whether no decision is needed: never asked, or started by a holder that is gone."""
        again = step.state is StepState.STARTED and row.started_under[step.n] < row.fence
        return step.state is StepState.PLANNED or again

    def _consume(self, wait: Wait, lease: Lease, n: int, action_sha: str) -> StartOutcome:
        start = may_consume(wait, lease, n, action_sha, self.clock.now())
        if start in (StartOutcome.STARTED, StartOutcome.TOO_OLD):
            self.put_wait(
                replace(wait, state=WaitState.CONSUMED if start is StartOutcome.STARTED else WaitState.EXPIRED)
            )
        return start

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Store a call's one result and the slots that show it."""
        with self.transition():
            row = self.held(lease)
            step = row.steps[n]
            if step.state is StepState.FINISHED:
                return None
            self.cancel_waits(self.waits[w] for w in row.waits if self.waits[w].n == n)
            self.finish(row, step, result)
            for slot in () if row.turn.state is TurnState.STOPPING else slots:
                self.add_slot(slot, row.turn.session, row.turn.id)
            ended = all(one.state is StepState.FINISHED for one in row.steps)
            return self.view_of(row) if ended else None

    async def brought(self, lease: Lease, message: InboundId, files: Sequence[FetchedFile]) -> None:
        """Store the outcome of fetching a message's attachments."""
        with self.transition():
            row = self.held(lease)
            if message not in row.inputs:
                raise NotFound(f"The turn {row.turn.id} has no message {message}.")
            received = self.inbounds[message]
            if received.files is None:
                self.put_received(row.turn.session, replace(received, files=tuple(files)))

    def _running(self, lease: Lease) -> TurnRow:
        row = self.held(lease)
        if row.turn.state is TurnState.STOPPING:
            raise LeaseLost("The turn was stopped.")
        return row

    def _answer(self, row: TurnRow, answer: Answer, given: Sequence[InboundId]) -> int:
        now, n = self.clock.now(), len(row.steps)
        for inbound in given:
            received = self.inbounds[inbound]
            if received.given is None:
                self.put_received(row.turn.session, replace(received, given=n))
        step = Step(turn=row.turn.id, n=n, kind=StepKind.MODEL, state=StepState.FINISHED, answer=answer, ended_at=now)
        self.put_step(row, step)
        cost = cost_of(answer, row.turn.principal, now)
        if cost is not None:
            self.add_spent(cost)
        return n
