"""What stands around the Slack channel in its tests: a sink, a helm and notes that remember and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.account import Account, Pauses
from channels.slack.bans import Bans
from channels.slack.manifest import manifest
from channels.slack.settings import SlackSettings
from channels.slack.socket import Timing
from gateway.clock import SystemClock
from gateway.errors import StoreError
from gateway.model.ids import InboundId, SlotId, TurnId
from gateway.model.messages import Conversation, Inbound, Press, Refused
from gateway.model.routes import Accepted
from gateway.model.sessions import SessionKind
from gateway.model.slots import Showing, Slot, SlotKind, SlotState
from gateway.model.waits import Pressed, PressResult
from gateway.ports import ChannelContext, Clock, CommandInfo, Desk
from tests.support.slack import Call, FakeSlack, Fault


@dataclass(slots=True, kw_only=True)
class FakeSink:
    """`ports.Sink`: keeps what it is given, each event once. `fail` says what an event key raises, if anything."""

    events: list[Inbound | Press | Refused] = field(default_factory=list[Inbound | Press | Refused])
    fail: Callable[[str], Exception | None] = lambda _key: None
    result: PressResult = PressResult.APPROVED
    delay_s: float = 0.0
    tries: int = 0

    async def message(self, message: Inbound) -> Accepted | None:
        new = await self._take(message)
        if not message.addressed or message.text.startswith("/"):
            return None
        return Accepted(inbound=InboundId("i1"), turn=TurnId("t1"), duplicate=not new)

    async def press(self, press: Press) -> Pressed:
        await self._take(press)
        asks = press.can_ask_reason and self.result is PressResult.APPROVED
        return Pressed(result=PressResult.ASK_REASON if asks else self.result)

    async def refuse(self, refused: Refused) -> None:
        await self._take(refused)

    async def _take(self, event: Inbound | Press | Refused) -> bool:
        self.tries += 1
        await asyncio.sleep(self.delay_s)
        error = self.fail(event.event_key)
        if error is not None:
            raise error
        new = event.event_key not in {one.event_key for one in self.events}
        if new:
            self.events.append(event)
        return new

    @property
    def messages(self) -> list[Inbound]:
        return [event for event in self.events if isinstance(event, Inbound)]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    @property
    def refused(self) -> list[Refused]:
        return [event for event in self.events if isinstance(event, Refused)]

    @property
    def pressed(self) -> list[Press]:
        return [event for event in self.events if isinstance(event, Press)]


@dataclass(slots=True, kw_only=True)
class FakeHelm:
    """`ports.Helm`."""

    alerts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def hold(self, name: str, ttl: timedelta) -> bool:
        return True

    async def alert(self, key: str, text: str) -> None:
        self.alerts.append((key, text))

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        names = ["help", "stop", "status"] if kind is SessionKind.MAIN else ["help"]
        return [CommandInfo(name=name, usage=f"/{name}", about=f"About {name}.") for name in names]


@dataclass(slots=True, kw_only=True)
class FakeNotes:
    """`ports.ChannelNotes` in a dict."""

    kept: dict[str, str] = field(default_factory=dict[str, str])
    broken: bool = False

    async def read(self) -> Mapping[str, str]:
        return dict(self.kept)

    async def keep(self, key: str, value: str) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        self.kept[key] = value


def no_bans(clock: Clock | None = None) -> Bans:
    """No method is banned yet, and nothing of this outlives the test."""
    return Bans("main", FakeNotes(), clock or SystemClock())


@dataclass(slots=True, kw_only=True)
class Scene:
    """One channel's surroundings."""

    client: aiohttp.ClientSession
    workspaces: dict[str, FakeSlack]
    mode: str = "socket"
    limits: dict[str, float] = field(default_factory=dict[str, float])
    sink: FakeSink = field(default_factory=FakeSink)
    helm: FakeHelm = field(default_factory=FakeHelm)
    notes: FakeNotes = field(default_factory=FakeNotes)
    clock: Clock = field(default_factory=SystemClock)
    """The real one: the fake Slack has it too."""
    points: list[str] = field(default_factory=list[str])

    def settings(self) -> SlackSettings:
        return SlackSettings.model_validate(
            {"accounts": {name: self._account(slack) for name, slack in self.workspaces.items()}}
        )

    def _account(self, slack: FakeSlack) -> dict[str, Any]:
        common = {"bot_token": slack.bot_token, "api_root": slack.api_root, "mode": self.mode, "limits": self.limits}
        key = {"signing_secret": slack.signing_secret} if self.mode == "http" else {"app_token": slack.app_token}
        return common | key

    def context(self) -> ChannelContext:
        return ChannelContext(
            name="slack",
            settings=self.settings(),
            desk=cast("Desk", None),
            helm=self.helm,
            notes=self.notes,
            client=self.client,
            public_url="https://bot.example.org",
            clock=self.clock,
            fail_point=self._passed,
        )

    async def _passed(self, point: str) -> None:
        self.points.append(point)


async def until(true: Callable[[], object], within_s: float = 5.0) -> None:
    """Wait until something is so; fail the test when it does not become so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not true():
        assert loop.time() < end, "it did not become so"
        await asyncio.sleep(0.005)


def refusing(method: str, fault: Fault, times: int = 1_000_000) -> Callable[[Call], Fault | None]:
    """A script that gives this method a fault, so many times."""
    left = [times]

    def script(call: Call) -> Fault | None:
        if call.method != method or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return script


def showing(
    text: str, chat: str, *, thread: str = "", account: str = "main", partial: bool = False, **slot: Any
) -> Showing:
    """An answer to be shown, due for the first time unless `slot` says otherwise."""
    now = slot.get("created_at") or SystemClock().now()
    made = Slot(
        id=SlotId("o1.1"),
        conversation=Conversation(channel="slack", account=account, chat=chat, thread=thread),
        session=None,
        turn=None,
        n=None,
        kind=SlotKind.ANSWER,
        text=text,
        waits=(),
        file=None,
        version=1,
        sent_version=0,
        platform_id="",
        state=SlotState.SENDING,
        attempts=1,
        uncertain=False,
        due_at=now,
        created_at=now,
    )
    return Showing(slot=replace(made, **slot), text=text, partial=partial)


QUICK = Pauses(first=0.01, longest=0.05, token=0.03, broken=0.01, steady=0.05)
TIMING = Timing(connect=2.0, hello=0.5, ping=0.1, pings=2, told_after=0.05, one_told_after=0.5, close=0.2)


@asynccontextmanager
async def served(account: Account, slack: FakeSlack) -> AsyncGenerator[None]:
    """The account's endpoint, where it has one."""
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
    pauses: Pauses = QUICK,
    timing: Timing = TIMING,
) -> AsyncGenerator[Account]:
    """The account, served until the block ends."""
    scene.mode = mode
    slack = scene.workspaces[name]
    slack.install(manifest(scene.settings().accounts[name].mode, account=name))
    if mode == "socket":
        slack.use_sockets()
    account = Account(name, scene.settings().accounts[name], scene.context(), pauses, timing)
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
