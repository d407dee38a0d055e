"""Invariants of a store, checked on all stored rows after every step of the state machine."""

from __future__ import annotations

from collections import Counter

from gateway.domain.ids import SlotId, TurnId, WaitId
from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotState
from gateway.domain.steps import Step, StepState
from gateway.domain.tools import ToolResult
from gateway.domain.turns import ENDED, Lease, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import StartOutcome, Wait, WaitKind, WaitState
from tests.contract.world import Snapshot

FINAL = frozenset(WaitState) - {WaitState.OPEN, WaitState.APPROVED}


class Seen:
    """Observations of one store so far, and values that may never change once seen."""

    def __init__(self) -> None:
        """Start empty."""
        self.accepted: set[str] = set()
        self.waits: dict[WaitId, Wait] = {}
        self.results: dict[tuple[TurnId, int], ToolResult] = {}
        self.ended: dict[TurnId, TurnState] = {}
        self.slots: set[SlotId] = set()
        self.fences: dict[TurnId, int] = {}
        self.starts: Counter[tuple[TurnId, WaitId]] = Counter()
        self.started_under: dict[tuple[TurnId, int], int] = {}
        self.audit_rows = 0
        self.used: dict[str, int] = {}

    def claimed(self, lease: Lease) -> None:
        """Check that fences are monotone."""
        assert lease.fence > self.fences.get(lease.turn, 0), "a fence did not grow"
        self.fences[lease.turn] = lease.fence

    def started(self, lease: Lease, step: Step, wait: Wait | None, start: StartOutcome) -> None:
        """Check that an approval starts one call once, after its decision, and that one lease starts no call twice."""
        if start is not StartOutcome.STARTED:
            return
        if wait is not None:
            self.starts[wait.turn, wait.id] += 1
            assert wait.state is WaitState.APPROVED, "a call was started without a decision"
            assert self.starts[wait.turn, wait.id] == 1, "an approval was used twice"
        else:
            assert step.state in (StepState.PLANNED, StepState.STARTED), "a call that was asked about was started"
        assert lease.fence > self.started_under.get((lease.turn, step.n), 0), "a call was started twice in one life"
        self.started_under[lease.turn, step.n] = lease.fence

    def look(self, snapshot: Snapshot) -> None:
        """Check every invariant on all stored rows."""
        for view in snapshot.views.values():
            self._turn(view)
        self._lanes(list(snapshot.views.values()))
        self._messages([row.item for row in snapshot.rows if isinstance(row.item, Received)])
        self._slots([row.item for row in snapshot.rows if isinstance(row.item, Slot)])
        self._audit(snapshot)
        self._budgets(snapshot)

    def _budgets(self, snapshot: Snapshot) -> None:
        """Check that the use of a budget only grows."""
        for use in snapshot.uses:
            assert use.used >= self.used.get(use.account, 0), "a use was taken back"
            self.used[use.account] = use.used

    def _audit(self, snapshot: Snapshot) -> None:
        """Check that every started call has its audit row, and that rows never change."""
        found = snapshot.audit
        assert found is not None
        assert found.broken is None, found.broken
        starts = sum(step.started_at is not None for view in snapshot.views.values() for step in view.steps)
        assert found.calls == starts, "a started call has no row in the audit"
        assert found.rows >= max(self.audit_rows, starts), "the audit became shorter"
        self.audit_rows = found.rows

    def _turn(self, view: TurnView) -> None:
        for wait in view.waits:
            before = self.waits.get(wait.id)
            if before is not None and before.state in FINAL:
                assert wait == before, "a wait left a final state"
            self.waits[wait.id] = wait
        for step in view.steps:
            known = self.results.get((view.turn.id, step.n))
            if known is not None:
                assert step.result == known, "a result changed"
            if step.result is not None:
                self.results[view.turn.id, step.n] = step.result
        if view.turn.state in ENDED:
            self._ended(view)
        elif view.turn.state is TurnState.PARKED:
            _parked(view)

    def _ended(self, view: TurnView) -> None:
        assert self.ended.setdefault(view.turn.id, view.turn.state) is view.turn.state, "an ended turn went on"
        assert all(step.result is not None for step in view.steps if step.call is not None), "a call has no result"
        assert all(received.given is not None for received in view.inputs), "a message waits for ever"
        assert all(wait.state in FINAL or wait.kind is WaitKind.TIMER for wait in view.waits), "a dead wait is open"

    def _lanes(self, views: list[TurnView]) -> None:
        active = [view.turn for view in views if view.turn.started_at is not None and view.turn.state not in ENDED]
        models = Counter(turn.session for turn in active if turn.kind is TurnKind.MODEL)
        assert all(number == 1 for number in models.values()), "two model turns of a session"
        held = (TurnState.RUNNING, TurnState.STOPPING)
        commands = Counter(turn.session for turn in active if turn.kind is TurnKind.COMMAND and turn.state in held)
        assert all(number <= 4 for number in commands.values()), "more than four commands"

    def _messages(self, received: list[Received]) -> None:
        events = Counter(one.message.event_key for one in received)
        assert set(events) == self.accepted, "an accepted message is lost"
        assert set(events.values()) <= {1}, "a message was stored twice"
        assert all(one.turn is not None or one.context or one.message.text == "/cmd" for one in received), "no turn"

    def _slots(self, slots: list[Slot]) -> None:
        ids = {slot.id for slot in slots}
        assert self.slots <= ids, "a slot is lost"
        self.slots = ids
        sending = Counter(slot.conversation for slot in slots if slot.state is SlotState.SENDING)
        assert set(sending.values()) <= {1}, "two slots of a conversation are being sent"
        for slot in slots:
            assert slot.sent_version <= slot.version
            if slot.state is SlotState.SENT:
                assert slot.sent_version == slot.version, "a version was never shown"


def _parked(view: TurnView) -> None:
    """Check that a parked turn has an open wait that can wake it."""
    is_open = {wait.n for wait in view.waits if wait.state is WaitState.OPEN}
    unfinished = {step.n for step in view.steps if step.state is not StepState.FINISHED}
    assert is_open, "a parked turn that nothing can wake"
    assert unfinished <= is_open, "a parked turn with something to do"
