"""The page in a real Chromium: the steps of a workflow that run, and what a sub-session at work says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from agent_tools import sessions_send, workflow
from gateway.domain.steps import Answer
from gateway.domain.tools import ApprovalMode
from tests.support.browser import Person
from tests.support.engine import Served, served
from tests.support.fakes import ANN_PAGE
from tests.unit.gateway.toolcalls.subsession_rig import answered, call, ended, own_tool, spawning

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a page for seconds; what it is told of a workflow stays in test_outbound"),
]
STEPS = [{"name": name, "task": f"Count the {name}."} for name in ("oats", "rye")]
LAST = {"name": "sum", "task": "Add up {{oats}} and {{rye}}.", "needs": ["oats", "rye"]}


@pytest_asyncio.fixture(loop_scope="session")
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    """The page of an engine whose workflows need nobody."""
    flow = own_tool(workflow)
    flow = replace(flow, policy=replace(flow.policy, approval={"main": ApprovalMode.ALLOW}))
    engine = spawning(tmp_path, [flow, own_tool(sessions_send)])
    engine.clock.advance((datetime.now(UTC) - engine.clock.now()).total_seconds())
    async with served(engine) as found:
        yield found


async def test_every_step_that_runs_is_shown(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    engine.model.script = [Answer(text="", calls=(call("workflow", steps=[*STEPS, LAST]),), model="big")]
    await engine.say("Look around", where=ANN_PAGE)
    await engine.run(await engine.claim())
    block = place.get_by_test_id("child").first
    await expect(block).to_contain_text("Workflow of 3 steps")
    await expect(block).to_contain_text("2 of 3 steps run: oats, rye")
    await expect(block.get_by_test_id("child")).to_have_count(2)
    await ended(engine, await engine.claim(), "3 kg.")
    await expect(block).to_contain_text("1 of 3 steps runs: rye · 1 ended")
    await ended(engine, await engine.claim(), "2 kg.")
    await expect(block).to_contain_text("1 of 3 steps runs: sum · 2 ended")
    await ended(engine, await engine.claim(), "5 kg.")
    await expect(block).to_contain_text("3 done")
    await expect(block.get_by_test_id("child")).to_have_count(0)


async def test_message_of_a_working_sub_session_is_a_quiet_line(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    asked = (call("sessions_spawn", task="count all", mode="session"),)
    engine.model.script = [Answer(text="", calls=asked, model="big"), Answer(text="It looks.", model="big")]
    await engine.say("Look around", where=ANN_PAGE)
    await engine.run(await engine.claim())
    child = await engine.claim()
    await answered(engine, child, call("sessions_send", session="parent", message="Half of it: 4 kg."))
    assert await engine.settle(child)
    told = place.get_by_test_id("child-ended")
    await expect(told).to_contain_text("A sub-session at work says: count all")
    await told.get_by_text("What it said").click()
    await expect(told.get_by_text("Half of it: 4 kg.")).to_be_visible()
