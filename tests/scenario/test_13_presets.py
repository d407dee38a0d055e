"""Thirteenth: an owner plans and builds. What a plan forbids does not happen, and a press leaves the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.daemon import Page, page_of, running
from tests.support.model_server import Call, Reply, ScriptedModel

CONFIG = """
[model]
name = "openai:scripted"
base_url = "{url}"
[[rules]]
tool = "*"
pattern = "*"
decision = "allow"
"""
PLAN = "1. Read the notes.\n2. Write *one* line."


def call(tool: str, **arguments: str) -> Call:
    return Call(name=tool, arguments=json.dumps(arguments))


async def said(page: Page, text: str, part: str) -> None:
    """Send a control command and wait for its reply."""
    await page.say(text)
    await page.until_row("slot", lambda row: part in row["text"])


def system_of(model: ScriptedModel, n: int) -> str:
    return next(message["content"] for message in model.requests[n].body["messages"] if message["role"] == "system")


def tools_of(model: ScriptedModel, n: int) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[n].body["tools"]}


async def test_plan_looks_shows_its_plan_and_then_builds(tmp_path: Path, model: ScriptedModel) -> None:
    """The owner's own rule allows everything, and lifts no limit of the plan."""
    model.replies.extend((
        Reply(calls=(
            call("shell", command="touch from-the-plan"),
            call("shell", command="echo x > from-the-plan"),
            call("shell", command="echo looking"),
            call("write", path="from-the-plan", content="x"),
            call("plan_exit", plan=PLAN),
        )),
        Reply(calls=(call("shell", command="touch from-the-build"),)),
        Reply(text="Built."),
    ))  # fmt: skip
    async with running(tmp_path, CONFIG.format(url=model.base_url)) as daemon, page_of(daemon) as page:
        await said(page, "/plan", "The preset is now `plan`")
        await page.say("plan and build it")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        assert all(line in asked["rendered"] for line in PLAN.splitlines())
        await page.press(page.button(asked, "once"))
        await page.until_row("slot", lambda row: row["text"] == "Built.")

        assert [one["result"]["status"] for one in steps(page)] == ["denied", "denied", "ok", "denied", "ok", "ok"]
        assert list(daemon.state.rglob("from-the-plan")) == []
        assert len(list(daemon.state.rglob("from-the-build"))) == 1
        await said(page, "/preset", "The preset here is `build`")

    assert "You are planning." in system_of(model, 0)
    assert "You are planning." not in system_of(model, 1)
    assert tools_of(model, 0) - tools_of(model, 1) == {"plan_exit"}


def steps(page: Page) -> list[dict[str, Any]]:
    """Return the calls in their order."""
    found = [row for row in page.rows.values() if row["type"] == "step" and row["kind"] == "tool"]
    return sorted(found, key=lambda row: row["n"])
