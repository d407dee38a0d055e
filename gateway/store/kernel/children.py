"""Transitions of sub-sessions: spawn and stop. `turns` reports their end."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.children import NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, WaitId
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import NewWait, WaitKind
from gateway.domain.workflows import NewStep
from gateway.errors import NotFound
from gateway.store import child_rules, workflow_rules
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import TurnRow


def spawn(part: Part, lease: Lease, n: int, child: NewChild) -> WaitId | SpawnRefusal | None:
    """Store a child with its task, and in mode RUN the wait of the step that spawned it."""
    row = turns.held(part, lease)
    child_rules.expect_of_step(lease, n, child.session)
    known = part.sessions.get(child.session)
    if known is not None:
        return known.parent_wait
    if row.turn.state is TurnState.STOPPING:
        return SpawnRefusal.STOPPING
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise child_rules.not_started(lease, n)
    parent = part.sessions[row.turn.session].session
    lineage = child_rules.lineage_below(parent, lease.turn, n, row.turn.conversation, child)
    live = len(part.sessions[lineage.root].live_below)
    refused = child_rules.refusal(lineage.depth, in_turn=len(row.children), live=live)
    if refused is not None:
        return refused
    wait = WaitId(part.mint("w")) if lineage.mode is SpawnMode.RUN else None
    turns.begin_child(part, row, n, child, wait)
    if wait is not None:
        _wait_for(part, row, n, wait, child)
    return wait


def begin_workflow(part: Part, lease: Lease, n: int, steps: Sequence[NewStep]) -> WaitId | SpawnRefusal:
    """Store a workflow in the wait of its call's step, and begin the ready steps."""
    row = turns.held(part, lease)
    for place, new in enumerate(steps, 1):
        child_rules.expect_of_workflow(lease, n, place, new.child.session)
    known = [wait.id for wait in turns.waits_of(part, row) if wait.n == n and workflow_rules.rows_of(wait.payload)]
    if known:
        return known[0]
    if row.turn.state is TurnState.STOPPING:
        return SpawnRefusal.STOPPING
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise child_rules.not_started(lease, n)
    parent = part.sessions[row.turn.session].session
    lineage = child_rules.lineage_below(parent, lease.turn, n, row.turn.conversation, steps[0].child)
    live = len(part.sessions[lineage.root].live_below)
    refused = child_rules.refusal(lineage.depth, in_turn=len(row.children), live=live)
    if refused is not None:
        return refused
    part.set_step(row.turn.id, n, state=StepState.ASKED)
    id_, lasts = WaitId(part.mint("w")), steps[0].child.expires_in
    payload = workflow_rules.payload_of(steps)
    new = NewWait(id=id_, kind=WaitKind.CHILD, n=n, approval=None, payload=payload, expires_in=lasts)
    turns.open_wait(part, row, new)
    turns.go_on(part, part.waits[id_].wait)
    return id_


def _wait_for(part: Part, row: TurnRow, n: int, wait: WaitId, child: NewChild) -> None:
    part.set_step(row.turn.id, n, state=StepState.ASKED)
    payload = {"child": child.session}
    new = NewWait(id=wait, kind=WaitKind.CHILD, n=n, approval=None, payload=payload, expires_in=child.expires_in)
    turns.open_wait(part, row, new)


def stop_child(part: Part, parent: SessionId, child: SessionId, text: str, only: Principal | None) -> int:
    """Stop a child and all below it."""
    found = part.sessions.get(child)
    if found is None or not turns.is_below(part, child, parent):
        raise NotFound(f"There is no sub-session {child} below {parent}.")
    if only is not None and found.task is not None and part.turns[found.task].turn.principal != only:
        raise child_rules.of_another(child)
    return turns.stop_below(part, child, text)
