"""Where a call starts, for all stores: whether its approval is good for it, and what the audit's row says. Pure."""

from __future__ import annotations

from datetime import datetime

from gateway.domain.audit import AuditRow, StartBasis, StartRecord
from gateway.domain.ids import NodeId
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.waits import DECISION_GOOD_FOR_S, StartOutcome, Wait, WaitState
from gateway.store.codec import storable


def may_consume(wait: Wait, lease: Lease, n: int, action_sha: str, now: datetime) -> StartOutcome:
    """Whether an approval lets this very step of the leased turn start: STARTED, or why not. TOO_OLD is over by now."""
    if wait.state is not WaitState.APPROVED or (wait.turn, wait.n) != (lease.turn, n):
        return StartOutcome.NOT_APPROVED
    if wait.approval is None or wait.approval.action_sha != action_sha or wait.decided_at is None:
        return StartOutcome.NOT_APPROVED
    if (now - wait.decided_at).total_seconds() > DECISION_GOOD_FOR_S:
        return StartOutcome.TOO_OLD
    return StartOutcome.STARTED


def audit_row(
    lease: Lease, n: int, lane: TurnKind, state: StepState, wait: Wait | None, beginning: StartRecord, now: datetime
) -> AuditRow:
    """Return the row, without its place and its hashes. `state` is the step's before, `wait` the approval it uses."""
    return AuditRow(
        seq=0,
        at=now,
        session=lease.session,
        turn=lease.turn,
        n=n,
        lane=lane,
        tool=beginning.tool,
        action_sha=beginning.action_sha,
        because=_because(state, wait, scoped=beginning.scoped),
        wait=None if wait is None else wait.id,
        decided_by=None if wait is None else wait.decided_by,
        sandbox="" if beginning.sandbox is None else beginning.sandbox.value,
        node=NodeId(storable(lease.node)),
        prev_hash="",
        hash="",
    )


def _because(state: StepState, wait: Wait | None, *, scoped: bool) -> StartBasis:
    if wait is not None:
        return StartBasis.APPROVAL
    if state is StepState.STARTED:
        return StartBasis.AGAIN
    return StartBasis.SCOPE if scoped else StartBasis.SETTINGS
