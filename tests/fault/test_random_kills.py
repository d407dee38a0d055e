"""F02: kill -9 at random moments and random points, while many people write to many sessions as if nothing happened.

Owners on the web page and on Telegram, friends on Telegram and on Slack, all at once. Ann's commands are asked about;
she presses once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channels.slack.manifest import manifest
from gateway.system.failpoints import POINTS
from tests.fault.rig import Visitor, everything, lines_of, unended, until, visiting
from tests.fault.slack_rig import NO_LIMITS as SLACK_UNLIMITED
from tests.fault.slack_rig import as_stored, direct, judge_places
from tests.fault.telegram_rig import ANN, Wire, judge_chats, judge_sessions, slots_of, tell_sessions, wire
from tests.support.proof import KILLS, counted, dice, figure, times
from tests.support.slack import FakeSlack
from tests.support.slack.rig import ONE, SlackRig

DEATHS, MESSAGES, SESSIONS = times((6, 120, 12), (1_000, 10_000, 200))
FRIENDS = range(3001, 3001 + SESSIONS // 2 - 1)
COLLEAGUES = [f"U0F{number:03}" for number in range(SESSIONS // 2 - 1)]
"""On Slack. Besides them there are Ann, who is on Telegram here, and Joe, who is on the web page."""
COMMANDS = times(0.05, 0.01)
"""The share of messages that are commands of Ann's."""
LIFE_S = 1.5
"""No life is longer but those that are waited for, and most are shorter: a start takes half of that."""
WAITED_FOR = times(3, 5)
"""One life in so many lasts until all moves again."""
PAUSE_S = 2 * LIFE_S * DEATHS / MESSAGES
"""Longest pause between two messages."""
TAKES_S = times((10.0, 20.0), (2.0, 2.0))
"""From a start until messages are taken: in the middle, and at worst. Usually wide: other tests run beside this one."""
MOVES_S = times((10.0, 20.0), (5.0, 5.0))
"""From a start until every session that had a turn has ended it: in the middle, and at worst."""
ANSWERED_S = times(20.0, 120.0)
"""From the last start and the last message until all is answered."""
AGAIN_S = (0.0, 0.5, *[1.0] * 600)
"""Pauses between Slack's deliveries of one event: so many that no row of short lives outlasts them."""
NO_LIMITS = "per_chat_per_s = 0\noverall_per_s = 0"
ASK = 'approval = "ask"'


@dataclass(slots=True, kw_only=True)
class People:
    """Everybody who writes."""

    wire: Wire
    slack: FakeSlack
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
            elif draw < 0.5:
                self._on_slack(self.chance.choice(COLLEAGUES), f"message {self.number}")
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

    def _on_slack(self, who: str, text: str) -> None:
        self.said.setdefault(f"dm:slack/{ONE}/{direct(who)}", []).append(text)
        self.slack.say(who, text)

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


@dataclass(slots=True)
class Back:
    """Seconds from a start until each kind of work went on."""

    takes_s: list[float] = field(default_factory=list[float])
    """Until messages are taken."""
    moves_s: list[float] = field(default_factory=list[float])
    """Until the turns that were there, one of each session, have ended."""

    async def start(self, one: Wire) -> None:
        """Begin a life that nothing ends, and wait until all moves."""
        waiting, began = unended(one.daemon), time.monotonic()
        await one.start()
        self.takes_s.append(time.monotonic() - began)
        with suppress(TimeoutError):
            await until(lambda: not waiting.items() & unended(one.daemon).items(), MOVES_S[-1])
        self.moves_s.append(time.monotonic() - began)


async def live_and_die(one: Wire, chance: random.Random) -> None:
    """One life that ends by `kill -9`: at a random point if it comes there, else at a random moment."""
    point = f"{chance.choice([*POINTS])}:kill:{chance.randint(1, 6)}" if chance.random() < 0.5 else ""
    await one.start(point, ready=False)
    with suppress(TimeoutError):
        await one.daemon.died(chance.uniform(0.05, LIFE_S))
    await one.kill()


async def live_and_die_often(one: Wire, chance: random.Random) -> Back:
    """All lives but the last, which goes on."""
    back = Back()
    for life in range(DEATHS - 1):
        if life % WAITED_FOR:
            await live_and_die(one, chance)
        else:
            await back.start(one)
            await one.kill()
    await back.start(one)
    return back


@asynccontextmanager
async def world(folder: Path, chance: random.Random) -> AsyncGenerator[People]:
    """Everybody is there, and the daemon lives. In the end no secret stands in a log and nothing odd was asked."""
    friends = [*FRIENDS, *(f"slack:T0AA/{who}" for who in COLLEAGUES)]
    slack = FakeSlack("T0AA")
    async with slack.serve(), wire(folder, friends=friends, limits=NO_LIMITS) as one:
        rig = SlackRig(daemon=one.daemon, mode="socket", workspaces={ONE: slack}, limits=SLACK_UNLIMITED)
        one.channel, one.env, one.shell = one.channel + rig.tables(), {**one.env, **rig.secrets()}, ASK
        slack.install(manifest("socket", account=ONE))
        slack.app.pauses_s = AGAIN_S
        for who in COLLEAGUES:
            slack.person(who, who.lower())
        one.daemon.warm = False  # how long starts take is measured
        await one.start()
        async with visiting(one.daemon, "joe") as page:
            yield People(wire=one, slack=slack, page=page, chance=chance)
        await one.daemon.kill()
        assert slack.surprises == []
        assert [name for name, secret in rig.secrets().items() if secret in one.daemon.log] == []


@pytest.mark.whole("a kill at each journal point stays, in test_kills")
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
            back = await live_and_die_often(one, chance)
            await writing
            began = time.monotonic()
        await people.slack.heard(within_s=times(60, 600))
        await one.settled(times(60, 600))
        quiet_s = time.monotonic() - began
        pressing.cancel()
        assert await one.daemon.stop() == 0
        await judge(people)
        tell_back(back)
        figure("F02", "from the last start and the last message until all was answered", quiet_s, ANSWERED_S, "s")


def tell_back(back: Back) -> None:
    """State how soon it was back, in the middle and at worst."""
    for what, values, bar in (
        ("from a start to the first message taken", back.takes_s, TAKES_S),
        ("from a start until every session moves that had a turn", back.moves_s, MOVES_S),
    ):
        figure("F02", f"{what}, p50", percentile(values, 0.5), bar[0], "s")
        figure("F02", f"{what}, p99", percentile(values, 0.99), bar[1], "s")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that no more than this share of them is below."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


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
    on_slack = slots_of(rows, "slack")
    again = judge_places({ONE: people.slack}, on_slack)
    figure("F02", "shown twice where Slack says what stands there", len(again), 0, of=len(on_slack))
    judge_sessions(rows, as_stored(rows, people.said), ran, one)
