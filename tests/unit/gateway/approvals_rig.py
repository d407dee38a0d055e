"""An approval as it is stored, for the tests of approvals and of what their cards show."""

from __future__ import annotations

from datetime import timedelta

from gateway.model.ids import Principal, TurnId, WaitId, main_session
from gateway.model.waits import Wait, WaitKind, WaitState
from tests.support.makers import (
    ANN,
    EPOCH,
    approval,
)

WAIT = WaitId("w0123456789abcdef")


def wait(state: WaitState = WaitState.OPEN, *, who: Principal | None = None, reason: str = "") -> Wait:
    """One that was asked for an hour."""
    return Wait(
        id=WAIT,
        kind=WaitKind.APPROVAL,
        session=main_session(ANN),
        turn=TurnId("t1"),
        n=1,
        state=state,
        approval=approval(1),
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_by=who,
        decided_at=EPOCH if who else None,
        reason=reason,
    )
