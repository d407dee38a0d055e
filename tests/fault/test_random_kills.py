"""F02: kill -9 at random moments and random points, while many people write to many sessions as if nothing happened.

Owners on the web page and on Telegram, and friends on Telegram. Ann's commands are asked about; she presses once.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.failpoints import POINTS
from tests.fault.rig import Visitor, lines_of, visiting
from tests.fault.telegram_rig import (
    ANN,
    Wire,
    everything,
    judge_chats,
    judge_sessions,
    slots_of,
    tell_sessions,
    wire,
)
from tests.support.proof import KILLS, counted, dice, figure, times

DEATHS, MESSAGES, SESSIONS = times((6, 120, 12), (1_000, 10_000, 200))
FRIENDS = range(3001, 3001 + SESSIONS - 2)
"""All sessions but Ann's, which is on Telegram here, and Joe's, which is on the web page."""
COMMANDS = times(0.05, 0.01)
"""The share of messages that are commands of Ann's."""
LIFE_S = 1.5
"""No life is longer, and most are shorter: a start takes half of that."""
PAUSE_S = LIFE_S * DEATHS / MESSAGES
"""Between two messages, at most."""
READY_S, ANSWERED_S = times((10.0, 20.0), (5.0, 120.0))
"""From a start until messages are taken (median), and until all is answered. Wide: machines are busy."""
NO_LIMITS = "per_chat_per_s = 0\noverall_per_s = 0"
ASK = 'approval = "ask"'


@dataclass(slots=True, kw_only=True)
class People:
    """Everybody who writes."""

    wire: Wire
    page: Visitor
    chance: random.Random
    said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By session, in order."""
    commands: list[str] = field(default_factory=list[str])
    number: int = 0

    async def write(self, count: int) -> None:
        """Say so many things, anybody anywhere, for about as long as it lives and dies."""
        for _ in range(count):
            self.number += 1
            draw = self.chance.random()
            if draw < COMMANDS:
                self._command()
            elif draw < COMMANDS + 2 / SESSIONS:
                await self._on_the_page()
            else:
                self._on_telegram(self.chance.choice([ANN, *FRIENDS]), f"message {self.number}")
            await asyncio.sleep(self.chance.uniform(0, PAUSE_S))

    def _command(self) -> None:
        """Each leaves a line in a file of its own when it runs."""
        command = f"echo x >> ran-{self.number}"
        self.commands.append(command)
        self._on_telegram(ANN, f"/shell {command}")

    def _on_telegram(self, who: int, text: str) -> None:
        self.said.setdefault("main:ann" if who == ANN else f"dm:telegram/main/{who}", []).append(text)
        self.wire.telegram.say(who, text)

    async def _on_the_page(self) -> None:
        """The page sends it again until it was taken; Joe waits for that before he says more."""
        text = f"message {self.number}"
        self.said.setdefault("main:joe", []).append(text)
        assert (await self.page.answered(await self.page.say(text), within_s=60))["ok"]

    async def press(self) -> None:
        """Allow what is asked, each card once, until cancelled."""
        pressed: set[int] = set()
        while True:
            for card in self.wire.telegram.shown(ANN):
                if card.buttons and card.id not in pressed:
                    pressed.add(card.id)
                    self.wire.telegram.press(ANN, card, "Once")
            await asyncio.sleep(0.05)


async def live_and_die(one: Wire, chance: random.Random) -> float | None:
    """One life that ends by `kill -9`: at a random point if it comes there, else at a random moment.

    Returns the seconds until it took messages; None when it died before.
    """
    point = f"{chance.choice([*POINTS])}:kill:{chance.randint(1, 6)}" if chance.random() < 0.5 else ""
    left_s = chance.uniform(0.05, LIFE_S)
    began, ready = time.monotonic(), None
    await one.start(point, ready=False)
    with suppress(TimeoutError):
        async with asyncio.timeout(left_s):
            with suppress(AssertionError):  # it may die before it is ready
                await one.daemon.until_ready(left_s)
                ready = time.monotonic() - began
            await one.daemon.died(left_s)
    await one.kill()
    return ready


@asynccontextmanager
async def world(folder: Path, chance: random.Random) -> AsyncGenerator[People]:
    """Everybody is there, and the daemon lives."""
    async with wire(folder, friends=FRIENDS, limits=NO_LIMITS) as one:
        one.shell = ASK
        await one.start()
        async with visiting(one.daemon, "joe") as page:
            yield People(wire=one, page=page, chance=chance)


@pytest.mark.timeout(times(120, 4 * 3600))
async def test_killed_at_random(tmp_path: Path) -> None:
    """Nothing is lost, nothing is answered twice without a mark, no command runs twice, and every turn ends."""
    chance = dice("F02")
    async with world(tmp_path, chance) as people:
        one = people.wire
        pressing = asyncio.create_task(people.press(), name="ann presses")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(people.write(MESSAGES), name="people")
            await one.kill()
            births = [await live_and_die(one, chance) for _ in range(DEATHS - 1)]
            began = time.monotonic()
            await one.start()
            births.append(time.monotonic() - began)
            await writing
            began = time.monotonic()
        await one.settled(times(60, 600))
        quiet_s = time.monotonic() - began
        pressing.cancel()
        assert await one.daemon.stop() == 0
        figure("F02", "median from a start to the first message taken", median(births), READY_S, "s")
        figure("F02", "from the last start and the last message until all was answered", quiet_s, ANSWERED_S, "s")
        await judge(people)


def median(births: list[float | None]) -> float:
    """Of the lives that lasted long enough."""
    return statistics.median([one for one in births if one is not None])


async def judge(people: People) -> None:
    """Compare what was said, shown and run with what is stored."""
    one = people.wire
    rows = await everything(one.daemon.state)
    ran = {command: len(lines_of(one.daemon.state, command.split()[-1])) for command in people.commands}
    counted(KILLS, len(one.deaths), "F02")
    tell_sessions("F02", rows, people.said, ran)
    surplus = judge_chats(one.telegram, slots_of(rows), one.deaths)
    marked = len(surplus) / len(one.deaths)
    figure("F02", "shown again and marked, of what was on its way, a death", marked, SESSIONS)
    judge_sessions(rows, people.said, ran, one)
