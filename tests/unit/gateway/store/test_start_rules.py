"""Rules for the start of a call: its approval and its audit row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.domain.audit import StartBasis
from gateway.domain.ids import GrantId, NodeId, SessionId, TurnId, WaitId
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.waits import StartOutcome, Wait, WaitKind, WaitState
from gateway.store.call_rules import audit_row, may_consume
from tests.support.makers import ANN_TELEGRAM, EPOCH, approval, beginning, sha

LEASE = Lease(turn=TurnId("t1"), session=SessionId("main:ann"), node=NodeId("here#1"), fence=1)
ALLOWED = Wait(
    id=WaitId("w1"),
    kind=WaitKind.APPROVAL,
    session=SessionId("main:ann"),
    turn=TurnId("t1"),
    n=1,
    state=WaitState.APPROVED,
    approval=approval(1),
    payload={},
    opened_at=EPOCH,
    expires_at=EPOCH,
    decided_by=ANN_TELEGRAM,
    decided_at=EPOCH,
)
GRANT = GrantId("g1")


@pytest.mark.parametrize(
    ("other", "after_s", "start"),
    [
        ({}, 0, StartOutcome.STARTED),
        ({}, 300, StartOutcome.STARTED),
        ({}, 300.000001, StartOutcome.TOO_OLD),
        *(({"state": state}, 0, StartOutcome.NOT_APPROVED) for state in WaitState if state is not WaitState.APPROVED),
        ({"turn": TurnId("t2")}, 0, StartOutcome.NOT_APPROVED),
        ({"n": 2}, 0, StartOutcome.NOT_APPROVED),
        ({"approval": None}, 0, StartOutcome.NOT_APPROVED),
        ({"approval": approval(2)}, 0, StartOutcome.NOT_APPROVED),
        ({"decided_at": None}, 0, StartOutcome.NOT_APPROVED),
    ],
)
def test_an_approval_is_good_for_one_step_for_five_minutes(
    other: dict[str, Any], after_s: float, start: StartOutcome
) -> None:
    wait = replace(ALLOWED, **other)
    assert may_consume(wait, LEASE, 1, sha(1), EPOCH + timedelta(seconds=after_s)) is start


@pytest.mark.parametrize(
    ("state", "wait", "grant", "basis"),
    [
        (StepState.PLANNED, None, None, StartBasis.SETTINGS),
        (StepState.PLANNED, None, GRANT, StartBasis.GRANT),
        (StepState.ASKED, ALLOWED, None, StartBasis.APPROVAL),
        (StepState.ASKED, ALLOWED, GRANT, StartBasis.APPROVAL),
        (StepState.STARTED, None, None, StartBasis.AGAIN),
        (StepState.STARTED, None, GRANT, StartBasis.AGAIN),
    ],
)
def test_the_row_says_what_let_it_start(
    state: StepState, wait: Wait | None, grant: GrantId | None, basis: StartBasis
) -> None:
    row = audit_row(LEASE, 1, TurnKind.MODEL, state, wait, beginning(1, grant=grant), EPOCH)
    assert row.basis is basis
    assert row.grant == (None if wait else grant)
    assert (row.wait, row.decided_by) == ((wait.id, wait.decided_by) if wait else (None, None))


def test_the_row_holds_no_half_characters() -> None:
    """A state folder may have any name, and its node is called by it; a file holds whole characters only."""
    odd = replace(LEASE, node=NodeId("/state/\udce9#1"))
    assert audit_row(odd, 1, TurnKind.MODEL, StepState.PLANNED, None, beginning(1), EPOCH).node == "/state/\ufffd#1"
