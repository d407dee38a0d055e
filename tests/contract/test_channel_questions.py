"""Questions and task lists over the wire of Telegram and Slack: one card, answered by buttons and in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.domain.ids import CallId
from gateway.domain.steps import Answer
from gateway.domain.tools import ToolCall
from tests.contract.channel_rig import Rig, Who
from tests.contract.test_channel_slack import SlackRig
from tests.contract.test_channel_telegram import TelegramRig

QUESTIONS = [
    {"question": "Which day <suits> *you*?", "options": ["Monday", "Friday & later"]},
    {"question": "What shall be on it?", "options": ["olives", "capers"], "several": True},
    {"question": "What is it called?"},
]


def call(tool: str, **arguments: object) -> Answer:
    made = ToolCall(id=CallId("c1"), tool=tool, arguments=json.dumps(arguments))
    return Answer(text="", calls=(made,), model="m")


@pytest.mark.parametrize("rig_class", [TelegramRig, SlackRig])
async def test_a_question_is_asked_and_answered(rig_class: type[Rig], tmp_path: Path) -> None:
    async with rig_class.started(tmp_path) as rig:
        where = rig.direct(Who.ANN)
        todos = [{"text": "flour", "state": "doing"}]
        rig.script(call("todo_write", todos=todos), call("ask_user", questions=QUESTIONS))
        rig.script(call("todo_write", todos=[{**todos[0], "state": "done"}]), "It is planned.")
        await rig.say(Who.ANN, "Plan the bread", where)

        first = await rig.card(where, "Which day <suits> *you*?")
        assert "Question 1 of 3" in first.text
        assert (first.labels, first.active) == (["Monday", "Friday & later"], ())
        await rig.press(Who.ANN, where, first.handle("Friday & later"))
        second = await rig.card(where, "What shall be on it?")
        assert second.id == first.id
        assert second.labels == ["☐ olives", "☐ capers", "None of these"]
        await rig.press(Who.ANN, where, second.handle("capers"))
        ticked = await rig.card(where, "What shall be on it?")
        await rig.until(lambda: "☑ capers" in rig.shown(where)[-1].labels)
        await rig.press(Who.ANN, where, ticked.handle("None of these"))
        await rig.see(where, "What is it called?")
        assert not any(one.buttons for one in rig.shown(where))
        await rig.say(Who.ANN, "Rye", where)
        await rig.see(where, "It is planned.")
        over = await rig.see(where, "Answered by ann")
        assert over.id == first.id
        done = await rig.see(where, "Tasks: 1 of 1 done")
        assert [one.id for one in rig.shown(where) if "flour" in one.text] == [done.id]
        result = str(rig.engine.model.requests[2].messages[-1])
        for answer in ('["Friday & later"]', '["capers"]', '["Rye"]'):
            assert answer in result
