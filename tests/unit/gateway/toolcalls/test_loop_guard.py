from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.ids import CallId, TurnId
from gateway.domain.steps import Answer, Step, StepKind, StepState
from gateway.domain.tools import ToolCall
from gateway.domain.views import TurnView
from gateway.toolcalls.loop_guard import ASK_FROM, DENY_FROM, checked, repeats, same_call
from tests.support.turns import turn_view


def called(n: int, tool: str, arguments: str = "{}") -> Step:
    call = ToolCall(id=CallId(f"c{n}"), tool=tool, arguments=arguments)
    return Step(turn=TurnId("t"), n=n, kind=StepKind.TOOL, state=StepState.PLANNED, call=call, answer_n=n - 1)


def of(letters: Sequence[str]) -> TurnView:
    """Return a turn with one call per answer."""
    steps: list[Step] = []
    for at, letter in enumerate(letters):
        answer = Answer(text="")
        steps.append(Step(turn=TurnId("t"), n=2 * at, kind=StepKind.MODEL, state=StepState.FINISHED, answer=answer))
        steps.append(called(2 * at + 1, letter.lower()))
    return turn_view(steps=steps)


@pytest.mark.parametrize(
    ("letters", "times"),
    [
        ("A", 0),
        ("AB", 0),
        ("AA", 1),
        ("AAAA", 3),
        ("BAAAA", 3),
        ("AAAB", 0),
        ("ABAB", 1),
        ("ABABAB", 2),
        ("ABABABAB", 3),
        ("XABABABAB", 3),
        ("ABCABCABCABC", 3),
        ("ABCDABCDABCDABCD", 3),
        ("ABCDEABCDEABCDEABCDE", 0),  # a round of five is work
        ("AXAYAZA", 0),  # looking at one thing between others is work
        ("AABAAB", 1),
        ("A" * 12, 11),
    ],
)
def test_rounds_of_up_to_four_calls_are_counted(letters: str, times: int) -> None:
    assert repeats(of(letters), 2 * len(letters) - 1) == times


def test_only_calls_up_to_the_step_count() -> None:
    view = of("AAAAAA")

    assert [repeats(view, n) for n in (1, 3, 5, 7)] == [0, 1, 2, 3]
    assert repeats(view, 0) == 0  # an answer
    assert repeats(view, 99) == 0


def test_same_calls_are_recognised_in_any_form_of_json() -> None:
    one = called(1, "read", '{"a": 1, "b": [1, 2]}')

    assert same_call(one) == 'read {"a":1,"b":[1,2]}'
    assert same_call(one) == same_call(called(3, "read", '{"b":[1,2],"a":1}'))
    assert same_call(replace(one, call=None)) == ""
    assert same_call(one) != same_call(called(3, "read", '{"a": 1, "b": [2, 1]}'))
    assert same_call(one) != same_call(called(3, "write", '{"a": 1, "b": [1, 2]}'))
    assert same_call(called(1, "read", "{nonsense")) == same_call(called(3, "read", "{nonsense"))
    deep = "[" * 100_000
    assert same_call(called(1, "read", deep)) == f"read {deep}"


def test_the_caller_may_say_what_is_the_same() -> None:
    view = turn_view(steps=[called(n, "read", f'{{"n": {n}}}') for n in range(1, 6)])

    assert repeats(view, 5) == 0
    assert repeats(view, 5, lambda step: step.call.tool if step.call else "") == 4


@given(
    st.lists(st.sampled_from("AB"), max_size=8), st.lists(st.sampled_from("CDEF"), min_size=1, max_size=4), st.data()
)
def test_a_round_made_k_more_times_is_k_repeats_at_least(
    before: list[str], cycle: list[str], data: st.DataObject
) -> None:
    times = data.draw(st.integers(0, 5))
    letters = [*before, *cycle * (times + 1)]

    assert repeats(of(letters), 2 * len(letters) - 1) >= times


ALLOW, ASK = Allow(because="read"), Ask(because="it executes")
DENY = Deny(reason=DenyReason.CONFIGURED, hint="No.")


@pytest.mark.parametrize(
    ("decision", "repeated", "expected"),
    [
        (ALLOW, 0, Allow),
        (ALLOW, ASK_FROM - 1, Allow),
        (ALLOW, ASK_FROM, Ask),
        (ALLOW, DENY_FROM - 1, Ask),
        (ALLOW, DENY_FROM, Deny),
        (ASK, ASK_FROM, Ask),
        (ASK, DENY_FROM, Deny),
        (DENY, DENY_FROM, Deny),
    ],
)
def test_repeated_call_is_asked_then_denied(decision: Decision, repeated: int, expected: type) -> None:
    found = checked(decision, repeated)

    assert isinstance(found, expected)
    if decision is DENY:
        assert found is DENY
    elif isinstance(found, Deny):
        assert (found.reason, str(DENY_FROM) in found.hint) == (DenyReason.LOOP, True)
    elif isinstance(found, Ask) and decision is ALLOW:
        assert f"{repeated} times" in found.because
    else:
        assert found is decision


def test_the_thresholds() -> None:
    assert (ASK_FROM, DENY_FROM) == (3, 10)
