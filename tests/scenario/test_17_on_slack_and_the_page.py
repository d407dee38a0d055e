"""Seventeenth, on Slack and on the page: one of three sub-sessions is asked again, through two deaths."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.scenario.day_with_tools import SLACK_ANN, Chat, PageChat, SlackChat
from tests.scenario.test_17_sub_sessions_that_talk import TASKS, child
from tests.support.daemon import Daemon
from tests.support.model_server import Call, Reply, Rule, ScriptedModel
from tests.support.slack.rig import slack_rig

CONFIG = """
[owners]
ann = [{principals}]
[model]
name = "openai:scripted"
base_url = "{model}"
"""
QUESTION = "since when is it 2 kg?"
SAID = "Since Monday, and I was asked 2 times."


def call(tool: str, **arguments: object) -> Call:
    """Return a call as a model makes it."""
    return Call(name=tool, arguments=json.dumps(arguments))


async def asked_again(chat: Chat, model: ScriptedModel) -> None:
    """The daemon dies when all three have answered, and with the card open; the answer comes once."""
    spawns = tuple(call("sessions_spawn", task=f"count the {task}") for task in TASKS)
    model.rules.append(Rule(text="flour", results=0, reply=Reply(calls=spawns)))
    model.rules.append(Rule(text="flour", results=3, reply=Reply(text="There is:\n{results}")))
    await chat.start()
    await chat.say("how much flour is there?")
    await chat.see("There is:")
    ids = re.findall(r"From (child:t\w+\.\d+)\.", json.dumps(model.requests[-1].body))
    rye = ids[list(TASKS).index("rye")]
    again = call("sessions_send", session=rye, message=QUESTION, wait_s=600)
    model.rules.append(Rule(text="the rye", results=0, reply=Reply(calls=(again,))))
    model.rules.append(Rule(text="the rye", results=1, reply=Reply(text="It says: {result1}")))
    await chat.daemon.kill()
    await chat.start()
    await chat.say("ask the one with the rye, since when")
    await chat.see_card(f"Write to {rye}")
    await chat.daemon.kill()
    await chat.start()
    await chat.press(f"Write to {rye}")
    await chat.see(f"It says: {SAID}")
    assert chat.answers(f"It says: {SAID}") == 1
    asked = [json.dumps(one.body) for one in model.requests]
    assert len([body for body in asked if QUESTION in body and "You are a sub-session" in body]) == 1


@pytest.mark.whole("three lives of a daemon; the same on Telegram stays")
async def test_one_of_three_is_asked_again_in_slack(tmp_path: Path) -> None:
    async with ScriptedModel(answering=child) as model:
        own = CONFIG.format(principals=f'"slack:T0AA/{SLACK_ANN}"', model=model.base_url)
        limits = "per_channel_per_s = 0\noverall_per_min = 0"
        async with slack_rig(tmp_path, config=own, limits=limits, warm=True) as rig:
            rig.slack.person(SLACK_ANN, "ann")
            await asked_again(SlackChat(rig=rig), model)
            assert rig.slack.troubles == []


@pytest.mark.whole("three lives of a daemon; the same on Telegram stays")
async def test_one_of_three_is_asked_again_on_the_page(tmp_path: Path) -> None:
    async with ScriptedModel(answering=child) as model, AsyncExitStack() as stack:
        own = CONFIG.format(principals="", model=model.base_url)
        chat = PageChat(daemon=Daemon(folder=tmp_path, config=own, warm=True))
        stack.push_async_callback(chat.daemon.kill)
        stack.push_async_callback(chat.line.aclose)
        await asked_again(chat, model)
