"""Surroundings of a soak: one daemon with Telegram, Slack, the web page and a model, all on loopback."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fault.rig import Visitor, health, visiting
from tests.fault.slack_rig import AGAIN_S
from tests.fault.slack_rig import NO_LIMITS as SLACK_UNLIMITED
from tests.soak.samples import longest_callback
from tests.soak.script import Script
from tests.support.daemon import Daemon
from tests.support.model_server import ScriptedModel
from tests.support.platform import FakePlatform
from tests.support.slack import FakeSlack
from tests.support.slack.rig import SlackRig, slack_rig
from tests.support.telegram import TOKEN, FakeTelegram

ANN, JOE = 1001, 1002
FRIENDS = (2001, 2002, 2003, 2004, 2005, 2006)
STRANGERS = tuple(range(6001, 6013))
GROUP, BREAD, WINE = -1_003_000_000_001, 11, 12
ANN_ON_SLACK, BOB, CAT, EVE = "U0ANN", "U0BOB", "U0CAT", "U0EVE"
KITCHEN = "C0CC"
READY_WITHIN_S = 120.0
CONFIG = """
[owners]
ann = ["telegram:1001", "slack:T0AA/U0ANN"]
joe = ["telegram:1002"]
[limits]
messages_per_minute = 0
[people]
allow = [{friends}, "slack:T0AA/U0BOB", "slack:T0AA/U0CAT"]
[chats]
allow = ["telegram:{group}", "slack:T0AA/C0CC"]
[sessions]
approval_expiry_main = "{expiry_s}s"
approval_expiry_other = "{expiry_s}s"
[model]
name = "openai:first"
base_url = "{model}"
context_tokens = 6000
[[model.fallback]]
name = "openai:second"
base_url = "{model}"
[tools.shell]
permission = "always"
[tools.peek]
module = "tests.support.tools.peek"
[channels.test]
module = "tests.bench.channel"
port = {port}
longest = "{longest}"
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
[channels.telegram.limits]
{limits}
"""
NO_LIMITS = "per_chat_per_s = 0\nper_group_per_min = 0\noverall_per_s = 0"


@dataclass(slots=True, kw_only=True)
class World:
    """Everything but the people. `telegram`, `slack`, `page` and `model` outlive every life of the daemon."""

    rig: SlackRig
    telegram: FakeTelegram
    model: ScriptedModel
    script: Script
    longest: Path
    """File for the longest callback of a life."""
    deaths: list[float] = field(default_factory=list[float])
    """When it was killed, in seconds of `time.monotonic()`."""
    births_s: list[float] = field(default_factory=list[float])
    """Time that each life took to become ready, in a world with many faults."""
    callbacks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """The longest callback of each life, in milliseconds of CPU, and what it was."""
    _page: Visitor | None = None

    @property
    def daemon(self) -> Daemon:
        """The daemon."""
        return self.rig.daemon

    @property
    def slack(self) -> FakeSlack:
        """The workspace."""
        return self.rig.slack

    @property
    def page(self) -> Visitor:
        """Joe's page, which stays open."""
        assert self._page is not None
        return self._page

    @property
    def pid(self) -> int:
        """The process of the present life."""
        assert self.daemon.process is not None
        return self.daemon.process.pid

    @asynccontextmanager
    async def visited(self) -> AsyncGenerator[None]:
        """Joe has the page open. The daemon must live."""
        async with visiting(self.daemon, "joe") as self._page:
            yield

    async def live(self) -> None:
        """Begin a life. Raises `AssertionError` with the reason when it does not become ready."""
        self.longest.unlink(missing_ok=True)
        began = time.monotonic()
        await self.rig.start(ready=False)
        try:
            await self.daemon.until_ready(READY_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{await health(self.daemon)} {error}") from None
        self.births_s.append(time.monotonic() - began)

    async def kill(self) -> None:
        """End it as by `kill -9`."""
        self.callbacks.append(longest_callback(self.longest))
        await self.daemon.kill()
        self.deaths.append(time.monotonic())

    async def stop(self) -> int:
        """End it in peace; returns its exit code."""
        self.callbacks.append(longest_callback(self.longest))
        return await self.daemon.stop()


@asynccontextmanager
async def soaking(folder: Path, script: Script, expiry_s: int, *, limited: bool) -> AsyncGenerator[World]:
    """Everything is there but the daemon's first life. `expiry_s`: so long a button can be pressed; `limited`: see
    `Plan`."""
    longest = folder / "longest.json"
    async with (
        ScriptedModel(answering=script) as model,
        FakeTelegram().serve() as telegram,
        FakePlatform().serve() as platform,
    ):
        config = CONFIG.format(
            friends=", ".join(f'"telegram:{friend}"' for friend in FRIENDS),
            group=GROUP,
            expiry_s=expiry_s,
            model=model.base_url,
            port=platform.port,
            longest=longest,
            api_root=telegram.api_root,
            limits="" if limited else NO_LIMITS,
        )
        telegram.supergroup("Kitchen", chat=GROUP, topics={BREAD: "Bread", WINE: "Wine"})
        async with slack_rig(folder, config=config, limits="" if limited else SLACK_UNLIMITED) as rig:
            rig.env = {"TELEGRAM_BOT_TOKEN": TOKEN, "DRAGOMAN_LOG__LEVEL": "info"}
            rig.slack.app.pauses_s = AGAIN_S
            for who, name in ((ANN_ON_SLACK, "ann"), (BOB, "bob"), (CAT, "cat"), (EVE, "eve")):
                rig.slack.person(who, name)
            rig.slack.channel(KITCHEN, "kitchen", members=[ANN_ON_SLACK, BOB, CAT])
            yield World(rig=rig, telegram=telegram, model=model, script=script, longest=longest)
