"""F01: kill -9 at every point of a message's path, with people who write, press and look on as if nothing happened."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.system.failpoints import ENVIRONMENT, POINTS
from tests.fault.oracle import Evidence, judge, tell, tell_shown
from tests.fault.rig import Visitor, lines_of, stored, until_quiet, visiting
from tests.support.daemon import Daemon
from tests.support.model_server import Call, Reply, Rule, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.platform import FakePlatform, Shown
from tests.support.proof import KILLS, counted, times

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
LIVES = range(times(1, 6))
"""So often it dies at each point: at its first passage, then at its second, and so on by turns."""
ANN, CHAT = "1001", "d1001"
WORK, HURRY, COMMAND, HELLO = "do both", "and be quick", "/shell echo x >> commanded", "hello from the page"
ALLOWED, DENIED, COMMANDED = "echo x >> allowed", "echo x >> denied", "echo x >> commanded"


def script() -> list[Rule]:
    """Return the model's answers, for any number of questions."""
    calls = tuple(Call(name="shell", arguments=json.dumps({"command": one})) for one in (ALLOWED, DENIED))
    return [
        Rule(text=HURRY, reply=Reply(text="Both were decided, quickly.")),
        Rule(text=WORK, results=0, reply=Reply(text="Let me.", calls=calls)),
        Rule(text=HELLO, reply=Reply(text="Hello, page.")),
    ]


class People:
    """Ann in her chat and on her page. She does not know that the daemon dies."""

    def __init__(self, platform: FakePlatform, page: Visitor) -> None:
        """Begin with nothing said."""
        self.platform = platform
        self.page = page
        self.hurried = asyncio.Event()
        self.pressed: dict[str, str] = {}
        """By command: the key of the press."""

    async def live(self) -> None:
        """Say everything and press every card once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            for command in (ALLOWED, DENIED, COMMANDED):
                group.create_task(self._press(command))

    async def _write(self) -> None:
        await self.platform.acked(await self.platform.say(ANN, WORK))
        await self.platform.see(CHAT, "card", ALLOWED)
        await self.platform.acked(await self.platform.say(ANN, HURRY))
        self.hurried.set()
        await self.platform.acked(await self.platform.say(ANN, COMMAND))
        assert (await self.page.answered(await self.page.say(HELLO)))["ok"]

    async def _press(self, command: str) -> None:
        card = await self.platform.see(CHAT, "card", command)
        await self.hurried.wait()
        verb = "deny" if command == DENIED else "once"
        key = await self.platform.press(ANN, card.handle(verb, row_of(card, command)))
        self.pressed[command] = key
        wanted = "denied" if command == DENIED else "approved"
        assert (await self.platform.acked(key))["result"] in (wanted, "duplicate")

    async def press_everything_again(self) -> None:
        """Every button of every card, in the chat and on the page: none may do anything now."""
        for n, handle in enumerate(buttons(self.platform)):
            again = await self.platform.press(ANN, handle, key=f"again-{n}")
            assert (await self.platform.acked(again))["result"] == "already"
        for handle in self.page.handles.values():
            assert (await self.page.answered(await self.page.press(handle)))["result"] == "already"
        for command, key in self.pressed.items():
            frame = next(f for f in self.platform.log if f["op"] == "event" and f["key"] == key)
            replay = self.platform.toasts.pop(key)
            await self.platform.press(ANN, frame["handle"], key=key)
            assert (await self.platform.acked(key))["result"] == "duplicate", (command, replay)


def row_of(card: Shown, command: str) -> int:
    """The row of a card that asks about a command."""
    return next(n for n, row in enumerate(card.rows) if row["rendered"].startswith(command))


def buttons(platform: FakePlatform) -> list[str]:
    """Every handle that the platform was ever given, also of cards that were edited since."""
    sent = [frame for frame in platform.log if frame["op"] in ("send", "edit")]
    return list(dict.fromkeys(b["handle"] for frame in sent for row in frame["rows"] for b in row["buttons"]))


@asynccontextmanager
async def world(folder: Path, armed: str) -> AsyncGenerator[tuple[Daemon, FakePlatform, ScriptedModel, People]]:
    """A daemon with armed fail points, its platform, its model, and ann's page."""
    async with ScriptedModel(rules=script()) as model, FakePlatform().serve() as platform:
        daemon = Daemon(folder=folder, warm=True, config=CONFIG.format(model=model.base_url, port=platform.port))
        await daemon.start({ENVIRONMENT: armed})
        try:
            async with visiting(daemon) as page:
                yield daemon, platform, model, People(platform, page)
        finally:
            await daemon.kill()


async def comes_back(daemon: Daemon) -> None:
    """Wait for the death by `kill -9`, then start the daemon without fail points."""
    assert await daemon.died() == -signal.SIGKILL
    await daemon.start()


NOW = list(POINTS)[::4]
LATER = pytest.mark.whole("every fourth point stays; the kills of each channel pass others")


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("point", [*NOW, *(pytest.param(point, marks=LATER) for point in POINTS if point not in NOW)])
async def test_killed_at(point: str, life: int, tmp_path: Path) -> None:
    """Nothing is lost, nothing runs twice, and the card still works, once."""
    async with world(tmp_path, f"{point}:kill:{1 + life % 2}") as (daemon, platform, model, people):
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(comes_back(daemon))
            group.create_task(people.live())
        await until_quiet(daemon)
        await people.press_everything_again()
        assert await daemon.stop() == 0
        evidence = Evidence(
            said=[WORK, HURRY, COMMAND, HELLO],
            ran={
                ALLOWED: len(lines_of(daemon.state, "allowed")),
                DENIED: len(lines_of(daemon.state, "denied")),
                COMMANDED: len(lines_of(daemon.state, "commanded")),
            },
            frames=platform.log,
            asked=[asked.body for asked in model.requests],
            page=list(people.page.rows.values()),
            items=await stored(daemon.state, "main:ann"),
        )
        counted(KILLS, 1, "F01")
        tell("F01", evidence)
        tell_shown("F01", evidence)
        judge(evidence)
