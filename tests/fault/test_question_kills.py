"""F01 for questions: kill -9 at each point between asking and answering, over Telegram, and a night in between."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from channels.slack.settings import Mode
from gateway.domain.steps import Step, StepKind
from gateway.domain.waits import Wait, WaitKind, WaitState
from tests.fault import slack_rig
from tests.fault.rig import stored, visiting
from tests.fault.telegram_rig import ANN, Wire, age, wire
from tests.support.model_server import Call, Reply, Rule
from tests.support.patience import PATIENCE_S

_REST = (1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20)
POINTS = ("PARKED", "J10", "J13", "J12", "J11", "WOKEN", "J9", *(f"J{n}" for n in _REST))
"""Points that a question passes; the first three are those at which its own rows are written."""
QUESTIONS = [{"question": "Which day?", "options": ["Monday", "Friday"]}, {"question": "What is it called?"}]
ANSWERS = [{"question": "Which day?", "answer": ["Friday"]}, {"question": "What is it called?", "answer": ["Rye"]}]
RULES = (
    Rule(
        text="plan the bread",
        results=0,
        reply=Reply(calls=(Call(name="ask_user", arguments=json.dumps({"questions": QUESTIONS})),)),
    ),
    Rule(text="plan the bread", reply=Reply(text="It is planned.")),
)


async def live(one: Wire) -> None:
    """Ask, answer by a button and in words, and read the end. The person does not know that the daemon dies."""
    telegram = one.telegram
    telegram.say(ANN, "plan the bread")
    card = await telegram.see(ANN, "Which day?", button="Friday")
    telegram.press(ANN, card, "Friday")
    await telegram.see(ANN, "What is it called?")
    telegram.say(ANN, "Rye")
    await telegram.see(ANN, "It is planned.")


async def check(one: Wire) -> None:
    """The answers are the call's only result, and every turn has ended."""
    await one.settled()
    assert await one.daemon.stop() == 0
    await answered(one.daemon.state)


async def answered(state: Path) -> None:
    """The question was asked once, and both answers are stored."""
    items = await stored(state, "main:ann")
    (step,) = [item for item in items if isinstance(item, Step) and item.kind is StepKind.TOOL]
    (wait,) = [item for item in items if isinstance(item, Wait) and item.kind is WaitKind.QUESTION]
    assert wait.state is WaitState.ANSWERED
    assert step.result is not None
    assert json.loads(step.result.text) == ANSWERS


@pytest.mark.sampled(1)
@pytest.mark.parametrize("passage", [1, 2])
@pytest.mark.parametrize("point", POINTS)
async def test_a_question_outlives_a_kill(point: str, passage: int, tmp_path: Path) -> None:
    """Nothing is asked twice and no answer is lost; a card on its way may stand there twice."""
    async with wire(tmp_path, rules=RULES) as one:
        await one.start(f"{point}:kill:{passage}", ready=False)

        async def come_back() -> None:
            await one.killed()
            await one.start()

        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            back = group.create_task(come_back())
            await live(one)
            if passage > 1:
                await asyncio.wait([back], timeout=1)  # it may die at this very moment
                if not one.deaths:  # the point is not passed so often
                    back.cancel()
        await check(one)


@pytest.mark.whole("a kill on Telegram stays")
@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_a_question_on_slack_outlives_a_kill(mode: Mode, tmp_path: Path) -> None:
    async with slack_rig.wire(tmp_path, mode=mode, rules=RULES) as one:
        await one.start("PARKED:kill:1", ready=False)
        slack, place = one.rig.slack, slack_rig.direct(slack_rig.ANN)
        slack.say(slack_rig.ANN, "@dragoman plan the bread")
        await one.killed()
        await one.start()
        card = await slack.see(place, "Which day?", button="Friday")
        await slack_rig.press(slack, slack_rig.ANN, card, "Friday")
        await slack.see(place, "What is it called?")
        slack.say(slack_rig.ANN, "Rye")
        await slack.see(place, "It is planned.")
        await one.settled()
        daemon = one.rig.daemon
        assert await daemon.stop() == 0
        await answered(daemon.state)


@pytest.mark.whole("a kill on Telegram stays")
@pytest.mark.parametrize("point", ["PARKED", "J10"])
async def test_a_question_on_the_page_outlives_a_kill(point: str, tmp_path: Path) -> None:
    async with wire(tmp_path, rules=RULES) as one:
        await one.start(f"{point}:kill:1")
        async with visiting(one.daemon) as page, asyncio.TaskGroup() as group:
            await page.say("plan the bread")
            asked = await page.row("question", state="open")
            if point == "PARKED":
                await one.killed()
                await one.start()
            pressed = await page.press(asked["buttons"][1]["handle"])
            if point == "J10":
                await one.killed()
                group.create_task(one.start())
            assert (await page.answered(pressed, 30))["result"] in ("chosen", "duplicate")
            second = await page.row("question", 30, question="What is it called?")
            assert (await page.answered(await page.press(second["write"], "Rye")))["result"] == "answered"
            await page.row("slot", 30, text="It is planned.")
        await check(one)


@pytest.mark.whole("a kill while it is parked stays")
async def test_a_question_is_answered_the_next_morning(tmp_path: Path) -> None:
    async with wire(tmp_path, rules=RULES) as one:
        await one.start()
        one.telegram.say(ANN, "plan the bread")
        card = await one.telegram.see(ANN, "Which day?", button="Friday")
        await one.kill()
        await age(one.daemon.state, timedelta(hours=10))
        one.telegram.press(ANN, card, "Friday")
        await one.start()
        await one.telegram.see(ANN, "What is it called?")
        one.telegram.say(ANN, "Rye", reply_to=card.id)
        await one.telegram.see(ANN, "It is planned.")
        await check(one)
