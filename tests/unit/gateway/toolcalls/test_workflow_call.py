"""A workflow through the whole engine: one card, the steps in order, one result."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_tools import workflow
from gateway.domain.ids import step_session
from gateway.domain.tools import ApprovalMode, ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnLimits, TurnState
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import FakeTool
from tests.unit.gateway.toolcalls.subsession_rig import AGENTS, call, ended, own_tool, planned, spawning

PAIR = [{"name": "a", "task": "Look."}, {"name": "b", "task": "Judge {{a}}.", "needs": ["a"]}]


def allowed() -> Tool:
    """Return the tool as an owner has it who allows it always."""
    tool = own_tool(workflow)
    return replace(tool, policy=replace(tool.policy, approval={"main": ApprovalMode.ALLOW}))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return spawning(tmp_path, [FakeTool(name="read"), allowed()])


async def result_of(engine: Engine, lease: Lease) -> ToolResult:
    """Return the result of the turn's first call."""
    result = (await engine.store.turn(lease.turn)).steps[1].result
    assert result is not None
    return result


async def begun(engine: Engine, steps: list[dict[str, Any]]) -> Lease:
    """Return a turn whose workflow was decided and began."""
    lease = await planned(engine, call("workflow", steps=steps))
    assert not await engine.settle(lease)
    return lease


async def test_results_come_in_order_as_one(engine: Engine) -> None:
    lease = await begun(engine, PAIR)
    await ended(engine, await engine.claim(), "Seen.")
    await ended(engine, await engine.claim(), "Good.")
    assert await engine.settle(lease)
    result = await result_of(engine, lease)
    assert (result.status, result.text) == (ResultStatus.OK, "## a: done\n> Seen.\n\n## b: done\n> Good.")
    assert result.untrusted


async def test_result_of_a_failed_workflow_says_why(engine: Engine) -> None:
    lease = await begun(engine, PAIR)
    await ended(engine, await engine.claim(), "No disk.", TurnState.FAILED)
    assert await engine.settle(lease)
    result = await result_of(engine, lease)
    assert (result.status, result.code) == (ResultStatus.ERROR, "steps_failed")
    assert "## b: not run\nIt needs a: failed." in result.text


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ({"agent": "nobody"}, "The step 'b': There is no agent 'nobody'. There are: explore, general, plain, reader."),
        ({"preset": "nothing"}, "The step 'b': There is no preset 'nothing'."),
        ({"tools": ["fly"]}, "The step 'b': It cannot be given fly. There are: read, "),
        ({"needs": ["c"]}, "The step 'b' needs 'c', which is no step."),
        ({"needs": []}, "The task of the step 'b' has {{a}}. Add 'a' to its needs"),
    ],
)
async def test_step_that_cannot_begin_is_refused_unasked(tmp_path: Path, more: dict[str, Any], hint: str) -> None:
    engine = spawning(tmp_path, [FakeTool(name="read"), own_tool(workflow)])
    lease = await planned(engine, call("workflow", steps=[PAIR[0], {**PAIR[1], **more}]))
    assert await engine.settle(lease)
    result = await result_of(engine, lease)
    assert result.status in (ResultStatus.ERROR, ResultStatus.DENIED)
    assert hint in result.hint
    assert await engine.waits(lease.turn) == []
    assert await engine.store.family(lease.session) == []


async def test_agent_that_is_gone_at_the_press_is_refused(tmp_path: Path) -> None:
    """A restart may come between card and press, and change the configuration."""
    engine = spawning(tmp_path, [FakeTool(name="read"), own_tool(workflow)])
    lease = await planned(engine, call("workflow", steps=[{**PAIR[0], "agent": "plain"}]))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    later = spawning(tmp_path, [FakeTool(name="read"), own_tool(workflow)], agents={}, store=engine.store)
    await later.press(wait.id)
    assert await later.settle(lease)
    result = await result_of(later, lease)
    assert (result.status, result.code) == (ResultStatus.ERROR, "unknown_agent")
    assert "The step 'a': There is no agent 'plain'." in result.hint
    assert await later.store.family(lease.session) == []


async def test_steps_share_the_tokens_that_are_left(tmp_path: Path) -> None:
    limits = TurnLimits(tokens=1_000, active=timedelta(minutes=15), child_active=timedelta(minutes=10))
    engine = spawning(tmp_path, [allowed()], agents=AGENTS, limits=limits)
    steps: list[dict[str, Any]] = [{"name": f"s{n}", "task": "Look."} for n in range(50)]
    steps[0]["tokens"] = 5
    lease = await begun(engine, steps)
    tokens = list[int]()
    for place in (1, 2):
        session = await engine.store.session(step_session(lease.turn, 1, place))
        assert session is not None
        assert session.lineage is not None
        tokens.append(session.lineage.tokens)
    assert tokens == [5, 20]
