"""Fourth: a model answers, calls several tools at once, and waits for a person without holding anything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.daemon import Daemon, Page, page_of, running
from tests.support.model_server import Call, Reply, ScriptedModel

TOOLS = """
[model]
name = "openai:scripted"
base_url = "{url}"
[tools.peek]
module = "tests.support.tools.peek"
[tools.poke]
module = "tests.support.tools.poke"
approval = "deny"
"""


@pytest_asyncio.fixture
async def with_model(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Daemon]:
    """A daemon with the scripted model, a tool that reads, and one that the owner denies."""
    async with running(tmp_path, TOOLS.format(url=model.base_url)) as found:
        yield found


def call(tool: str, **arguments: str) -> Call:
    """A call as a model makes it."""
    return Call(name=tool, arguments=json.dumps(arguments))


async def results(page: Page, count: int) -> list[dict[str, str]]:
    """The results of the first `count` calls, in call order."""
    await page.until_row("turn", lambda row: row["kind"] == "model" and row["state"] == "done")
    steps = [row for row in page.rows.values() if row["type"] == "step" and row["kind"] == "tool"]
    assert len(steps) == count
    return [step["result"] for step in sorted(steps, key=lambda step: step["n"])]


async def test_three_calls_one_denied_one_asked_one_allowed(with_model: Daemon, model: ScriptedModel) -> None:
    """All are decided before any runs; the model is asked again only when each has exactly one result, in order."""
    model.replies.extend(
        (
            Reply(
                text="Let me look.",
                calls=(call("poke", what="x"), call("shell", command="env echo asked"), call("peek", what="y")),
            ),
            Reply(text="All done."),
        )
    )
    async with page_of(with_model) as page:
        await page.say("look, run and poke")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        assert asked["rendered"].startswith("env echo asked")
        await page.until_row("turn", lambda row: row["state"] == "parked")
        assert len(model.requests) == 1
        await page.press(page.button(asked, "once"))
        denied, ran, allowed = await results(page, 3)
        assert (denied["status"], ran["status"], allowed["status"]) == ("denied", "ok", "ok")
        assert (ran["text"], allowed["text"]) == ("asked\n", "peeked at y")
    told = [message for message in model.requests[1].body["messages"] if message["role"] == "tool"]
    assert [message["content"].splitlines()[0] for message in told][1:] == ["asked", "peeked at y"]


@pytest.mark.whole("an answer that streams to Telegram stays")
async def test_an_answer_streams(with_model: Daemon, model: ScriptedModel) -> None:
    """Text is seen as it comes, and replaced by the stored answer."""
    model.replies.extend((Reply(text="one two three four five", chunks=5, delay_s=0.05),))
    async with page_of(with_model) as page:
        await page.say("count")
        await page.until_frame(lambda frame: frame["op"] == "delta")
        answer = await page.until_row("slot", lambda row: row["kind"] == "answer")
        assert answer["text"] == "one two three four five"


@pytest.mark.whole("test_model_answers has a message that steers")
async def test_a_message_meanwhile_steers(with_model: Daemon, model: ScriptedModel) -> None:
    """A message of the same person while a turn waits is given to the model after the results."""
    model.replies.extend((Reply(calls=(call("shell", command="env true"),)), Reply(text="Noted.")))
    async with page_of(with_model) as page:
        await page.say("go")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.until_row("turn", lambda row: row["state"] == "parked")
        await page.say("and be quick")
        await page.until_row("slot", lambda row: "waits for a decision" in row["text"])
        await page.press(page.button(asked, "once"))
        await page.until_row("turn", lambda row: row["state"] == "done")
    roles = [message["role"] for message in model.requests[1].body["messages"]]
    assert roles[-3:] == ["assistant", "tool", "user"]


async def test_a_broken_model_is_told_in_words(with_model: Daemon, model: ScriptedModel) -> None:
    """A refused key ends the turn with what is wrong and what to do; the next message works."""
    model.replies.extend((Reply(status=401, error="no"), Reply(text="Better.")))
    async with page_of(with_model) as page:
        await page.say("first")
        failed = await page.until_row("slot", lambda row: row["kind"] == "answer")
        assert "api_key" in failed["text"]
        await page.say("second")
        await page.until_row("slot", lambda row: row["text"] == "Better.")
