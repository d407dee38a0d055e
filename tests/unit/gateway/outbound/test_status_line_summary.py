"""Summary in a status line: calls, time, tokens and money of a turn and its children."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.ids import status_slot
from gateway.domain.steps import Answer, Step, StepKind, StepState, Usage
from gateway.domain.views import TurnView
from gateway.domain.waits import WaitKind
from gateway.outbound.status_line import LINE_CHARS, at_work, is_at_work, summary
from gateway.system.redaction import Redactor
from tests.support.makers import EPOCH
from tests.unit.gateway.outbound.test_status_line import SECRET, World, a_step, a_wait, listening


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with listening() as found:
        yield found


def _asked(view: TurnView, n: int, usage: Usage) -> Step:
    given = Answer(text="", usage=usage)
    return Step(turn=view.turn.id, n=n, kind=StepKind.MODEL, state=StepState.FINISHED, answer=given)


async def test_the_summary_counts_what_the_turn_and_its_children_used(world: World) -> None:
    _, view = await world.claimed()
    steps = (
        _asked(view, 0, Usage(input_tokens=2000, output_tokens=100, cost_micros=5_000)),
        a_step(view, 1, 0, 1),
        a_step(view, 2, 0, 1),
        a_step(view, 3, 0, 1, "sessions_spawn"),
    )
    used = {
        "child": "c",
        "state": "done",
        "input_tokens": 1500,
        "output_tokens": 20,
        "cost_micros": 4_000,
        "text": "done",
    }
    waits = (a_wait(view, WaitKind.CHILD, 1, 9, used), a_wait(view, WaitKind.CHILD, 2, 8, {"input_tokens": "much"}))
    last = Answer(text="Done.", usage=Usage(input_tokens=400, output_tokens=100, cost_micros=3_000))
    told = replace(view, steps=steps, waits=waits)

    text = summary(told, last, EPOCH + timedelta(seconds=12), "USD", Redactor())
    assert text == "3 calls (shell ×2, sessions_spawn), 12 s, 4,120 tokens, $0.012"


async def test_waiting_for_a_decision_does_not_count_as_time(world: World) -> None:
    _, view = await world.claimed()
    waits = (a_wait(view, WaitKind.APPROVAL, 1, 101), a_wait(view, WaitKind.APPROVAL, 50, 151))
    told = replace(view, steps=(a_step(view, 0, 151, 153),), waits=waits)

    assert summary(told, None, EPOCH + timedelta(seconds=155), "USD", Redactor()) == "1 call (shell), 5 s"
    worked = replace(told, turn=replace(told.turn, active_ms=75_000))
    assert summary(worked, None, EPOCH + timedelta(seconds=155), "USD", Redactor()) == "1 call (shell), 1 min 15 s"


@pytest.mark.parametrize("before", [0, 25, 10_000])
async def test_summary_of_invented_tool_names_is_one_redacted_line(world: World, before: int) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    async with status.watch():
        await asyncio.sleep(0.1)
    names = [f"x{n}\n`{' ' * before}{SECRET}" + "y" * 1000 for n in range(50)]
    told = replace(view, steps=tuple(a_step(view, n, 0, 1, name) for n, name in enumerate(names)))

    (slot,) = status.closing(told)
    assert slot.id == status_slot(view.turn.id)
    assert slot.text.startswith("50 calls (x0 `")
    assert SECRET[:8] not in slot.text
    assert len(slot.text) <= LINE_CHARS
    assert slot.text.isprintable()


@pytest.mark.parametrize("text", ["shell: df -h", "", "▸ x", " "])
def test_at_work_line_is_recognised_by_its_mark(text: str) -> None:
    assert is_at_work(at_work(text))


@pytest.mark.parametrize("text", ["Ended.", "1 call (shell), 2 s", "thinking", "", " ▸ thinking", "Stopped. ▸"])
def test_final_line_is_not_at_work(text: str) -> None:
    assert not is_at_work(text)
