"""Questions and cards under attack, over the wire of Telegram and Slack: wrong people, wrong chats, twice, too late."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.domain.ids import CallId
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import Answer
from gateway.domain.tools import ToolCall
from gateway.domain.waits import Wait, WaitKind, WaitState
from tests.contract.channel_rig import QUIET_S, Rig, Who
from tests.contract.test_channel_slack import SlackRig
from tests.contract.test_channel_telegram import TelegramRig
from tests.support.fakes import calls
from tests.support.makers import inbound
from tests.support.slack import faults as slack_faults
from tests.support.telegram import faults as telegram_faults

RIGS = pytest.mark.parametrize("rig_class", [TelegramRig, SlackRig])
LONG = " && ".join(f"echo {n:05}" for n in range(1_000))


def questions(rig: Rig) -> list[Wait]:
    """Return the waits for answers."""
    return [row.wait for row in rig.store.waits.values() if row.wait.kind is WaitKind.QUESTION]


def cards(rig: Rig) -> list[Slot]:
    """Return the slots of cards."""
    return [row.slot for row in rig.store.slots.values() if row.slot.kind is SlotKind.CARD]


@asynccontextmanager
async def refusing_files(rig: Rig) -> AsyncGenerator[None]:
    """Let the platform take no file."""
    if isinstance(rig, TelegramRig):
        error = telegram_faults.error(400, "Bad Request: file is too big")
        rig.bots["one"].script(lambda call: error if call.method == "sendDocument" else None)
    elif isinstance(rig, SlackRig):
        refusal = slack_faults.error("file_uploads_disabled")
        rig.workspaces["one"].script(lambda call: refusal if call.method.startswith("files.") else None)
    yield


def asking() -> Answer:
    """Return the model's answer that asks for a day."""
    question = {"question": "Which day?", "options": ["Monday", "Friday"]}
    made = ToolCall(id=CallId("c1"), tool="ask_user", arguments=json.dumps({"questions": [question]}))
    return Answer(text="", calls=(made,), model="m")


@RIGS
async def test_question_is_answered_once_by_whom_it_asks(rig_class: type[Rig], tmp_path: Path) -> None:
    """Not by others, from another chat or with a forged handle; a press that is repeated or too late runs nothing."""
    async with rig_class.started(tmp_path) as rig:
        where = rig.direct(Who.ANN)
        rig.script(asking(), "It is planned.")
        await rig.say(Who.ANN, "Plan it", where)
        card = await rig.card(where, "Which day?")
        monday, friday = card.handle("Monday"), card.handle("Friday")
        wrong = [(Who.CLEO, where), (Who.EVE, where), (Who.ANN, rig.group()), (Who.CLEO, rig.direct(Who.CLEO))]
        for who, there in wrong:
            assert await rig.pressed(who, there, friday)
        assert await rig.pressed(Who.ANN, where, friday[:-1])
        assert (await rig.card(where, "Which day?")).labels == ["Monday", "Friday"]
        (wait,) = questions(rig)
        assert (wait.state, wait.decided_by) == (WaitState.OPEN, None)

        press = await rig.press(Who.ANN, where, friday)
        await rig.see(where, "It is planned.")
        await rig.redeliver(press)
        assert await rig.pressed(Who.ANN, where, monday)
        await asyncio.sleep(QUIET_S)
        assert [wait.state for wait in questions(rig)] == [WaitState.ANSWERED]
        assert '["Friday"]' in str(rig.engine.model.requests[1].messages[-1])
        assert len(rig.engine.model.requests) == 2, "what came too late began nothing"


@RIGS
async def test_press_after_a_stop_answers_nothing(rig_class: type[Rig], tmp_path: Path) -> None:
    """The turn has ended: what was pressed is a message that quotes the question, as a late answer is."""
    async with rig_class.started(tmp_path) as rig:
        where = rig.direct(Who.ANN)
        rig.script(asking(), "I see.")
        await rig.say(Who.ANN, "Plan it", where)
        card = await rig.card(where, "Which day?")
        await rig.engine.ingress.message(inbound("/stop", where=where, who=rig.principal(Who.ANN)))
        await rig.until(lambda: [wait.state for wait in questions(rig)] == [WaitState.CANCELLED])
        assert await rig.pressed(Who.ANN, where, card.handle("Friday"))
        assert [wait.state for wait in questions(rig)] == [WaitState.CANCELLED]
        assert not any('["Friday"]' in str(request.messages) for request in rig.engine.model.requests)


@RIGS
async def test_card_whose_file_is_refused_offers_no_button(rig_class: type[Rig], tmp_path: Path) -> None:
    """Its file goes before the buttons: without it none can be pressed, and nothing is run."""
    async with rig_class.started(tmp_path) as rig:
        where = rig.direct(Who.ANN)
        rig.script(calls(f"shell:{LONG}"), "That is all.")
        async with refusing_files(rig):
            await rig.say(Who.ANN, "please", where)
            await rig.until(lambda: [slot.state for slot in cards(rig)] == [SlotState.DEAD])
            assert not any(one.buttons for one in rig.shown(where))
        (wait,) = rig.waits()
        assert (wait.state, rig.box.shell.calls) == (WaitState.OPEN, [])
        if isinstance(rig, TelegramRig):  # the only one whose people are owners of the delivery
            told = await rig.see(where, "a question could not be shown")
            assert "It can be decided on the web page." in told.text
