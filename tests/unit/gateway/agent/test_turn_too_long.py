"""Turns whose model refuses a request as too long."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.domain.prompts import CallResult, Complete, ModelEvent, ModelRequest, UserText
from gateway.domain.steps import Answer
from gateway.domain.tools import Risk, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.views import Claimed
from gateway.errors import ModelError
from gateway.ports import ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, calls
from tests.support.makers import result
from tests.unit.gateway.agent.test_turn import people_said, ran, spoken, turn_of


@pytest.fixture
def read() -> FakeTool:
    return FakeTool(name="read", risk=Risk.READ)


@pytest.fixture
def engine(tmp_path: Path, read: FakeTool) -> Engine:
    return Engine(tmp_path, [read])


TOO_LONG = ModelError("The request is too long for the model.", cure="Say /new to begin anew.", too_long=True)


async def test_request_too_long_is_repeated_with_the_newer_half(engine: Engine) -> None:
    await spoken(engine, "one", "two", "three")
    engine.model.script = [TOO_LONG, Answer(text="Now.")]
    lease = await ran(engine, "four")

    assert [people_said(one) for one in engine.model.requests] == [["one", "two", "three", "four"], ["three", "four"]]
    assert (await engine.texts())[-1] == "Now."
    assert (await turn_of(engine, lease)).state is TurnState.DONE


async def test_a_request_that_stays_too_long_says_the_cure(engine: Engine) -> None:
    await spoken(engine, "one")
    engine.model.script = [TOO_LONG, TOO_LONG]
    lease = await ran(engine, "two")

    assert len(engine.model.requests) == 2
    assert (await turn_of(engine, lease)).state is TurnState.FAILED
    said = "The model could not answer: The request is too long for the model. Say /new to begin anew."
    assert (await engine.texts())[-1] == said


async def test_without_a_history_to_leave_out_nothing_is_asked_twice(engine: Engine) -> None:
    engine.model.script = [TOO_LONG]
    await ran(engine)

    assert len(engine.model.requests) == 1
    assert (await engine.texts())[-1].endswith("Say /new to begin anew.")


@dataclass(slots=True)
class Narrow:
    """Model with a limit of characters for messages and results, which makes that many calls."""

    chars: int
    rounds: int
    name: str = "narrow"
    note: str = ""
    """Sentence in its answers that says that it stepped in."""
    read: list[int] = field(default_factory=list[int])

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Refuse, call, or answer."""
        said = [one.text for one in request.messages if isinstance(one, UserText | Answer)]
        found = [one.result.text for one in request.messages if isinstance(one, CallResult)]
        self.read.append(sum(map(len, [*said, *found])))
        if self.read[-1] > self.chars:
            raise TOO_LONG
        answer = calls(f"read:{len(found)}") if len(found) < self.rounds else Answer(text="Done.")
        yield Complete(answer=replace(answer, note=self.note))


async def long_results(ctx: ToolContext, args: Text) -> ToolResult:
    return result("r" * 50_000)


async def test_a_turn_of_many_long_results_comes_to_its_end(engine: Engine, read: FakeTool) -> None:
    read.body = long_results
    engine.models.model = model = Narrow(chars=360_000, rounds=12)
    lease = await ran(engine)

    assert (await turn_of(engine, lease)).state is TurnState.DONE
    assert len(model.read) == 13  # the older results were cut before anybody said that they are too long


async def test_results_too_long_for_a_small_model_are_cut_and_stay_cut(engine: Engine, read: FakeTool) -> None:
    read.body = long_results
    engine.models.model = model = Narrow(chars=60_000, rounds=6)
    lease = await ran(engine)

    assert (await turn_of(engine, lease)).state is TurnState.DONE
    assert sum(chars > 60_000 for chars in model.read) == 1
    assert len(model.read) == 8


async def test_fitting_prompt_is_the_start_of_the_turns_later_steps(engine: Engine) -> None:
    await spoken(engine, *("x" * 10_000 for _ in range(5)))
    engine.models.model = model = Narrow(chars=30_000, rounds=8)
    await ran(engine)

    assert sum(chars > 30_000 for chars in model.read) == 1
    assert len(model.read) == 10


async def test_the_third_time_it_is_asked_without_any_history(engine: Engine) -> None:
    await spoken(engine, *("x" * 10_000 for _ in range(8)))
    engine.models.model = model = Narrow(chars=1_000, rounds=0)
    lease = await ran(engine)

    assert (await turn_of(engine, lease)).state is TurnState.DONE
    assert [chars > 1_000 for chars in model.read] == [True, True, False]


@pytest.mark.parametrize(("note", "hard"), [("", True), ("small answered: main rests", False)])
async def test_history_too_long_for_a_fallback_is_not_summarised(engine: Engine, note: str, hard: bool) -> None:
    """Its session's own model is back soon, and can read all of it."""
    await spoken(engine, *("x" * 10_000 for _ in range(5)))
    engine.models.model = Narrow(chars=30_000, rounds=0, note=note)
    await engine.say("now")
    long = await engine.turns.begin(Claimed(lease=await engine.claim(), view=None)).run()

    assert (long is not None and long.hard) is hard
