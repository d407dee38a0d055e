"""Transitions of leases: a turn is held by one node at a time, which claims, renews, parks or releases it.

`journal.finish_turn` ends it, because that stores its last answer. A fence counts the leases of a turn: `turns.held`
refuses what an earlier one writes.
"""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.ids import NodeId, TurnId
from gateway.domain.steps import StepState
from gateway.domain.turns import LEASE_LASTS, Lease, TurnState
from gateway.domain.waits import WaitState, escalates
from gateway.errors import LeaseLost
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import TurnRow, is_for, not_before


def claim(part: Part, node: NodeId, turn: TurnId, home: str = "") -> Lease | None:
    """Lease a turn to a node whose files are at `home`; None when it may not run there, or not any longer."""
    row = part.turns[turn]
    gathers = row.gathers_until is not None and row.gathers_until > part.now
    may_run = row.turn.state is TurnState.QUEUED and is_for(row, home) and turns.may_run(part, row)
    if gathers or not may_run:
        return None
    until = part.now + LEASE_LASTS
    started_at = row.turn.started_at or not_before(part.sessions[row.turn.session].last_end, part.now)
    row = part.set_turn(
        turn,
        of_turn={"state": TurnState.RUNNING, "started_at": started_at},
        node=node,
        fence=part.next_fence(row.fence),
        lease_until=until,
        held_since=part.now,
        gathers_until=None,
    )
    return Lease(turn=turn, session=row.turn.session, node=node, fence=row.fence, home=home)


def renew(part: Part, lease: Lease) -> TurnState:
    """Extend the lease."""
    row = turns.held(part, lease)
    since = row.held_since
    if since is not None and row.lease_until is not None:  # between expiry and now nobody worked
        since += max(timedelta(), part.now - row.lease_until)
    part.relink_turn(lease.turn, held_since=since, lease_until=part.now + LEASE_LASTS)
    return row.turn.state


def park(part: Part, lease: Lease) -> bool:
    """Release the lease until a wait is decided."""
    row = turns.held(part, lease)
    if row.turn.state is not TurnState.RUNNING or not _only_waits(part, row):
        return False
    turns.let_go(part, lease.turn, TurnState.PARKED)
    return True


def _only_waits(part: Part, row: TurnRow) -> bool:
    """Return whether a wait is open, and every call without a result waits: nothing runs or can run."""
    open_waits = [wait for wait in turns.waits_of(part, row) if wait.state is WaitState.OPEN]
    open_steps = {wait.n for wait in open_waits if not escalates(wait)}
    unfinished = {step.n for step in turns.steps_of(part, row) if step.state is not StepState.FINISHED}
    return bool(open_steps) and unfinished <= open_steps


def release(part: Part, lease: Lease) -> None:
    """Return the turn to the queue."""
    try:
        row = turns.held(part, lease)
    except LeaseLost:
        return
    if row.turn.state is TurnState.STOPPING:
        turns.end_stopped(part, lease.turn)
    else:
        turns.queue(part, lease.turn)
