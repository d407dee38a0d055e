"""Eighth: an agent at work in Telegram and on the page: it streams, asks, is steered, falls back, and spawns others."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from gateway.server.control_client import call as ask
from gateway.server.control_wire import socket_path
from tests.support.browser import DESKTOP, Person, at_the_page, chromium
from tests.support.daemon import ROOT, Daemon, Page, environment, page_of
from tests.support.model_server import Asked, Call, Reply, Rule, ScriptedModel, UsageFigures
from tests.support.patience import PATIENCE_S
from tests.support.stopwatch import Stopwatch
from tests.support.telegram import TOKEN, FakeTelegram, Shown

ANN, BOB = 1001, 2002
GROUP = -1003
PLACES = """
[owners]
ann = ["telegram:1001"]
[people]
allow = ["telegram:2002"]
[chats]
allow = ["telegram:-1003"]
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
"""
MODELS = """
[model]
name = "openai:scripted"
base_url = "{model}"
context_tokens = 6000
[model.prices."openai:scripted"]
input = 2.0
output = 10.0
[[model.fallback]]
name = "openai:second"
base_url = "{model}"
[tools.peek]
module = "tests.support.tools.peek"
[agents.reader]
description = "Looks at things, and runs nothing."
tools = ["peek"]
"""
KERNEL, DISK = "uname -sr | tee -a kernel", "df -h / | tee -a disk; until [ -e seen ]; do sleep 0.1; done"
"""The second one waits until the test has seen what is said of it: `World.seen`."""
TASKS = {"count the cores": "nproc", "name the system": "uname -o", "find the workspace": "pwd"}
"""Task of each of three sub-sessions, and the command that it runs for it."""


@dataclass(slots=True)
class World:
    """A daemon, its bot on Telegram and its model."""

    daemon: Daemon
    telegram: FakeTelegram
    model: ScriptedModel

    async def allow(self, card: Shown, label: str = "Once") -> None:
        """Press a button of a card in the owner's chat."""
        toast = await self.telegram.toast(self.telegram.press(ANN, card, label))
        assert toast.text == "Allowed."

    def written(self, name: str) -> list[str]:
        """The lines that all commands together wrote into a file of this name: what really ran, and how often."""
        files = sorted((self.daemon.state / "workspaces").glob(f"*/{name}"))
        return [line for file in files for line in file.read_text().splitlines()]

    def seen(self, name: str) -> None:
        """Let the command end that wrote a file of this name and waits for one named `seen`."""
        for file in (self.daemon.state / "workspaces").glob(f"*/{name}"):
            file.with_name("seen").touch()


@asynccontextmanager
async def a_world(folder: Path, model: ScriptedModel, config: str) -> AsyncGenerator[World]:
    """Everything running."""
    async with FakeTelegram().serve() as telegram:
        telegram.group("Kitchen", chat=GROUP)
        filled = (PLACES + config).format(api_root=telegram.api_root, model=model.base_url)
        daemon = Daemon(folder=folder, warm=True, config=filled)
        await daemon.start({"TELEGRAM_BOT_TOKEN": TOKEN})
        try:
            yield World(daemon, telegram, model)
        finally:
            await daemon.kill()
        assert telegram.surprises == []


@pytest_asyncio.fixture
async def world(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[World]:
    """A daemon with a model, one that steps in for it, and an agent that may look at things and do nothing else."""
    async with a_world(tmp_path, model, MODELS) as found:
        yield found


@pytest_asyncio.fixture
async def without_model(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[World]:
    """A daemon whose people drive its tools themselves."""
    async with a_world(tmp_path, model, "") as found:
        yield found


def call(tool: str, **arguments: Any) -> Call:
    """A call as a model makes it."""
    return Call(name=tool, arguments=json.dumps(arguments))


def when(asked: str, results: int | None = None, /, **reply: Any) -> Rule:
    """Return the rule of the model's answer to a question after so many results."""
    return Rule(text=asked, results=results, reply=Reply(**reply))


def offered(asked: Asked) -> set[str]:
    """The tools that a request offers."""
    return {tool["function"]["name"] for tool in asked.body.get("tools") or ()}


async def until_answered(page: Page, times: int) -> None:
    """Wait until a page shows so many answers."""

    def shown() -> int:
        return sum(row["type"] == "slot" and row["kind"] == "answer" for row in page.rows.values())

    await page.until_row("slot", lambda _: shown() >= times)


async def once(card: Locator) -> None:
    """Allow what a card on the page asks for, by keyboard: a click right after the page moved is not taken."""
    await card.locator("[data-testid=card-button][data-verb=once]").press("Enter")


# --- one agent ----------------------------------------------------------------------------------


@pytest.mark.whole("waits for seconds; the three sub-sessions stay")
async def test_two_commands_share_a_card_and_run_once_each(world: World) -> None:
    """The answer streams; one card asks for both commands, here and on the page; each runs once; it goes on."""
    telegram, model = world.telegram, world.model
    looking = "Let me look at both, the kernel's version and the disk, side by side. I need your word for that."
    calls = (call("shell", command=KERNEL), call("shell", command=DISK))
    usage = UsageFigures(prompt=100_000, completion=20_000)
    model.rules += [
        when("which kernel", 0, text=looking, chunks=25, delay_s=0.1, calls=calls, usage=usage),
        when("which kernel", 2, text="The kernel: {result1}\n\nThe disk: {result2}", usage=usage),
    ]
    async with at_the_page(world.daemon) as owner:
        telegram.say(ANN, "which kernel is this, and how full is the disk?")
        early = await telegram.see(ANN, "Let me look")
        assert looking.startswith(early.text.rstrip("…"))
        assert early.text != looking
        card = await telegram.see(ANN, "df -h /", button="1 · Once")
        assert early.text == looking
        edits = [edit.at_s for edit in telegram.calls("editMessageText", ANN)]
        *streamed, _last_words = edits
        assert all(later - earlier > 0.95 for earlier, later in pairwise(streamed))
        assert "uname -sr" in card.text
        assert [label for label in card.labels if "Once" in label] == ["1 · Once", "2 · Once"]
        await expect(owner.page.get_by_test_id("card")).to_have_count(2)
        await owner.shot("08-two-cards")
        assert world.written("kernel") == world.written("disk") == []

        await world.allow(card, "1 · Once")
        await expect(owner.page.locator("[data-testid=card][data-state=open]")).to_have_count(1)
        await once(owner.card())
        status = await telegram.see(ANN, "▸ shell: df -h /")
        world.seen("disk")
        answer = await telegram.see(ANN, "The disk: Filesystem")
        assert "The kernel: Linux" in answer.text
        await telegram.until(lambda: "▸" not in status.text)
        assert re.fullmatch(r"2 calls \(shell ×2\), \d+ s, 240,000 tokens, \$0\.800", status.text)
        await telegram.until(lambda: not card.buttons)
        assert card.text.count("ann allowed once") == 2
        await owner.sees("The disk: Filesystem")
        await owner.shot("08-both-ran")
    assert len(world.written("kernel")) == 1
    assert len(world.written("disk")) == 2
    assert len(model.requests) == 2
    telegram.say(ANN, "/usage")
    used = await telegram.see(ANN, "You, today")
    assert "openai:scripted: 2 answers, 200,000 tokens read, 40,000 written, $0.800" in used.text


async def test_turn_is_steered_and_stopped(world: World) -> None:
    """A message during a turn is in its next request; /stop ends an endless answer, and a long command, in a second."""
    telegram, model = world.telegram, world.model
    model.rules += [
        when("tidy the house", 0, calls=(call("shell", command="env echo tidying; sleep 3"),)),
        when("leave the attic", text="The cellar alone, then."),
        when("tell me everything", text="And then it went on. ", endless=True, delay_s=0.05),
        when("wait for me", 0, text="I wait.", calls=(call("shell", command="env echo waiting; sleep 3600"),)),
    ]
    telegram.say(ANN, "tidy the house")
    await world.allow(await telegram.see(ANN, "echo tidying", button="Once"))
    await telegram.see(ANN, "▸ shell: env echo tidying")
    telegram.say(ANN, "but leave the attic alone")
    await telegram.see(ANN, "The cellar alone, then.")
    first, second = model.requests
    assert "attic" not in str(first.body)
    assert [message["role"] for message in second.body["messages"]][-3:] == ["assistant", "tool", "user"]

    telegram.say(ANN, "tell me everything")
    await telegram.see(ANN, "And then it went on.")
    watch = Stopwatch(lambda: world.daemon.pid)
    telegram.say(ANN, "/stop")
    await model.until(lambda: model.requests[2].ended == "left")
    assert watch.seconds() < 1

    async with page_of(world.daemon) as page:
        telegram.say(ANN, "wait for me")
        await world.allow(await telegram.see(ANN, "echo waiting", button="Once"))
        await telegram.see(ANN, "▸ shell: env echo waiting")
        watch = Stopwatch(lambda: world.daemon.pid)
        telegram.say(ANN, "/stop")
        await page.until_row("step", lambda row: "cancelled" in str(row.get("result")))
        assert watch.seconds() < 1
    assert len(model.requests) == 4


@pytest.mark.whole("test_model_answers has a fallback that steps in")
async def test_fallback_answers_when_a_model_fails(world: World) -> None:
    """The first is asked twice in vain; the second answers, and the chat says so. Then the first is left alone."""
    telegram, model = world.telegram, world.model
    busy = Reply(status=429, error="too many requests", headers={"Retry-After": "1"})
    model.models["scripted"] = deque([busy] * 2)
    model.models["second"] = deque([Reply(text="Here I am."), Reply(text="Still here.")])
    telegram.say(ANN, "is anybody there?")
    answer = await telegram.see(ANN, "Here I am.")
    assert "second answered: scripted failed" in answer.text
    assert "429" in answer.text
    assert [asked.body["model"] for asked in model.requests] == ["scripted"] * 2 + ["second"]
    tries = [asked.at_s for asked in model.requests[:2]]
    assert all(later - earlier >= 1 for earlier, later in pairwise(tries))
    telegram.say(ANN, "and now?")
    answer = await telegram.see(ANN, "Still here.")
    assert "second answered: scripted rests after a failure" in answer.text
    assert [asked.body["model"] for asked in model.requests[3:]] == ["second"]
    assert "second answered" not in str(model.requests[-1].body), "that is told to people alone"


@pytest.mark.whole("the tests of compaction stay")
async def test_a_long_history_becomes_a_summary(world: World) -> None:
    """The model is asked for it; what it is given later is shorter and holds it; the page still shows everything."""
    model, summary = world.model, "Ann collects pebbles, and the first was green."
    model.rules += [when("Write the summary now", text=summary), when("pebble", text="Noted.")]
    said = 0
    async with page_of(world.daemon) as page:
        while said < 20 and not (said and summary in str(model.requests[-1].body)):
            said += 1
            await page.say(f"This is pebble {said}. " + "It is like no other pebble on this beach. " * 50)
            await until_answered(page, said)
    assert summary in str(model.requests[-1].body)
    lengths = [len(str(asked.body["messages"])) for asked in model.requests]
    assert lengths[-1] < max(lengths) - 4_000
    assert "This is pebble 1." not in str(model.requests[-1].body)
    async with at_the_page(world.daemon) as owner:
        await expect(owner.page.get_by_test_id("message")).to_have_count(said)
        await expect(owner.page.get_by_test_id("message").first).to_contain_text("This is pebble 1.")
        await owner.shot("08-long-history")


# --- several ------------------------------------------------------------------------------------


async def test_three_sub_sessions_work_at_the_same_time(world: World) -> None:
    """They think at once and ask the same owner; one line says what they do; their results come back once."""
    telegram, model = world.telegram, world.model
    spawned = tuple(call("sessions_spawn", task=task, tools=["shell"]) for task in TASKS)
    model.rules += [
        when("three sub-sessions", 0, text="I ask three at once.", calls=spawned),
        when("three sub-sessions", 3, text="They say:\n\n{result1}\n\n{result2}\n\n{result3}"),
    ]
    for task, command in TASKS.items():
        ran = call("shell", command=f"{command} | tee -a ran")
        model.rules += [
            when(f"(?m)^{task}", 0, think_s=1, calls=(ran,)),
            when(f"(?m)^{task}", 1, text=f"I was to {task}: {{result1}}"),
        ]
    async with at_the_page(world.daemon) as owner:
        telegram.say(ANN, "Ask three sub-sessions to look around")
        cards = [await telegram.see(ANN, command, button="Once") for command in TASKS.values()]
        assert model.most_at_once == 3
        assert [f"Sub-session: {task}" in card.text for task, card in zip(TASKS, cards, strict=True)] == [True] * 3
        status = await telegram.see(ANN, "3 sub-sessions: ")
        await telegram.until(lambda: all(f"{task}: waits for a decision" in status.text for task in TASKS))
        telegram.say(ANN, "/tree")
        tree = await telegram.see(ANN, "Sub-sessions:")
        assert [f"{task}: parked, 1 waiting for a decision" in tree.text for task in TASKS] == [True] * 3

        children = owner.page.get_by_test_id("child")
        await expect(children).to_have_count(3)
        await expect(owner.page.locator("[data-testid=session-item][data-session^='child:']")).to_have_count(3)
        await expect(children.last).to_contain_text("pwd")
        await owner.shot("08-three-sub-sessions-ask")
        await once(children.last)
        await world.allow(cards[0])
        await world.allow(cards[1])
        answer = await telegram.see(ANN, "They say:")
        assert [f"I was to {task}" in answer.text for task in TASKS] == [True] * 3
        await telegram.until(lambda: status.text.startswith("3 calls (sessions_spawn ×3), "))
        await owner.sees("They say:")
        await expect(owner.page.locator("[data-testid=child][data-standing=done]")).to_have_count(3)
        await owner.shot("08-three-sub-sessions-done")
    assert len(world.written("ran")) == 3
    assert len(model.requests) == 2 + 3 * 2
    assert [message.text.count("They say:") for message in telegram.shown(ANN)].count(1) == 1


@pytest.mark.whole("three sub-sessions at the same time stay")
async def test_spawning_without_a_model(without_model: World) -> None:
    """`/spawn` begins a sub-session, which is driven like everything else: its command asks, then its answer comes."""
    world, telegram = without_model, without_model.telegram
    telegram.say(ANN, "/spawn /shell echo from the chat | tee -a ran")
    await world.allow(await telegram.see(ANN, "echo from the chat", button="Once"))
    answer = await telegram.see(ANN, "exit 0")
    assert "from the chat" in answer.text
    async with at_the_page(world.daemon) as owner:
        await owner.say("/spawn /shell echo from the page | tee -a ran")
        child = owner.page.get_by_test_id("child").last
        await expect(child).to_contain_text("echo from the page")
        await expect(child.get_by_test_id("card")).to_be_visible()
        await owner.shot("08-spawn-without-a-model")
        await once(child)
        await expect(child).to_have_attribute("data-standing", "done")
        await expect(owner.page.get_by_text("1 sub-session at work")).to_have_count(0)
        await owner.shot("08-spawn-without-a-model-done")
    assert sorted(world.written("ran")) == ["from the chat", "from the page"]


@pytest.mark.whole("waits for seconds; the three sub-sessions stay")
async def test_an_agent_of_the_configuration(world: World) -> None:
    """It has its own tools alone, and may be waited for or not; who is no owner waits for one who allows it."""
    telegram, model = world.telegram, world.model
    model.rules += [
        when("ask the reader", 0, calls=(call("sessions_spawn", task="look at the oven", agent="reader"),)),
        when("ask the reader", 1, text="The reader says: {result1}"),
        when("looked at meanwhile", 0, calls=(call("sessions_spawn", task="look at the oven", mode="session"),)),
        when("looked at meanwhile", 1, text="So be it: {result1}"),
        when("has ended: done", text="I am told: {text}"),
        when("(?m)^look at the oven", 0, calls=(call("peek", what="the oven"),)),
        when("(?m)^look at the oven", 1, text="I {result1}."),
    ]
    telegram.say(ANN, "ask the reader about the oven")
    await telegram.see(ANN, "The reader says: I peeked at the oven.")
    assert offered(model.requests[0]) > {"peek", "shell", "sessions_spawn"}
    assert offered(model.requests[1]) == {"peek"}

    telegram.say(ANN, "have the oven looked at meanwhile")
    await telegram.see(ANN, "So be it: ")
    told = await telegram.see(ANN, "I am told: ")
    assert "has ended: done" in told.text
    assert "Task: look at the oven" in told.text
    assert "I peeked at the oven." in told.text

    telegram.private(BOB)
    for place, bot in ((BOB, ""), (GROUP, "@dragoman_test_bot ")):
        telegram.say(BOB, f"{bot}ask the reader about the oven", chat=place)
        await telegram.see(place, "An owner was asked")
        card = await telegram.see(ANN, "look at the oven", button="Once")
        assert 'agent = "reader"' in card.text
        before = len(model.requests)
        await world.allow(card)
        await telegram.see(place, "The reader says: I peeked at the oven.")
        assert offered(model.requests[before]) == {"peek"}


# --- with nothing configured --------------------------------------------------------------------


@asynccontextmanager
async def a_demo(folder: Path) -> AsyncGenerator[str]:
    """`dragoman demo`, as a newcomer starts it; yields a link to sign in with."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "demo"),
        cwd=ROOT,
        env={**environment(), "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "ready on" not in printed:
                line = (await process.stdout.readline()).decode()
                assert line, printed
                printed += line
        found = re.search(r"state in (\S+)", printed)
        assert found, printed
        told = await asyncio.to_thread(ask, socket_path(Path(found[1])), "link", {"owner": None}, 10)
        yield str(told["url"])
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@pytest.mark.whole("the demo in a terminal stays")
async def test_the_demo_on_its_page(tmp_path: Path) -> None:
    """No key, no configuration: the question on the page, a card, a press, and what the script makes of it."""
    async with a_demo(tmp_path) as link, chromium() as browser:
        context = await browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        newcomer = Person(await context.new_page())
        await newcomer.page.goto(link)
        await newcomer.say("which kernel is this, and how full is the disk?")
        opened = newcomer.page.locator("[data-testid=card][data-state=open]")
        await expect(opened).to_have_count(1)  # the kernel's version is only read; the disk is not of the workspace
        await newcomer.shot("08-demo-asks")
        await once(opened.first)
        await newcomer.sees(f"The kernel is {os.uname().release}")
        await newcomer.sees("In all: 2 calls")
        await newcomer.shot("08-demo-done")
        assert newcomer.complaints == []
