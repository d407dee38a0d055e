"""Rules for presses and stops: tables of pure decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.domain.ids import Principal, SessionId, TurnId, WaitId
from gateway.domain.turns import TurnState
from gateway.domain.waits import PressResult, PressVerdict, Wait, WaitKind, WaitState
from gateway.store.call_rules import is_stopped_by, result_of_press
from tests.support.makers import ANN_TELEGRAM, BOB, EPOCH, approval, approve, deny, refuse

OPEN = Wait(
    id=WaitId("w1"),
    kind=WaitKind.APPROVAL,
    session=SessionId("main:ann"),
    turn=TurnId("t1"),
    n=1,
    state=WaitState.OPEN,
    approval=approval(1),
    payload={},
    opened_at=EPOCH,
    expires_at=EPOCH + timedelta(seconds=1),
)


@pytest.mark.parametrize(
    ("other", "verdict", "result"),
    [
        ({}, approve(), PressResult.APPROVED),
        ({}, deny(), PressResult.DENIED),
        ({}, deny(withdraw_siblings=True), PressResult.DENIED),
        ({}, refuse(), PressResult.NOT_ALLOWED),
        ({"state": WaitState.DENIED}, refuse(), PressResult.NOT_ALLOWED),
        ({"expires_at": EPOCH}, approve(), PressResult.EXPIRED),
        ({"expires_at": EPOCH + timedelta(microseconds=1)}, approve(), PressResult.APPROVED),
        *(({"kind": kind}, approve(), PressResult.NOT_VALID) for kind in WaitKind if kind is not WaitKind.APPROVAL),
        ({"state": WaitState.EXPIRED}, approve(), PressResult.EXPIRED),
        ({"state": WaitState.SUPERSEDED}, approve(), PressResult.EXPIRED),
        ({"state": WaitState.APPROVED}, deny(), PressResult.ALREADY),
        ({"state": WaitState.CONSUMED}, approve(), PressResult.ALREADY),
        ({"state": WaitState.DENIED}, approve(), PressResult.ALREADY),
        ({"state": WaitState.CANCELLED}, approve(), PressResult.ALREADY),
        ({"state": WaitState.DENIED, "expires_at": EPOCH}, approve(), PressResult.ALREADY),
    ],
)
def test_a_press_decides_what_is_open_and_nothing_else(
    other: dict[str, Any], verdict: PressVerdict, result: PressResult
) -> None:
    assert result_of_press(replace(OPEN, **other), verdict, EPOCH) is result


def test_a_press_on_nothing_is_not_valid_unless_it_was_refused() -> None:
    assert result_of_press(None, approve(), EPOCH) is PressResult.NOT_VALID
    assert result_of_press(None, refuse(), EPOCH) is PressResult.NOT_ALLOWED


@pytest.mark.parametrize(
    ("only", "state", "begun", "unheard", "stopped"),
    [
        (None, TurnState.RUNNING, True, False, True),
        (None, TurnState.PARKED, True, False, True),
        (None, TurnState.STOPPING, True, False, False),
        (None, TurnState.QUEUED, False, False, False),
        (None, TurnState.QUEUED, False, True, True),
        (ANN_TELEGRAM, TurnState.RUNNING, True, False, True),
        (BOB, TurnState.RUNNING, True, False, False),
        (BOB, TurnState.QUEUED, False, True, False),
    ],
)
def test_a_stop_reaches_what_is_under_way_and_news_of_children(
    only: Principal | None, state: TurnState, begun: bool, unheard: bool, stopped: bool
) -> None:
    turn = TurnId("t1")
    found = is_stopped_by(only, turn, ANN_TELEGRAM, state, begun=begun, unheard={turn} if unheard else ())
    assert found is stopped
