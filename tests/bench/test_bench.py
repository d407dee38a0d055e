"""Small run of the bench itself, so that it cannot rot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import run_rows
from tests.bench.figures import HEAD, Decision, Figure, table
from tests.bench.rows.turns import CPU_DECIDED, OPERATOR_DECIDED, SHELL_DECIDED
from tests.bench.world import GRAPH_LAYERS, SLOW_S, TINY


async def test_two_cheap_rows() -> None:
    """Each figure is there, more than nothing, and printable."""
    rows = [figures async for _, figures in run_rows(["operator", "commits"], TINY, None)]
    figures = [figure for found in rows for figure in found]
    assert [figure.what for figure in figures][3] == "commits of the leanest turn"
    assert len(figures) == 6
    assert all(figure.value > 0 for figure in figures)
    assert all(figure.ratio for figure in figures if figure.floor is not None)
    assert len(table([HEAD, *(figure.cells() for figure in figures)])) == 7
    json.dumps([figure.as_json() for figure in figures])


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_rows_on_telegrams_wire() -> None:
    """A turn beside the bare loop, and an outbox beside the bare SDK: nothing that Telegram would find odd."""
    rows = [figures async for _, figures in run_rows(["telegram-model", "telegram-sends"], TINY, None)]
    figures = [figure for found in rows for figure in found]
    assert len(figures) == 4
    assert all(figure.value > 0 and figure.ratio for figure in figures)


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_rows_of_an_agent() -> None:
    """Calls side by side and sub-sessions: each commits more than a turn without, and all of them end."""
    rows = [figures async for _, figures in run_rows(["telegram-calls", "telegram-children"], TINY, None)]
    figures = [figure for found in rows for figure in found]
    assert len(figures) == 7
    # What is left of a call without its turn is a difference, and of so few turns it may be less than nothing.
    assert all(figure.value > 0 or " beyond " in figure.what for figure in figures)
    assert all(figure.ratio is not None for figure in figures)
    assert all(figure.ratio and figure.ratio > 1 for figure in figures if figure.what.endswith("commits"))


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_row_of_a_page_that_is_read() -> None:
    """The reading room takes memory while it is used, and the daemon keeps next to none of it."""
    ((_, (most, after)),) = [row async for row in run_rows(["reading"], TINY, None)]
    assert most.floor is not None
    assert most.floor < after.value < most.value < most.floor + 60


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_row_of_a_workflow() -> None:
    """It takes at least its longest path, and far less than its steps one after the other."""
    ((_, (figure,)),) = [row async for row in run_rows(["workflow"], TINY, None)]
    assert figure.value > len(GRAPH_LAYERS) * SLOW_S * 1_000
    assert figure.ratio is not None
    assert figure.ratio < sum(GRAPH_LAYERS) / len(GRAPH_LAYERS)


async def test_row_of_a_question() -> None:
    """It costs what a card does: the budget is a difference, so that a busy machine changes little."""
    ((_, (card, beyond)),) = [row async for row in run_rows(["question"], TINY, None)]
    assert card.value > 0
    assert beyond.value < card.value


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_rows_on_slacks_wire() -> None:
    """Events, messages and streams beside the bare SDK. Speed is for the bench; counts are for tests/fault."""
    rows = [figures async for _, figures in run_rows(["slack-events", "slack-sends", "slack-stream"], TINY, None)]
    figures = [figure for found in rows for figure in found]
    assert len(figures) == 6
    assert all(figure.ratio for figure in figures if figure.floor is not None)
    (calls,) = [figure for figure in figures if figure.budget is not None]
    assert calls.value > 0


@pytest.mark.parametrize(
    ("row", "count"), [("growth-sessions", 6), ("growth-history", 7), ("growth-children", 4), ("growth-queue", 8)]
)
@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_rows_of_what_grows(row: str, count: int) -> None:
    """Full stores beside almost empty ones: turns, what they cost, and memory; the largest alone has a budget."""
    figures = [figure async for _, found in run_rows([row], TINY, None) for figure in found]
    assert len(figures) == count
    assert all(figure.value > 0 for figure in figures)
    assert sum(figure.floor is None for figure in figures) == sum(figure.budget is not None for figure in figures)


@pytest.mark.whole("the bench; test_two_cheap_rows stays")
async def test_the_row_of_the_browser() -> None:
    """A page is opened, read and shown by the tool, and by playwright alone."""
    ((_, figures),) = [row async for row in run_rows(["browser"], TINY, None)]
    assert len(figures) == 4
    assert all(figure.value > 0 and figure.ratio for figure in figures)


def test_a_missed_budget_is_named() -> None:
    """Above the budget is NO, unless the floor says that the machine is slow; the least may not be passed below."""
    assert Figure(what="a", value=11, budget=10).holds == "NO"
    assert Figure(what="a", value=11, floor=2, budget=10, times=6).holds == "by ratio"
    assert Figure(what="a", value=13, floor=2, budget=10, times=6).holds == "NO"
    assert Figure(what="a", value=10, budget=10).holds == "yes"
    assert Figure(what="a", value=49, budget=50, at_least=True).holds == "NO"
    assert Figure(what="a", value=1).holds == ""
    assert Figure(what="a", value=5, budget=10).part == 0.5


def test_a_miss_that_was_decided_names_its_decision() -> None:
    """As far as the decision allows: by the floor or by the budget. Above that it is a miss, and what holds says so."""
    of_floor = Decision(number="0026", times=4.65, of="floor")
    of_budget = Decision(number="0027", times=4 / 3, of="budget")
    assert Figure(what="a", value=9.2, floor=2, budget=4.5, times=3.75, decided=of_floor).holds == "decided (0026)"
    assert Figure(what="a", value=9.4, floor=2, budget=4.5, times=3.75, decided=of_floor).holds == "NO"
    assert Figure(what="a", value=7.5, floor=2, budget=4.5, times=3.75, decided=of_floor).holds == "by ratio"
    assert Figure(what="a", value=9, budget=4.5, decided=of_floor).holds == "NO", "no floor, no ratio"
    step = Figure(what="a", value=16, floor=2, budget=12, decided=of_budget)
    assert step.holds == "decided (0027)"
    assert Figure(what="a", value=16.1, floor=2, budget=12, decided=of_budget).holds == "NO"
    assert Figure(what="a", value=12, floor=2, budget=12, decided=of_budget).holds == "yes"
    assert step.cells()[4] == "≤ 12.0 (0027: 1.333 x budget)"
    assert json.loads(json.dumps(step.as_json()))["decided"] == {"number": "0027", "times": 4 / 3, "of": "budget"}


def test_decisions_that_rows_name_are_there() -> None:
    """Each file says of itself what the row takes from it."""
    folder = Path(__file__).parents[2] / "gateway" / "decisions"
    said = {
        CPU_DECIDED: "missed by 0.4 to 0.9 of it",
        SHELL_DECIDED: "by a third",
        OPERATOR_DECIDED: "up to 5.75 times the floor is allowed",
    }
    for decision, words in said.items():
        (file,) = folder.glob(f"{decision.number}-*.md")
        assert words in " ".join(file.read_text().split())
