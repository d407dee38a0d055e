"""F32: SIGTERM in the middle of something. The daemon ends within ten seconds; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.steps import Step
from gateway.domain.turns import Turn, TurnState
from tests.fault.rig import lines_of, marked, stored, until, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.model_server import Reply, Rule, ScriptedModel
from tests.support.platform import FakePlatform
from tests.support.proof import LOST, RAN_TWICE, TWICE, figure
from tests.support.tools.silence import ASKED

CONFIG = """
[owners]
ann = ["test:1001"]
[model]
name = "openai:scripted"
base_url = "{model}"
[channels.test]
module = "tests.support.channel"
port = {port}
"""
ANN, CHAT = "1001", "d1001"
AT_MOST_S = 10


@dataclass(slots=True)
class World:
    """A daemon with its platform and its model."""

    daemon: Daemon
    platform: FakePlatform
    model: ScriptedModel

    async def terminate(self, within_s: float = AT_MOST_S) -> None:
        """SIGTERM; the daemon ends with 0, in time."""
        began = time.monotonic()
        assert await self.daemon.stop(within_s=30) == 0, self.daemon.log[-3000:]
        figure("F32", "from SIGTERM to the end", time.monotonic() - began, within_s, "s")

    def creates(self, contains: str) -> list[bool]:
        """For each message that was sent with a text: whether it was marked as a repetition."""
        sent = [frame for frame in self.platform.log if frame["op"] == "send"]
        return [frame["repeated"] for frame in sent if contains in json.dumps(frame)]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """All three running."""
    async with ScriptedModel() as model, FakePlatform().serve() as platform:
        daemon = Daemon(folder=tmp_path, warm=True, config=CONFIG.format(model=model.base_url, port=platform.port))
        await daemon.start()
        try:
            yield World(daemon, platform, model)
        finally:
            await daemon.kill()


@pytest.mark.whole("all of it at the same time stays")
async def test_shutdown_while_the_model_streams(world: World) -> None:
    """J5: the request is closed, the turn goes back to the queue, and the next life asks again and answers once."""
    slow = Rule(reply=Reply(text="one two three four five six", chunks=6, delay_s=5))
    world.model.rules.append(slow)
    await world.platform.acked(await world.platform.say(ANN, "count"))
    await world.model.until(lambda: len(world.model.requests) == 1)
    await world.terminate()
    await world.model.until(lambda: world.model.requests[0].ended == "left")
    world.model.rules[:] = [Rule(reply=Reply(text="one two three"))]
    await world.daemon.start()
    await world.platform.see(CHAT, "answer", "one two three")
    await until_quiet(world.daemon)
    assert world.creates("one two three") == [False]
    assert len(world.model.requests) == 2


@pytest.mark.whole("all of it at the same time stays")
async def test_shutdown_while_a_command_runs(world: World) -> None:
    """J12: its whole tree is killed, even what ignores SIGTERM; the result says so and the answer comes."""
    marker = f"7{time.monotonic_ns() % 10**9}"
    await world.platform.say(ANN, f"/shell trap '' TERM; echo x >> ran; sleep {marker}")
    card = await world.platform.see(CHAT, "card", marker)
    await world.platform.acked(await world.platform.press(ANN, card.handle("once")))
    await until(lambda: lines_of(world.daemon.state, "ran"))
    await world.terminate()
    assert marked(marker) == {}
    await world.daemon.start()
    await world.platform.see(CHAT, "answer", "shutdown")
    await until_quiet(world.daemon)
    assert await world.daemon.stop() == 0
    [step] = [one for one in await stored(world.daemon.state, "main:ann") if isinstance(one, Step) and one.call]
    assert step.result is not None
    assert (step.result.status, step.result.code) == ("cancelled", "shutdown")
    assert lines_of(world.daemon.state, "ran") == ["x"]
    assert world.creates("cancelled by shutdown") == [False]


@pytest.mark.whole("all of it at the same time stays")
async def test_shutdown_while_the_platform_is_silent(world: World) -> None:
    """J17: nobody knows whether the answer was shown, so the next life shows it once more, and says so."""
    world.model.rules.append(Rule(reply=Reply(text="Here I am.")))
    world.platform.answer_send = lambda frame: None
    await world.platform.acked(await world.platform.say(ANN, "hello"))
    await world.platform.until(lambda: bool(world.creates("Here I am.")))
    await world.terminate()
    world.platform.answer_send = lambda frame: {}
    await world.daemon.start()
    await world.platform.see(CHAT, "answer", "Here I am.", count=2)
    await until_quiet(world.daemon)
    assert world.creates("Here I am.") == [False, True]
    assert len(world.model.requests) == 1


async def test_shutdown_while_all_of_it_happens(world: World) -> None:
    """A streaming model, a command, a platform that is silent, an open page and twenty messages that wait."""
    said = [f"question {n}" for n in range(20)]
    world.model.rules.append(Rule(text="question 0$", reply=Reply(text="slow", chunks=4, delay_s=5)))
    async with visiting(world.daemon) as page:
        await world.platform.say(ANN, "/shell echo x >> ran; sleep 1000")
        card = await world.platform.see(CHAT, "card", "sleep 1000")
        await world.platform.acked(await world.platform.press(ANN, card.handle("once")))
        await until(lambda: lines_of(world.daemon.state, "ran"))
        for text in said:
            await page.answered(await page.say(text))
        world.platform.answer_send = lambda frame: None
        await world.platform.acked(await world.platform.say(ANN, "/status"))
        await world.model.until(lambda: len(world.model.requests) > 0)
        await world.terminate()
        world.platform.answer_send = lambda frame: {}
        world.model.rules.clear()
        await world.daemon.start()
        await until_quiet(world.daemon)
        await page.until(lambda: len(page.of("turn", state="done")) == len(page.of("turn")))
        assert await world.daemon.stop() == 0
    items = await stored(world.daemon.state, "main:ann")
    received = [one for one in items if isinstance(one, Received) and one.turn]
    got = Counter(one.message.text for one in received)
    figure("F32", LOST, (Counter(said) - got).total(), 0, of=len(said))
    assert sorted(got.elements())[1:] == sorted(said)
    turns = [one for one in items if isinstance(one, Turn)]
    assert {turn.state for turn in turns} == {TurnState.DONE}
    answers = [one for one in items if isinstance(one, Slot) and one.kind is SlotKind.ANSWER]
    figure("F32", TWICE, len(answers) - len(turns), 0, of=len(turns))
    assert sorted(one.turn or "" for one in answers) == sorted(turn.id for turn in turns)
    ran = lines_of(world.daemon.state, "ran")
    figure("F32", RAN_TWICE, len(ran) - 1, 0, of=1)
    assert ran == ["x"]


@pytest.mark.whole("all of it at the same time, and kills with open cards, stay")
async def test_shutdown_while_a_card_waits(world: World) -> None:
    """A parked turn holds nothing up: the daemon is gone at once, and the same button works in the next life."""
    await world.platform.say(ANN, "/shell echo x >> ran")
    card = await world.platform.see(CHAT, "card", "echo x")
    await until_parked(world)
    await world.terminate(within_s=3)
    key = await world.platform.press(ANN, card.handle("once"))
    await world.daemon.start()
    assert (await world.platform.acked(key))["result"] == "approved"
    await until_quiet(world.daemon)
    assert lines_of(world.daemon.state, "ran") == ["x"]
    assert world.creates("echo x >> ran")[0] is False


async def test_asked_twice(world: World) -> None:
    """A second SIGTERM and a SIGINT while it drains change nothing."""
    world.platform.answer_send = lambda frame: None
    await world.platform.acked(await world.platform.say(ANN, "/status"))
    await world.platform.until(lambda: bool(world.creates("This session")))
    process = world.daemon.process
    assert process is not None
    for again in (signal.SIGTERM, *(signal.SIGTERM, signal.SIGINT) * 5):
        # Not by the process's own method: that looks whether it has ended, and then nobody else learns its exit code.
        with suppress(ProcessLookupError):
            os.kill(process.pid, again)
        await asyncio.sleep(0.01)
    assert await world.daemon.died(AT_MOST_S) == 0
    assert "Traceback" not in world.daemon.log


async def until_parked(world: World) -> None:
    """Wait until the page's session has a parked turn."""
    async with visiting(world.daemon) as page:
        await page.row("turn", state="parked")


SILENT = """
[owners]
ann = ["test:1001"]
[model]
name = "openai:scripted"
base_url = "http://models.example.org/v1"
api_key = "env:PATH"
[tools.peek]
module = "tests.support.tools.silence"
[channels.test]
module = "tests.support.channel"
port = {port}
"""


async def test_shutdown_while_name_servers_are_silent(tmp_path: Path) -> None:
    """A lookup by the system cannot be cut short; nobody waits for it."""
    async with FakePlatform().serve() as platform:
        daemon = Daemon(folder=tmp_path, config=SILENT.format(port=platform.port))
        await daemon.start()
        try:
            await platform.acked(await platform.say(ANN, "hello"))
            await until(lambda: ASKED in daemon.log)
            began = time.monotonic()
            assert await daemon.stop(within_s=30) == 0, daemon.log[-3000:]
            figure("F32", "from SIGTERM to the end", time.monotonic() - began, AT_MOST_S, "s")
        finally:
            await daemon.kill()
