"""`dragoman demo`: the script, its model server, and the whole as a child process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.cli.demo_model import DemoModel
from gateway.cli.demo_script import COMMANDS, ERRANDS, HELP, next_saying
from gateway.domain.prompts import Complete, ModelRequest, TextPart, ToolOffer, UserText
from gateway.domain.steps import Answer
from gateway.llm.openai_chat import OpenAIChat
from gateway.system.clock import SystemClock
from tests.support.daemon import ROOT, environment
from tests.support.patience import PATIENCE_S

TOOLS = ("shell", "sessions_spawn")
QUESTION = "Which kernel is this, and how full is the disk?"
DF = "Filesystem  Size  Used Avail Use% Mounted on\n/dev/root   30G   12G   18G  40% /\n[exit 0, 0.1 s]"
KERNEL = "6.1.0-13\n[exit 0, 0.1 s]"

Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calling(*results: str) -> Messages:
    """Return an answer with calls, and their results."""
    made = [{"id": f"c{n}", "function": {"name": "shell", "arguments": "{}"}} for n, _ in enumerate(results)]
    results_ = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(results)]
    return [{"role": "assistant", "content": "", "tool_calls": made}, *results_]


# --- the script -----------------------------------------------------------------------------


def test_demo_asks_for_two_commands_at_once_and_sums_up() -> None:
    asked = next_saying([user(QUESTION)], TOOLS)
    assert asked.text
    assert [(call.tool, call.arguments["command"]) for call in asked.calls] == [("shell", one) for one in COMMANDS]
    told = next_saying([user(QUESTION), *calling(KERNEL, DF)], TOOLS)
    assert told.calls == ()
    assert told.text == "The kernel is **6.1.0-13**. The disk of `/` is **40%** full: 12G used of 30G, 18G free."


def test_demo_names_the_failed_command() -> None:
    denied = "[denied: denied] The owner said no."
    told = next_saying([user(QUESTION), *calling(KERNEL, denied)], TOOLS)
    assert told.text == f"`uname -r` printed: 6.1.0-13\n`df -h /` did not end well: {denied}"
    odd = next_saying([user(QUESTION), *calling(KERNEL, "no table\n[exit 0, 0.1 s]")], TOOLS)
    assert odd.text.endswith("`df -h /` printed: no table")


def test_demo_asks_three_sub_sessions() -> None:
    asked = next_saying([user("Ask three sub-sessions to look around")], TOOLS)
    assert [call.tool for call in asked.calls] == ["sessions_spawn"] * 3
    for call, errand in zip(asked.calls, ERRANDS, strict=True):
        child = next_saying([user(call.arguments["task"])], ["shell"])
        assert [one.arguments for one in child.calls] == [{"command": errand}]
    told = next_saying([user("three subsessions"), *calling("Linux", "4", "[expired] Too late.")], TOOLS)
    assert told.text.split("\n")[-3:] == [
        "- Sub-session 1: Linux", "- Sub-session 2: 4", "- Sub-session 3 did not end well: [expired] Too late."
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tools"), [(QUESTION, ["sessions_spawn"]), ("run `id`", []), ("sub-sessions", ["shell"])]
)
def test_demo_calls_only_offered_tools(text: str, tools: Sequence[str]) -> None:
    said = next_saying([user(text)], tools)
    assert said.calls == ()
    assert "session" in said.text


@pytest.mark.parametrize("messages", [[], [user("Hello")], [user("")], [user(QUESTION), {"role": "assistant"}]])
def test_demo_answers_anything_else_with_help(messages: Messages) -> None:
    assert next_saying(messages, TOOLS).text == HELP
    for words in re.findall(r"^- ([^`].*)$", HELP, re.MULTILINE):
        assert next_saying([user(words)], TOOLS).calls, words


def test_a_remark_steers_and_a_new_question_takes_over() -> None:
    at_work = [user(QUESTION), *calling(KERNEL, DF)]
    assert next_saying([*at_work, user("be quick")], TOOLS).text.startswith("You said meanwhile: “be quick”.")
    assert [call.arguments for call in next_saying([*at_work, user("run `id`")], TOOLS).calls] == [{"command": "id"}]
    answered: Messages = [*at_work, {"role": "assistant", "content": "Done."}]
    assert next_saying([*answered, user("be quick")], TOOLS).text == HELP


def test_stopped_call_is_not_resumed() -> None:
    stopped = "[cancelled: stopped]"
    assert next_saying([user(QUESTION), *calling(stopped, stopped), user("Hello")], TOOLS).text == HELP


# --- the server -----------------------------------------------------------------------------


async def answer(base_url: str, text: str) -> tuple[list[str], Answer]:
    async with aiohttp.ClientSession() as session:
        model = OpenAIChat(session, "demo", base_url=base_url, api_key=None, clock=SystemClock())
        offers = tuple(ToolOffer(name=name, description="", schema={"type": "object"}) for name in TOOLS)
        request = ModelRequest(system="", messages=(UserText(text=text),), tools=offers)
        parts: list[str] = []
        async for event in model.stream(request):
            if isinstance(event, TextPart):
                parts.append(event.text)
            if isinstance(event, Complete):
                return parts, event.answer
    raise AssertionError("the stream had no end")


async def test_answers_are_streamed_as_a_models_are() -> None:
    with DemoModel(word_s=0.002) as model:
        parts, whole = await answer(model.base_url, QUESTION)
        _, helped = await answer(model.base_url, "Hello")
    assert len(parts) > 3
    assert "".join(parts) == whole.text
    assert [call.tool for call in whole.calls] == ["shell", "shell"]
    assert len({call.id for call in whole.calls}) == 2
    assert helped.text == HELP
    assert helped.usage.output_tokens > 0


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"messages": 3}', '{"messages": [3]}', "\xff"])
async def test_malformed_question_is_refused(body: str) -> None:
    with DemoModel() as model:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{model.base_url}/chat/completions", data=body.encode("latin-1")) as response,
        ):
            assert response.status == 400


async def answered_raw(base_url: str, head: str) -> bytes:
    """Return the first line of the response to a request without a body; it must come at once."""
    address = base_url.removeprefix("http://").removesuffix("/v1")
    host, _, port = address.partition(":")
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head.format(address=address)}\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return line


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: {address}\r\nContent-Length: -1", b"413"),
        ("Host: {address}\r\nContent-Length: 10485761", b"413"),
        ("Host: {address}", b"400"),
        ("Host: localhost\r\nContent-Length: 0", b"400"),
        ("Host: rebound.example:8123\r\nContent-Length: 2", b"403"),
        ("Host: 127.0.0.1.example\r\nContent-Length: 2", b"403"),
        ("Content-Length: 2", b"403"),
    ],
)
async def test_question_of_wrong_size_or_path_is_refused_at_once(head: str, status: bytes) -> None:
    with DemoModel() as model:
        assert status in (await answered_raw(model.base_url, head)).split()


async def test_a_server_that_has_ended_is_gone() -> None:
    with DemoModel() as model:
        url = model.base_url
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/models")


# --- the command ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo that runs."""

    process: asyncio.subprocess.Process
    url: str
    state: Path

    async def say(self, text: str) -> str:
        """Return the output of `dragoman send --wait`."""
        words = ("--state", str(self.state), "send", "--wait", text)
        process = await started(*words, temporary=self.state)
        async with asyncio.timeout(PATIENCE_S):
            out, _ = await process.communicate()
        return out.decode()


async def started(*words: str, temporary: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *words,
        cwd=ROOT,
        env={**environment(), "TMPDIR": str(temporary), "DRAGOMAN_MODEL__NAME": "of-my-real-daemon"},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


@asynccontextmanager
async def demo(temporary: Path) -> AsyncGenerator[Demo]:
    process = await started("demo", temporary=temporary)
    assert process.stdout is not None
    printed = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "ready on" not in printed:
                line = await process.stdout.readline()
                assert line, printed
                printed += line.decode()
        folder = re.search(r"state in (\S+)", printed)
        url = re.search(r"ready on (http://[\w.]+:\d+)", printed)
        assert folder, printed
        assert url, printed
        yield Demo(process=process, url=url[1], state=Path(folder[1]))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_demo_from_its_start_to_its_end(tmp_path: Path, number: signal.Signals) -> None:
    async with demo(tmp_path) as running:
        assert running.state.is_relative_to(tmp_path)
        async with aiohttp.ClientSession() as session, session.get(f"{running.url}/healthz") as response:
            assert response.status == 200
        assert "which kernel is this" in await running.say("Hello")
        running.process.send_signal(number)
        async with asyncio.timeout(15):
            assert await running.process.wait() == 0
    assert os.listdir(tmp_path) == []


async def test_the_demo_takes_no_other_configuration(tmp_path: Path) -> None:
    process = await started("--config", "mine.toml", "demo", temporary=tmp_path)
    out, _ = await process.communicate()
    assert process.returncode == 2
    assert "leave yours out" in out.decode()
