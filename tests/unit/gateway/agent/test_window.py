from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.transcript import messages
from gateway.agent.window import CHARS_PER_TOKEN, chars_of, chars_per_token, fitted, shortened, split, window
from gateway.domain.steps import Step
from gateway.domain.views import TurnView
from tests.support.turns import answered, asked, called, turn_view


def turn(name: str, chars: int = 100, *, results: Sequence[int] = (), tokens: int = 0) -> TurnView:
    """Return an ended turn with a message and results of these lengths."""
    steps: list[Step] = []
    if results:
        calls = [called(n, text="r" * size) for n, size in enumerate(results, start=1)]
        steps = [answered(0, calls=[one.call for one in calls if one.call]), *calls]
    steps.append(answered(len(steps), "ok", tokens=tokens))
    return turn_view(id=name, inputs=[asked("q" * chars)], steps=steps)


def ids(views: Sequence[TurnView]) -> list[str]:
    return [view.turn.id for view in views]


TOKENS = 100_000
FIVE = [turn(f"t{n}") for n in range(5)]
EACH = chars_of(FIVE[0])


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (0, []),
        (-100, []),
        (EACH - 1, []),
        (EACH, ["t4"]),
        (2 * EACH, ["t3", "t4"]),
        (3 * EACH - 1, ["t3", "t4"]),
        (5 * EACH, ["t0", "t1", "t2", "t3", "t4"]),
        (10**9, ["t0", "t1", "t2", "t3", "t4"]),
    ],
)
def test_the_newest_turns_that_fit_are_given_in_order(room: int, expected: list[str]) -> None:
    assert ids(window(FIVE, room)) == expected


def test_turn_longer_than_the_window_cuts_its_long_results() -> None:
    huge = turn("huge", results=[50_000, 10, 200_000])
    history = [turn("old", 9_000), huge, turn("new", 9_000)]
    found = window(history, 20_000)

    assert ids(found) == ["huge", "new"]
    assert sum(chars_of(view) for view in found) <= 20_000
    texts = [step.result.text for step in found[0].steps if step.result]
    assert texts[1] == "r" * 10
    assert all(one.startswith("rrr") and one.endswith("rrr") and "not given again" in one for one in texts[::2])


def test_a_turn_that_fits_beside_fewer_is_never_shortened() -> None:
    history = [turn("old", results=[5_000]), turn("new", results=[5_000])]

    assert window(history, 9_000) == (history[1],)
    assert window(history, 20_000) == tuple(history)


def test_a_turn_that_is_long_by_what_was_said_is_left_out() -> None:
    assert window([turn("long", 50_000)], 10_000) == ()


sizes = st.lists(st.tuples(st.integers(0, 3_000), st.lists(st.integers(0, 30_000), max_size=4)), max_size=8)


@given(sizes, st.integers(0, 60_000))
def test_window_fits_and_keeps_every_result_of_the_last_turns(made: list[tuple[int, list[int]]], room: int) -> None:
    history = [turn(f"t{n}", chars, results=results) for n, (chars, results) in enumerate(made)]
    found = window(history, room)

    assert sum(chars_of(view) for view in found) <= room
    assert ids(found) == ids(history)[len(history) - len(found) :]
    for view, before in zip(found, history[len(history) - len(found) :], strict=True):
        assert [step.n for step in view.steps] == [step.n for step in before.steps]
        assert view == before or chars_of(before) > room
        assert [type(one) for one in messages([], view, "")] == [type(one) for one in messages([], before, "")]


@given(sizes, st.integers(0, 60_000), st.integers(0, 10_000))
def test_more_room_never_gives_fewer_turns(made: list[tuple[int, list[int]]], room: int, more: int) -> None:
    small = [(chars, [min(one, 2_000) for one in results[:2]]) for chars, results in made]
    history = [turn(f"t{n}", chars, results=results) for n, (chars, results) in enumerate(small)]
    most = max([chars_of(view) for view in history], default=0)

    assert len(window(history, most + room + more)) >= len(window(history, most + room))


@pytest.mark.parametrize(
    ("chars", "turns", "kept"),
    [
        (10**6, 2, 2),
        (10**6, 1, 1),
        (10**6, 9, 5),
        (2 * EACH, 9, 2),
        (0, 9, 1),  # the newest always stays
    ],
)
def test_a_summary_takes_the_place_of_what_is_older(chars: int, turns: int, kept: int) -> None:
    older, newest = split(FIVE, chars, turns)

    assert [*older, *newest] == FIVE
    assert len(newest) == kept
    assert split([], chars, turns) == ([], [])


# --- how long a token is --------------------------------------------------------------------------


def test_without_figures_a_token_has_three_and_a_half_characters() -> None:
    assert chars_per_token([], 1_000, TOKENS) == chars_per_token(FIVE, 1_000, TOKENS) == CHARS_PER_TOKEN == 3.5


def test_the_newest_figures_say_how_long_a_token_is() -> None:
    counted = turn("counted", 2_000, tokens=1_000)
    read = 1_000 + EACH + chars_of(counted) - len("ok") - 20

    assert chars_per_token([FIVE[0], counted], 1_000, TOKENS) == pytest.approx(read / 1_000)
    assert chars_per_token([FIVE[0], counted, FIVE[1]], 1_000, TOKENS) == pytest.approx(read / 1_000)


@pytest.mark.parametrize(("tokens", "expected"), [(1, 5.0), (10**9, 1.0)])
def test_figures_of_something_else_are_not_believed(tokens: int, expected: float) -> None:
    assert chars_per_token([turn("odd", 2_000, tokens=tokens)], 0, TOKENS) == expected


def test_requests_without_older_turns_do_not_widen_the_window() -> None:
    """Otherwise each turn that is left out makes the next window wider, until the model refuses it."""
    all_given = turn("given", 1_000, tokens=1_000)
    left_out = [turn(f"t{n}", 1_000, tokens=3_000) for n in range(10)]

    assert chars_per_token([all_given, *left_out], 0, 3_000) == pytest.approx(1.0, abs=0.05)
    assert chars_per_token([all_given, *left_out], 0, TOKENS) > 3  # they all fitted


def test_a_token_that_has_become_shorter_is_believed_even_so() -> None:
    history = [turn("latin", 4_000, tokens=1_000), *(turn(f"t{n}", 1_000, tokens=5_000) for n in range(5))]

    assert chars_per_token(history, 0, 1_500) < 2


# --- shortening -----------------------------------------------------------------------------------


def test_shortening_touches_results_alone() -> None:
    before = turn("t", results=[9_000])
    after = shortened(before, 2_000)

    assert (after.inputs, after.steps[0], after.steps[2]) == (before.inputs, before.steps[0], before.steps[2])
    assert shortened(FIVE[0], 1) is FIVE[0]


def result_sizes(view: TurnView) -> list[int]:
    return [len(step.result.text) for step in view.steps if step.result]


def test_short_result_leaves_its_share_to_longer_ones() -> None:
    before = turn("t", results=[100, 50_000, 3_000, 100])
    after = shortened(before, 20_000)

    found = result_sizes(after)
    assert (found[0], found[2], found[3]) == (100, 3_000, 100)
    assert found[1] > 15_000
    assert chars_of(after) <= 20_000


def working(*results: Sequence[int]) -> TurnView:
    """Return a running turn: an answer for each item, with calls and results of these lengths."""
    steps: list[Step] = []
    for sizes_of_one in results:
        at = len(steps)
        calls = [replace(called(at + n, text="r" * size), answer_n=at) for n, size in enumerate(sizes_of_one, start=1)]
        steps += [answered(at, calls=[one.call for one in calls if one.call]), *calls]
    return turn_view(inputs=[asked("q")], steps=steps)


@pytest.mark.parametrize(
    ("results", "whole"),
    [
        ([[9_000], [9_000]], [True, True]),
        ([[4_000], [30_000], [9_000, 5_000]], [True, False, True, True]),
        ([[30_000], [30_000], [19_000]], [False, False, True]),
        ([[300], [30_000, 100]], [True, False, True]),  # they alone are too long
        ([[30_000], [30_000, 100]], [False, False, True]),
        ([[30_000]], [False]),
    ],
)
def test_current_turn_keeps_its_newest_results_that_fit(results: list[list[int]], whole: list[bool]) -> None:
    before = working(*results)
    after = fitted(before, 25_000)

    assert chars_of(after) <= 25_000
    assert [now == then for now, then in zip(result_sizes(after), result_sizes(before), strict=True)] == whole
    assert [step.n for step in after.steps] == [step.n for step in before.steps]


def test_a_turn_that_is_long_by_what_was_said_stays_as_it_is() -> None:
    assert fitted(FIVE[0], 1) == FIVE[0]
