"""Waits on children, and the ends that they store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.steps import Usage
from gateway.domain.turns import TurnState
from gateway.domain.waits import ChildEnd, Wait, WaitKind, WaitState, used_by_children
from tests.support.makers import EPOCH

USED = Usage(input_tokens=5, output_tokens=6, cost_micros=7)
END = ChildEnd(child=SessionId("child:t.1"), state=TurnState.DONE, text="All 3.", active_ms=1200, usage=USED)
STORED = {
    "child": "child:t.1",
    "state": "done",
    "text": "All 3.",
    "active_ms": 1200,
    "input_tokens": 5,
    "output_tokens": 6,
    "cost_micros": 7,
}


def wait(payload: Mapping[str, Any], kind: WaitKind = WaitKind.CHILD) -> Wait:
    return Wait(
        id=WaitId("w"),
        kind=kind,
        session=SessionId("s"),
        turn=TurnId("t"),
        n=1,
        state=WaitState.ANSWERED,
        approval=None,
        payload=payload,
        opened_at=EPOCH,
        expires_at=EPOCH,
    )


def test_child_end_survives_its_stored_form() -> None:
    assert END.as_payload() == STORED
    assert ChildEnd.of(wait(STORED)) == END


@pytest.mark.parametrize(
    "told",
    [
        wait({}),
        wait({"child": "child:t.1"}),
        wait(STORED | {"state": "running"}),
        wait(STORED | {"state": 7}),
        wait(STORED, WaitKind.TIMER),
    ],
)
def test_child_end_is_none_before_the_end(told: Wait) -> None:
    assert ChildEnd.of(told) is None
    assert used_by_children([told]) == Usage()


def test_child_end_counts_malformed_figures_as_zero() -> None:
    told = ChildEnd.of(wait({"state": "failed", "input_tokens": "many", "active_ms": None}))
    assert told == ChildEnd(child=SessionId(""), state=TurnState.FAILED, text="", active_ms=0, usage=Usage())


def test_usage_of_children_is_summed() -> None:
    found = used_by_children([wait(STORED), wait({"child": "c"}), wait(STORED)])
    assert found == USED + USED == Usage(input_tokens=10, output_tokens=12, cost_micros=14)
    assert Usage(cached_tokens=2) + Usage(cached_tokens=3, input_tokens=9) == Usage(cached_tokens=5, input_tokens=9)
