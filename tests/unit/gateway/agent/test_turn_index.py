"""Calls through the index of tools: decided, asked and run as calls of the real tools."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult
from gateway.domain.steps import Answer
from gateway.domain.tools import Availability, ResultStatus, Risk, ToolCall
from gateway.toolcalls.tool_index import TOOLS
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import FakeTool


def indexed(made: FakeTool) -> Tool:
    tool = made.tool()
    return replace(tool, spec=replace(tool.spec, indexed=True))


def through_index(*calls: tuple[str, str]) -> Answer:
    wanted = {"calls": [{"name": name, "arguments": {"text": text}} for name, text in calls]}
    return Answer(text="", calls=(ToolCall(id=CallId("c1"), tool=TOOLS, arguments=json.dumps(wanted)),))


async def test_calls_through_the_index_are_decided_by_their_real_tools(tmp_path: Path) -> None:
    look, shell = FakeTool(name="look", risk=Risk.READ), FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [indexed(look), indexed(shell)])
    engine.model.script = [through_index(("look", "a"), ("shell", "rm")), Answer(text="Done."), Answer(text="Again.")]
    await engine.say("hello")
    lease = await engine.claim()
    await engine.run(lease)

    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert (wait.approval.action.tool, look.calls, shell.calls) == ("shell", ["a"], [])
    await engine.press(wait.id)
    await engine.run(await engine.claim())
    assert shell.calls == ["rm"]

    first, second = engine.model.requests
    assert [one.name for one in first.tools] == [TOOLS]
    assert [one.name for one in second.tools] == [TOOLS]  # a list that changes within a turn is read anew
    answer = next(one for one in second.messages if isinstance(one, Answer))
    results = [one for one in second.messages if isinstance(one, CallResult)]
    assert [(call.id, call.tool) for call in answer.calls] == [("c1", "look"), ("c1-2", "shell")]
    assert [one.call for one in results] == ["c1", "c1-2"]

    engine.clock.advance(1)
    await engine.say("more")
    await engine.run(await engine.claim())
    assert [one.name for one in engine.model.requests[-1].tools] == [TOOLS, "look", "shell"]


async def test_a_search_is_answered_without_a_decision(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [indexed(FakeTool(name="look", risk=Risk.READ))])
    search = ToolCall(id=CallId("c1"), tool=TOOLS, arguments='{"find": "look"}')
    engine.model.script = [Answer(text="", calls=(search,)), Answer(text="Done.")]
    await engine.say("hello")
    await engine.run(await engine.claim())
    (found,) = [one for one in engine.model.requests[-1].messages if isinstance(one, CallResult)]
    assert json.loads(found.result.text)["name"] == "look"


async def test_a_search_finds_no_tool_that_is_not_here(tmp_path: Path) -> None:
    look, blocked = FakeTool(name="look", risk=Risk.READ), FakeTool(name="vault", availability=Availability.BLOCKED)
    engine = Engine(tmp_path, [indexed(look), indexed(blocked)])
    search = ToolCall(id=CallId("c1"), tool=TOOLS, arguments='{"find": "vault"}')
    engine.model.script = [Answer(text="", calls=(search,)), through_index(("vault", "a")), Answer(text="Done.")]
    await engine.say("hello")
    lease = await engine.claim()
    await engine.run(lease)
    found, called = [one for one in engine.model.requests[-1].messages if isinstance(one, CallResult)]
    assert found.result.text == "Nothing fits. There are: look."
    assert (called.result.status, blocked.calls) == (ResultStatus.DENIED, [])


async def test_an_unknown_tool_is_not_reached_through_the_index(tmp_path: Path) -> None:
    look = FakeTool(name="look", risk=Risk.READ)
    engine = Engine(tmp_path, [indexed(look)])
    engine.model.script = [through_index(("nosuch", "a")), Answer(text="Done.")]
    await engine.say("hello")
    lease = await engine.claim()
    await engine.run(lease)
    assert "There is no tool 'nosuch'" in (await engine.result(lease.turn, 1)).hint
