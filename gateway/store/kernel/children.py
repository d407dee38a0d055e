"""Transitions of sub-sessions: spawn and stop. `turns` reports their end."""

from __future__ import annotations

from gateway.domain.children import Lineage, NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, WaitId
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import NewWait, WaitKind
from gateway.errors import NotFound
from gateway.store import child_rules
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import SessionRow, TurnRow


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
    lineage = child_rules.lineage_below(parent, lease, n, row.turn.conversation, child)
    live = len(part.sessions[lineage.root].live_below)
    refused = child_rules.refusal(lineage.depth, in_turn=len(row.children), live=live)
    if refused is not None:
        return refused
    wait = WaitId(part.mint("w")) if lineage.mode is SpawnMode.RUN else None
    _begin_child(part, row, child, parent, lineage, wait)
    if wait is not None:
        _wait_for(part, row, n, wait, child)
    return wait


def _begin_child(
    part: Part, row: TurnRow, child: NewChild, parent: Session, lineage: Lineage, wait: WaitId | None
) -> None:
    session = Session(
        id=child.session,
        kind=SessionKind.NON_MAIN,
        origin=Origin.CHILD,
        owner=parent.owner,
        title=child.title,
        epoch=0,
        root_kind=parent.root_kind,
        tools=child.tools,
        created_at=part.now,
        active_at=part.now,
        lineage=lineage,
        preset=child.preset,
        presets_above=(*parent.presets_above, parent.preset),
        tools_off=parent.tools_off,
    )
    known = SessionRow(session=session, live=True, parent_wait=wait)
    part.sessions.put(session.id, known)
    root = part.sessions[lineage.root]
    part.set_session(lineage.root, live_below=(*root.live_below, session.id))
    part.relink_turn(row.turn.id, children=(*row.children, session.id))
    message = child_rules.first_message(child, part.now)
    task = turns.begin_turn(part, known, row.turn.principal, message)
    part.set_session(session.id, task=task.turn.id)


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
