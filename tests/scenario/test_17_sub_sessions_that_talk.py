"""Seventeenth: three sub-sessions answer, the machine dies, and one of them is asked something again."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.scenario.test_08_models_and_sub_sessions import ANN, a_world, call, when
from tests.support.model_server import Question, Reply, ScriptedModel
from tests.support.telegram import TOKEN

TASKS = {"oats": "Oats: 3 kg.", "rye": "Rye: 2 kg.", "spelt": "Spelt: none."}
CONFIG = """
[model]
name = "openai:scripted"
base_url = "{model}"
"""


def child(question: Question) -> Reply | None:
    """Answer as a sub-session that counts one kind of flour, and that knows what it counted when it is asked again."""
    if "You are a sub-session" not in question.system:
        return None
    if "since when" in question.text:
        return Reply(text=f"Since Monday, and I was asked {question.nth} times.")
    return next((Reply(text=said) for task, said in TASKS.items() if task in question.text), None)


async def test_one_of_three_is_asked_again_after_a_death(tmp_path: Path) -> None:
    """It goes on in its own session, Ann is asked once whether it may be written to, and the answer comes once."""
    async with (
        ScriptedModel(answering=child) as model,
        a_world(tmp_path, model, CONFIG) as world,
    ):
        telegram = world.telegram
        spawns = tuple(call("sessions_spawn", task=f"count the {task}") for task in TASKS)
        model.rules += [when("flour", 0, calls=spawns), when("flour", 3, text="There is:\n{results}")]
        telegram.say(ANN, "how much flour is there?")
        answer = await telegram.see(ANN, "There is:")
        assert all(said in answer.text for said in TASKS.values())
        await telegram.until(lambda: len(model.requests) == 5)

        ids = re.findall(r"From (child:t\w+\.\d+)\.", json.dumps(model.requests[-1].body))
        rye = ids[list(TASKS).index("rye")]
        await world.daemon.kill()
        await world.daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN})
        question = "since when is it 2 kg?"
        model.rules += [
            when("the rye", 0, calls=(call("sessions_send", session=rye, message=question, wait_s=600),)),
            when("the rye", 1, text="It says: {result1}"),
        ]
        telegram.say(ANN, "ask the one with the rye, since when")
        card = await telegram.see(ANN, f"Write to {rye}", button="Allow")
        assert question in card.text
        await world.allow(card, "Allow")
        await telegram.see(ANN, "It says: Since Monday, and I was asked 2 times.")
        asked = [json.dumps(one.body) for one in model.requests if question in json.dumps(one.body)]
        of_child = [body for body in asked if "You are a sub-session" in body]
        assert len(of_child) == 1
        assert "Rye: 2 kg." in of_child[0], "its history is there"
        assert sum("Since Monday" in shown.text for shown in telegram.shown(ANN)) == 1
