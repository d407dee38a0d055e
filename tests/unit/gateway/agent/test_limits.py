from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from gateway.agent.limits import active_limit, beyond, tokens_limit, tokens_used
from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.sessions import Session
from gateway.domain.turns import TurnLimits
from gateway.domain.waits import Wait, WaitKind, WaitState
from tests.support.makers import EPOCH
from tests.support.turns import answered, lineage, session, turn_view

LIMITS = TurnLimits(calls=2, active=timedelta(minutes=15), tokens=1_000)
ROOT, CHILD = session(), session(of=lineage(active_s=90, tokens=100))


def child_wait(payload: Mapping[str, Any], state: WaitState = WaitState.ANSWERED) -> Wait:
    return Wait(
        id=WaitId("w"),
        kind=WaitKind.CHILD,
        session=SessionId("s"),
        turn=TurnId("t"),
        n=1,
        state=state,
        approval=None,
        payload=payload,
        opened_at=EPOCH,
        expires_at=EPOCH,
    )


@pytest.mark.parametrize(
    ("of", "answers", "tokens", "worked_s", "said"),
    [
        (ROOT, 1, 10, 1, ""),
        (ROOT, 6, 10, 900, ""),
        (ROOT, 7, 1, 1, "Stopped: the model was asked 7 times in this turn. Write again to go on."),
        (ROOT, 1, 10, 901, "Stopped: this turn worked for 15 min. Write again to go on."),
        (ROOT, 1, 1_000, 1, "Stopped: this turn used 1,000 tokens; its limit is 1,000. Write again to go on."),
        (CHILD, 1, 99, 90, ""),
        (
            CHILD,
            1,
            10,
            91,
            "Stopped: this sub-session worked for 1 min 30 s. What it did so far holds; spawn another one with a "
            "longer timeout, or for a smaller task.",
        ),
        (
            CHILD,
            1,
            120,
            1,
            "Stopped: this sub-session used 120 tokens; its limit is 100. What it did so far holds; spawn another one "
            "with a smaller task.",
        ),
    ],
)
def test_a_turn_beyond_a_limit_says_which_and_how_to_go_on(
    of: Session, answers: int, tokens: int, worked_s: int, said: str
) -> None:
    view = turn_view(of=of, steps=[answered(n, tokens=tokens) for n in range(answers)])

    assert beyond(view, timedelta(seconds=worked_s), LIMITS) == said


def test_no_limit_of_tokens_is_none() -> None:
    view = turn_view(steps=[answered(0, tokens=10**9)])

    assert beyond(view, timedelta(), TurnLimits(tokens=0), untold=10**9) == ""


def test_reserved_tokens_of_sub_sessions_are_not_called_used() -> None:
    view = turn_view(steps=[answered(0, tokens=400)])

    assert beyond(view, timedelta(), LIMITS, untold=599) == ""
    said = "this turn used 400 tokens, and 600 are its sub-sessions'; its limit is 1,000"
    assert beyond(view, timedelta(), LIMITS, untold=600) == f"Stopped: {said}. Write again to go on."


def test_a_child_has_its_own_limits() -> None:
    root, child = turn_view(), turn_view(of=CHILD)

    assert (active_limit(root, LIMITS), tokens_limit(root, LIMITS)) == (timedelta(minutes=15), 1_000)
    assert (active_limit(child, LIMITS), tokens_limit(child, LIMITS)) == (timedelta(seconds=90), 100)


def test_tokens_of_ended_children_count_for_their_parent() -> None:
    waits = [
        child_wait({"state": "done", "input_tokens": 100, "output_tokens": 10}),
        child_wait({"child": "c"}, WaitState.OPEN),
        child_wait({"state": "failed", "input_tokens": "many"}),
    ]

    assert tokens_used(turn_view(steps=[answered(0, tokens=7)], waits=waits)) == 117
