"""Transitions of sub-sessions: spawn, send and stop. `turns` reports their end."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.children import MessageFate, NewChild, NewMessage, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, TurnId, WaitId
from gateway.domain.messages import Inbound
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import GOES_ON, NewWait, WaitKind
from gateway.domain.workflows import NewStep
from gateway.errors import NotFound
from gateway.store import child_rules, workflow_rules
from gateway.store.kernel import turns
from gateway.store.kernel.family import give, hops_of, is_below
from gateway.store.kernel.messages import event_of, message_of
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow, TurnRow, changed

SAID = "said"
"""Outcome of the event of a message to a parent. It names no message: one from a child is found by its key alone."""


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
    refused = child_rules.refusal(lineage.depth, in_turn=len(row.tasks), live=live)
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
    refused = child_rules.refusal(lineage.depth, in_turn=len(row.tasks), live=live)
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


def send(
    part: Part, lease: Lease, n: int, new: NewMessage, only: Principal | None
) -> WaitId | MessageFate | SpawnRefusal:
    """Store a message to a child: in the task at work, or as a further task of a child that has ended."""
    row = turns.held(part, lease)
    parent = part.sessions[row.turn.session].session
    child = part.sessions.get(new.child)
    lineage = None if child is None else child.session.lineage
    if child is None or child.task is None or lineage is None or lineage.parent != parent.id:
        raise child_rules.no_child(new.child, parent.id)
    task = part.turns[child.task].turn
    if only is not None and task.principal != only:
        raise child_rules.of_another(new.child)
    message = child_rules.message_to(new, lease, n, part.now)
    known = part.events.get(event_of(message))
    if known is not None:
        return _sent_before(part, row, n, message_of(known)[1])
    refused = _refusal_of_message(part, row, child)
    if refused is not None:
        return refused
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise child_rules.not_started(lease, n)
    if child.live:
        return _join(part, row, n, child, new, message)
    return _begin_again(part, row, n, child, new, message)


def _sent_before(part: Part, row: TurnRow, n: int, turn: TurnId) -> WaitId | MessageFate:
    """Return the fate of the message of a step that was run before."""
    waits = [wait.id for wait in turns.waits_of(part, row) if wait.n == n and wait.kind is WaitKind.CHILD]
    if waits:
        return waits[0]
    given = (part.turns[turn].given_by, part.turns[turn].given_n)
    return MessageFate.BEGUN if given == (row.turn.id, n) else MessageFate.JOINED


def _refusal_of_message(part: Part, row: TurnRow, child: SessionRow) -> SpawnRefusal | None:
    if row.turn.state is TurnState.STOPPING:
        return SpawnRefusal.STOPPING
    assert child.task is not None
    assert child.session.lineage is not None
    return child_rules.refusal_of_message(
        hops_of(part, row.turn.id),
        part.turns[child.task].turn.state,
        live_child=child.live,
        in_turn=len(row.tasks),
        live=len(part.sessions[child.session.lineage.root].live_below),
    )


def _join(
    part: Part, row: TurnRow, n: int, child: SessionRow, new: NewMessage, message: Inbound
) -> WaitId | MessageFate:
    """Store a message in the task at work, which the sender waits for if it wants to and nobody else does."""
    assert child.task is not None
    received = turns.receive(part, new.child, message, child.task)
    part.events.put(event_of(message), f"{received.id} {child.task}")
    part.touched.turns.add(child.task)
    hops = max(part.turns[child.task].hops, hops_of(part, row.turn.id))
    part.relink_turn(child.task, hops=hops)
    if new.waits is None or child.parent_wait is not None:
        return MessageFate.JOINED
    return _await(part, row, n, child, new)


def _begin_again(
    part: Part, row: TurnRow, n: int, child: SessionRow, new: NewMessage, message: Inbound
) -> WaitId | MessageFate:
    """Give a child that has ended a further task. Its rights are cut to those of its parent now."""
    lineage = child.session.lineage
    assert lineage is not None
    above = part.sessions[row.turn.session].session
    session = changed(
        child.session,
        lineage=child_rules.with_limits(
            child_rules.lineage_anew(lineage, above, row.turn.id, n, row.turn.conversation), new
        ),
        tools=tuple(tool for tool in child.session.tools or () if tool in new.tools),
        presets_above=(*above.presets_above, above.preset),
        tools_off=above.tools_off,
        active_at=part.now,
    )
    known = part.set_session(new.child, session=session, live=True, parent_wait=None)
    root = part.sessions[lineage.root]
    part.set_session(lineage.root, live_below=(*root.live_below, new.child))
    task = turns.begin_turn(part, known, row.turn.principal, message)
    part.events.put(event_of(message), f"{task.inputs[0]} {task.turn.id}")
    child = part.set_session(new.child, task=task.turn.id)
    give(part, row.turn.id, n, task.turn.id)
    return MessageFate.BEGUN if new.waits is None else _await(part, row, n, child, new)


def _await(part: Part, row: TurnRow, n: int, child: SessionRow, new: NewMessage) -> WaitId:
    """Open the wait of a step on the present task of a child, which ends without being stopped when time is up."""
    assert new.waits is not None
    assert child.task is not None
    assert child.session.lineage is not None
    above = part.sessions[row.turn.session].session
    lineage = child_rules.lineage_anew(child.session.lineage, above, row.turn.id, n, row.turn.conversation)
    wait = WaitId(part.mint("w"))
    session = changed(child.session, lineage=changed(lineage, mode=SpawnMode.RUN))
    part.set_session(new.child, session=session, parent_wait=wait)
    give(part, row.turn.id, n, child.task)
    part.set_step(row.turn.id, n, state=StepState.ASKED)
    payload = {"child": new.child, GOES_ON: True}
    opened = NewWait(id=wait, kind=WaitKind.CHILD, n=n, approval=None, payload=payload, expires_in=new.waits)
    turns.open_wait(part, row, opened)
    return wait


def tell(part: Part, lease: Lease, n: int, text: str) -> MessageFate | SpawnRefusal:
    """Store a message of a child at work in its parent's session. Each is one hop more of its task."""
    row = turns.held(part, lease)
    child = part.sessions[row.turn.session]
    lineage = child.session.lineage
    if lineage is None or child.task != row.turn.id:
        raise child_rules.no_parent(child.session.id)
    spawning = part.turns[lineage.turn].turn
    message = child_rules.message_up(child.session, row.turn.id, n, text, spawning.conversation, part.now)
    if part.events.get(event_of(message)) is not None:
        return MessageFate.JOINED
    hops = hops_of(part, row.turn.id)
    refused = child_rules.refusal_of_message_up(
        hops,
        stopping=row.turn.state is TurnState.STOPPING or not turns.is_heard(part, spawning),
        awaited=child.parent_wait is not None,
    )
    if refused is not None:
        return refused
    step = part.steps.get((lease.turn, n))
    if step is None or step.step.state is not StepState.STARTED or step.fence != row.fence:
        raise child_rules.not_started(lease, n)
    turns.message_parent(part, spawning, message, hops + 1)
    part.relink_turn(row.turn.id, hops=hops + 1)
    part.events.put(event_of(message), SAID)
    return MessageFate.JOINED


def stop_child(part: Part, parent: SessionId, child: SessionId, text: str, only: Principal | None) -> int:
    """Stop a child and all below it."""
    found = part.sessions.get(child)
    if found is None or not is_below(part, child, parent):
        raise NotFound(f"There is no sub-session {child} below {parent}.")
    if only is not None and found.task is not None and part.turns[found.task].turn.principal != only:
        raise child_rules.of_another(child)
    return turns.stop_below(part, child, text)
