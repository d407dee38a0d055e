"""Questions and task lists of calls, from the call to its result: over the engine and the memory store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_tools import ask_user, todo_read, todo_write
from gateway.domain.ids import CallId, Principal, TurnId, WaitId
from gateway.domain.messages import Conversation, Press
from gateway.domain.questions import Pick
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall, ToolPolicy
from gateway.domain.turns import TurnState
from gateway.domain.waits import Pressed, PressResult, WaitState, inquiry_of
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import ANN_PAGE, CLEO_TELEGRAM
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT
from tests.unit.gateway.toolcalls.subsession_rig import a_child, answered, own_tool, spawning
from tests.unit.gateway.toolcalls.subsession_rig import call as child_call


def tool(module: Any) -> Tool:
    spec = module.SPEC
    policy = ToolPolicy(availability=spec.availability, approval={}, timeout_s=30, actions={}, sandbox=None)
    return Tool(spec=spec, policy=policy, arguments=ModelArguments(module.Args), run=module.run)


def call(name: str, arguments: Mapping[str, Any]) -> Answer:
    return Answer(text="", calls=(ToolCall(id=CallId("c1"), tool=name, arguments=json.dumps(arguments)),), model="m")


def engine(folder: Path, *script: Answer) -> Engine:
    tools = [tool(module) for module in (ask_user, todo_read, todo_write)]
    return Engine(folder, tools, script=[*script, Answer(text="Good.", model="m")])


DAY = {"question": "Which day?", "options": ["Monday", "Friday"]}


async def asking(engine: Engine) -> tuple[TurnId, WaitId]:
    """Run a turn until it is parked on its question."""
    turn = await engine.say()
    await engine.run(await engine.claim())
    (wait,) = await engine.waits(turn)
    assert (await engine.store.turn(turn)).turn.state is TurnState.PARKED
    return turn, wait.id


async def pressed(
    engine: Engine,
    wait: WaitId,
    pick: Pick,
    *,
    who: Principal = ANN_TELEGRAM,
    where: Conversation = CHAT,
    text: str = "",
) -> Pressed:
    shown = [slot for slot in await engine.store.card_slots(wait) if slot.conversation == where]
    card = shown[-1].id if shown else f"page:{where.chat}"
    handle = engine.tokens.make(wait, card, pick.name)
    key = f"press-{where.chat}-{pick.name}-{who}"
    return await engine.ingress.press(
        Press(event_key=key, conversation=where, principal=who, handle=handle, reason=text)
    )


async def test_the_answer_is_the_result_of_the_call(tmp_path: Path) -> None:
    one = engine(tmp_path, call("ask_user", {"questions": [DAY, "What is it called?"]}))
    turn, wait = await asking(one)
    assert (await pressed(one, wait, Pick(question=0, option=1))).result is PressResult.CHOSEN
    assert (
        await pressed(one, wait, Pick(question=1, text=" "), where=ANN_PAGE, who=Principal("web:ann"), text="Rye")
    ).result is (PressResult.ANSWERED)
    await one.run(await one.claim())
    result = await one.result(turn, 1)
    assert result.status is ResultStatus.OK
    assert json.loads(result.text) == [
        {"question": "Which day?", "answer": ["Friday"]},
        {"question": "What is it called?", "answer": ["Rye"]},
    ]
    assert (await one.store.turn(turn)).turn.state is TurnState.DONE


async def test_a_press_of_another_or_from_elsewhere_answers_nothing(tmp_path: Path) -> None:
    one = engine(tmp_path, call("ask_user", {"questions": [DAY]}))
    _, wait = await asking(one)
    pick = Pick(question=0, option=0)
    assert (await pressed(one, wait, pick, who=BOB)).result is PressResult.NOT_ALLOWED
    assert (await pressed(one, wait, pick, who=CLEO_TELEGRAM)).result is PressResult.NOT_ALLOWED
    assert (await pressed(one, wait, pick, where=OTHER_CHAT)).result is PressResult.NOT_VALID
    found = await one.store.wait(wait)
    assert found is not None
    assert found.state is WaitState.OPEN


async def test_a_late_press_is_a_message_that_quotes_the_question(tmp_path: Path) -> None:
    one = engine(tmp_path, call("ask_user", {"questions": [DAY]}))
    turn, wait = await asking(one)
    one.clock.advance(24 * 3600 + 1)
    await one.store.expire_waits()
    await one.run(await one.claim())
    result = await one.result(turn, 1)
    assert (result.status, result.code) == (ResultStatus.EXPIRED, "unanswered")
    for _ in range(2):
        assert (await pressed(one, wait, Pick(question=0, option=1))).result is PressResult.LATE
    late = await one.claim()
    (received,) = (await one.store.turn(late.turn)).inputs
    assert (received.message.text, received.message.quoted) == ("Friday", "Which day?")
    assert not await one.store.claim(late.node), "a press that comes again is no second message"


async def test_a_sub_session_asks_where_its_roots_turn_began(tmp_path: Path) -> None:
    one = spawning(tmp_path, [own_tool(ask_user)])
    _, child = await a_child(one)
    await answered(one, child, child_call("ask_user", questions=[DAY]))
    assert not await one.settle(child)
    (wait,) = await one.waits(child.turn)
    (card,) = await one.store.card_slots(wait.id)
    inquiry = inquiry_of(wait)
    assert inquiry is not None
    assert (card.conversation, inquiry.title, inquiry.requester) == (CHAT, "count", ANN_TELEGRAM)
    assert (await pressed(one, wait.id, Pick(question=0, option=0))).result is PressResult.ANSWERED
    assert await one.settle(child)
    assert json.loads((await one.result(child.turn, 1)).text)[0]["answer"] == ["Monday"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"questions": []}, "invalid_arguments"),
        ({"questions": [DAY] * 5}, "invalid_arguments"),
        ({"questions": [{"question": " "}]}, "invalid_arguments"),
        ({"questions": [{"question": "x" * 501}]}, "invalid_arguments"),
        ({"questions": [{"question": "x", "options": ["y"] * 9}]}, "invalid_arguments"),
        ({"questions": [{"question": "x", "options": ["y", "y"]}]}, "options"),
        ({"questions": [{"question": "x", "options": ["y", "\u200b"]}]}, "options"),
        ({"questions": 7}, "invalid_arguments"),
        ({}, "invalid_arguments"),
    ],
)
async def test_a_bad_question_is_refused_with_its_cure(tmp_path: Path, arguments: Mapping[str, Any], why: str) -> None:
    one = engine(tmp_path, call("ask_user", arguments))
    turn = await one.say()
    await one.run(await one.claim())
    result = await one.result(turn, 1)
    assert (result.status, result.code) == (ResultStatus.ERROR, why)
    assert result.hint
    assert await one.waits(turn) == []


async def test_a_task_list_is_written_shown_and_read(tmp_path: Path) -> None:
    listed = {"todos": [{"content": "flour", "status": "completed"}, "water"]}
    one = engine(tmp_path, call("todo_write", listed), call("todo_read", {}))
    turn = await one.say()
    await one.run(await one.claim())
    assert (await one.result(turn, 3)).text == "done: flour\nopen: water"
    shown = [slot.text for slot in await one.slots() if slot.kind is SlotKind.CHECKLIST]
    assert shown == ["**Tasks: 1 of 2 done**\n\n- ☑ flour\n- ☐ water"]


async def test_a_long_task_list_is_refused_in_words(tmp_path: Path) -> None:
    one = engine(tmp_path, call("todo_write", {"todos": [f"step {n}" for n in range(1_000)]}))
    turn = await one.say()
    await one.run(await one.claim())
    result = await one.result(turn, 1)
    assert (result.status, result.code) == (ResultStatus.ERROR, "too_many")
    assert result.hint.startswith("A list has at most 50 items, and this has 1,000; the old list stays.")
    assert [slot.kind for slot in await one.slots()] == [SlotKind.ANSWER]
