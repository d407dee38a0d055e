"""F04: the disk fills. What was accepted is kept, the rest is refused in words, and it mends itself."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.turns import Turn, TurnState
from tests.fault.rig import Json, Visitor, lines_of, stored, until, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.model_server import Reply, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.places import Disk, small_disk
from tests.support.platform import FakePlatform
from tests.support.proof import LOST, TWICE, figure, times
from tests.support.stopwatch import Stopwatch

CONFIG = """
[owners]
ann = ["test:1001"]
[channels.test]
module = "tests.support.channel"
port = {port}
"""
ANN = "1001"
MESSAGES = times(60, 60, small=30)
"""Number of messages until the disk is full and while it is, and again afterwards; each has 5,000 characters."""
AGAIN_WITHIN_S = 5


@dataclass(slots=True)
class World:
    """A daemon whose state is on a disk of 8 MiB, its platform, and ann's page."""

    daemon: Daemon
    disk: Disk
    platform: FakePlatform
    page: Visitor
    out: Path

    async def say(self, text: str, id: str = "") -> Json:
        """Say something on the page; the answer must come soon, whatever it is."""
        return await self.page.answered(await self.page.say(text, id))

    async def until_taken_again(self) -> None:
        """Free the disk; within five seconds a message is taken, and the daemon says that it is ready."""
        self.disk.free()
        watch = Stopwatch(lambda: self.daemon.pid)
        async with asyncio.timeout(PATIENCE_S):
            for n in range(1000):
                if (await self.say("again", f"again-{n:08}"))["ok"]:
                    break
                await asyncio.sleep(0.1)
            while True:
                if await self.ready() == 200:
                    break
                await asyncio.sleep(0.1)
        figure("F04", "from room to ready", watch.seconds(), AGAIN_WITHIN_S, "s")

    async def ready(self) -> int:
        """The status of /readyz."""
        async with aiohttp.ClientSession() as client, client.get(f"{self.daemon.url}/readyz") as response:
            return response.status

    def copy(self) -> Path:
        """The state folder of a stopped daemon, where the store can be opened; its file is whole."""
        folder = self.out / f"copy-{time.monotonic_ns()}"
        shutil.copytree(self.disk.seen, folder, ignore=shutil.ignore_patterns("*.sock", "filler"))
        with closing(sqlite3.connect(folder / "dragoman.db")) as db:
            damage = [line for (line,) in db.execute("PRAGMA integrity_check") if line != "ok"]
        figure("F04", "damaged stores", bool(damage), 0, of=1)
        return folder


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """All of it running, with room."""
    daemon = Daemon(folder=tmp_path)
    async with FakePlatform().serve() as platform, small_disk(daemon.state) as disk:
        daemon.config = CONFIG.format(port=platform.port)
        daemon.prefix = disk.enter
        await daemon.start()
        try:
            async with visiting(daemon, state=disk.seen) as page:
                yield World(daemon, disk, platform, page, tmp_path)
        finally:
            await daemon.kill()


async def test_accepted_message_is_answered_on_a_filling_disk(world: World) -> None:
    """Messages while it fills: each is taken and answered, or refused in words; sent again, those are taken too."""
    pid = world.daemon.process.pid if world.daemon.process else 0
    taken: list[str] = []
    refused: list[str] = []
    for n in range(MESSAGES):
        if n == 10:
            world.disk.fill()
        text = f"message {n} " + "x" * 5000
        answer = await world.say(text, f"message-{n:04}")
        (taken if answer["ok"] else refused).append(text)
        assert answer["ok"] or "ree space" in answer["error"], answer
    assert await world.ready() == 503
    await world.until_taken_again()
    for n in range(MESSAGES):
        world.page.answers.pop(f"message-{n:04}")
        text = f"message {n} " + "x" * 5000
        assert (await world.say(text, f"message-{n:04}"))["ok"]
    await until_quiet(world.daemon)
    assert world.daemon.process is not None
    assert world.daemon.process.pid == pid
    assert await world.daemon.stop() == 0
    items = await stored(world.copy(), "main:ann")
    texts = [one.message.text for one in items if isinstance(one, Received)]
    said = Counter([*taken, *refused, "again"])
    figure("F04", LOST, (said - Counter(texts)).total(), 0, of=said.total())
    figure("F04", TWICE, (Counter(texts) - said).total(), 0, of=said.total())
    figure("F04", "messages refused in words while it was full", len(refused), 1, least=True)
    turns = [one for one in items if isinstance(one, Turn)]
    assert {turn.state for turn in turns} == {TurnState.DONE}
    answers = [one for one in items if isinstance(one, Slot) and one.kind is SlotKind.ANSWER]
    assert {one.turn for one in answers} == {turn.id for turn in turns}
    # A turn that messages came into while it answered has several answers: each of one step, shown once.
    assert len({(one.turn, one.n) for one in answers}) == len(answers)
    assert all(one.text for one in answers)


@pytest.mark.whole("waits for seconds; an answer that cannot be stored stays")
async def test_a_platform_is_not_told_that_it_was_taken(world: World) -> None:
    """No acknowledgement while nothing can be stored; the platform's next delivery of the same event counts."""
    world.disk.fill()
    keys: list[str] = []
    await until_refused(world)
    for n in range(30):
        keys.append(await world.platform.say(ANN, "y" * 5_000, key=f"event-{n}"))
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    late = [key for key in keys if key not in world.platform.toasts]
    assert late
    await world.until_taken_again()
    for key in late:
        await world.platform.say(ANN, "y" * 5_000, key=key)
    for key in keys:
        await world.platform.acked(key)
    await until_quiet(world.daemon)
    assert await world.daemon.stop() == 0
    received = [one for one in await stored(world.copy(), "main:ann") if isinstance(one, Received)]
    got = len([one for one in received if one.message.conversation.channel == "test"])
    figure("F04", LOST, len(keys) - got, 0, of=len(keys))
    assert got == len(keys)


@pytest.mark.whole("waits for seconds; an answer that cannot be stored stays")
async def test_a_press_that_cannot_be_stored_does_nothing(world: World) -> None:
    """The page is told why, nothing runs, and the same button works once there is room."""
    await world.say("/shell echo x >> ran")
    asked = await world.page.row("approval", state="open")
    await world.page.row("turn", state="parked")
    world.disk.fill()
    handle = world.page.handles[asked["id"], "once"]
    await until_refused(world)
    pressed = await world.page.answered(await world.page.press(handle))
    assert pressed["result"] not in ("approved", "denied")
    assert "ree space" in pressed["text"]
    ran = lines_of(world.disk.seen, "ran")
    figure("F30", "commands run whose decision could not be stored", len(ran), 0, of=1)
    world.disk.free()
    async with asyncio.timeout(AGAIN_WITHIN_S):
        while True:
            if (await world.page.answered(await world.page.press(handle)))["result"] == "approved":
                break
            await asyncio.sleep(0.1)
    await until_quiet(world.daemon)
    assert lines_of(world.disk.seen, "ran") == ["x"]
    assert await world.daemon.stop() == 0
    world.copy()


@pytest.mark.whole("waits for seconds; an answer that cannot be stored stays")
async def test_a_command_that_ends_when_nothing_can_be_stored(world: World) -> None:
    """It ran once; its result is kept until it can be stored, and told within five seconds then."""
    await world.say("/shell echo x >> ran; while [ ! -e filled ]; do sleep 0.05; done; sleep 0.3")
    asked = await world.page.row("approval", state="open")
    await world.page.answered(await world.page.press(world.page.handles[asked["id"], "once"]))
    await until(lambda: lines_of(world.disk.seen, "ran"))
    [ran] = (world.disk.seen / "workspaces").rglob("ran")
    (ran.parent / "filled").touch()
    world.disk.fill()
    await until_refused(world)
    await asyncio.sleep(3)
    await world.until_taken_again()
    step = await world.page.row("step", within_s=AGAIN_WITHIN_S, kind="tool", state="finished")
    assert step["result"]["status"] == "ok"
    await until_quiet(world.daemon, within_s=AGAIN_WITHIN_S)
    assert lines_of(world.disk.seen, "ran") == ["x"]
    assert await world.daemon.stop() == 0
    world.copy()


async def test_an_answer_that_cannot_be_stored(world: World) -> None:
    """The model answers when nothing can be stored: it is asked again, and answers once, soon after there is room."""
    async with ScriptedModel([Reply(text="First.", think_s=1), Reply(text="Second.")]) as model:
        world.daemon.config += f'[model]\nname = "openai:scripted"\nbase_url = "{model.base_url}"\n'
        assert await world.daemon.stop() == 0
        await world.daemon.start()
        assert (await world.say("hello"))["ok"]
        await model.until(lambda: len(model.requests) == 1)
        world.disk.fill()
        await until_refused(world)
        await asyncio.sleep(3)
        world.disk.free()
        answer = await world.page.row("slot", within_s=AGAIN_WITHIN_S, kind="answer")
        assert answer["text"] == "Second."
        await until_quiet(world.daemon)
        assert await world.daemon.stop() == 0
    items = await stored(world.copy(), "main:ann")
    [first] = [one for one in items if isinstance(one, Received) and one.message.text == "hello"]
    assert len([one for one in items if isinstance(one, Slot) and one.turn == first.turn]) == 1


@pytest.mark.whole("waits for seconds; an answer that cannot be stored stays")
async def test_a_command_that_fills_it(world: World) -> None:
    """The tool itself is what fills the disk: it fails, and everything goes on once there is room."""
    await world.say("/shell head -c 20000000 /dev/zero > filler; rm -f filler; echo gone")
    asked = await world.page.row("approval", state="open")
    await world.page.answered(await world.page.press(world.page.handles[asked["id"], "once"]))
    step = await world.page.row("step", kind="tool", state="finished")
    assert step["result"]["status"] in ("ok", "unknown")
    async with asyncio.timeout(AGAIN_WITHIN_S):
        while True:
            if (await world.say("again"))["ok"]:
                break
            await asyncio.sleep(0.1)
    await until_quiet(world.daemon)


@pytest.mark.whole("waits for seconds; an answer that cannot be stored stays")
async def test_killed_while_it_is_full(world: World) -> None:
    """The worst of both: what was accepted before is answered after, once there is room."""
    for n in range(5):
        assert (await world.say(f"message {n}"))["ok"]
    world.disk.fill()
    await until_refused(world)
    await world.daemon.kill()
    await world.daemon.start(ready=False)
    await asyncio.sleep(3)
    assert world.daemon.process is not None
    if world.daemon.process.returncode is not None:
        text = (world.daemon.folder / f"log-{world.daemon.lives:02}.txt").read_text()
        assert "ree space" in text
        assert "Traceback" not in text
        world.disk.free()
        await world.daemon.start()
    else:
        world.disk.free()
        await world.daemon.until_ready()
    await until_quiet(world.daemon)
    assert await world.daemon.stop() == 0
    items = await stored(world.copy(), "main:ann")
    texts = [one.message.text for one in items if isinstance(one, Received)]
    assert texts[:5] == [f"message {n}" for n in range(5)]
    assert {turn.state for turn in items if isinstance(turn, Turn)} == {TurnState.DONE}


async def until_refused(world: World) -> None:
    """Write until there is really no room left: the store may have some of its own."""
    async with asyncio.timeout(20):
        for n in range(1000):
            if not (await world.say("z" * 20_000, f"filling-{n:08}"))["ok"]:
                return
