"""Surroundings of the Slack channel under test: a running account and the slots to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.account import SlackConnection, SlackPauses
from channels.slack.bans import Bans
from channels.slack.manifest import manifest
from channels.slack.settings import SlackSettings
from channels.slack.socket import Timing
from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import RenderedSlot
from gateway.ports import ChannelContext, Clock
from gateway.system.clock import SystemClock
from tests.support.shown import slot as made_slot
from tests.support.slack import FakeSlack
from tests.support.surroundings import FakeHelm, FakeNotes, FakeSink, until


def no_bans(clock: Clock | None = None) -> Bans:
    """Return bans without any entry, on a store for this test only."""
    return Bans("main", FakeNotes(), clock or SystemClock())


@dataclass(slots=True, kw_only=True)
class Scene:
    """Surroundings of one channel."""

    client: aiohttp.ClientSession
    workspaces: dict[str, FakeSlack]
    mode: str = "socket"
    proxy: str = ""
    limits: dict[str, float] = field(default_factory=dict[str, float])
    sink: FakeSink = field(default_factory=lambda: FakeSink(asks_reasons=True))
    host: FakeHelm = field(default_factory=FakeHelm)
    notes: FakeNotes = field(default_factory=FakeNotes)
    clock: Clock = field(default_factory=SystemClock)
    """System clock, which the fake Slack uses too."""
    points: list[str] = field(default_factory=list[str])

    def settings(self) -> SlackSettings:
        return SlackSettings.model_validate(
            {"accounts": {name: self._account(slack) for name, slack in self.workspaces.items()}}
        )

    def _account(self, slack: FakeSlack) -> dict[str, Any]:
        common = {"bot_token": slack.bot_token, "api_root": slack.api_root, "mode": self.mode, "limits": self.limits}
        key = {"signing_secret": slack.signing_secret} if self.mode == "http" else {"app_token": slack.app_token}
        return common | key | ({"proxy": self.proxy} if self.proxy else {})

    def context(self) -> ChannelContext:
        return ChannelContext(
            name="slack",
            settings=self.settings(),
            host=self.host,
            key_value=self.notes,
            client=self.client,
            public_url="https://bot.example.org",
            clock=self.clock,
            fail_point=self._passed,
        )

    async def _passed(self, point: str) -> None:
        self.points.append(point)


def showing(
    text: str, chat: str, *, thread: str = "", account: str = "main", partial: bool = False, **slot: Any
) -> RenderedSlot:
    """Return a rendered answer, for its first attempt unless `slot` differs."""
    where = Conversation(channel="slack", account=account, chat=chat, thread=thread)
    now = slot.get("created_at") or SystemClock().now()
    made = made_slot(where, id=SlotId("o1.1"), text=text, due_at=now, created_at=now)
    return RenderedSlot(slot=replace(made, **slot), text=text, partial=partial)


QUICK = SlackPauses(first=0.01, longest=0.05, token=0.03, broken=0.01, steady=0.05, lease=0.02, unmark=0.01)
TIMING = Timing(connect=2.0, hello=0.5, ping=0.1, pings=2, told_after=0.05, one_told_after=0.5, close=0.2)


@asynccontextmanager
async def served(account: SlackConnection, slack: FakeSlack) -> AsyncGenerator[None]:
    """Return the account's endpoint, if it has one."""
    if account.web is None:
        yield
        return
    app = web.Application()
    app.router.add_post(account.path, account.web.handle)
    async with TestServer(app) as server:
        slack.use_http(str(server.make_url(account.path)))
        yield
        await slack.app.close()


@asynccontextmanager
async def running(
    scene: Scene,
    mode: str = "socket",
    *,
    ready: bool = True,
    name: str = "main",
    pauses: SlackPauses = QUICK,
    timing: Timing = TIMING,
) -> AsyncGenerator[SlackConnection]:
    """Serve the account until the block ends."""
    scene.mode = mode
    slack = scene.workspaces[name]
    slack.install(manifest(scene.settings().accounts[name].mode, account=name))
    if mode == "socket":
        slack.use_sockets()
    account = SlackConnection(name, scene.settings().accounts[name], scene.context(), pauses, timing)
    async with served(account, slack):
        task = asyncio.create_task(account.run(scene.sink), name="account")
        try:
            if ready:
                await until(lambda: account.trouble() == "")
            yield account
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
