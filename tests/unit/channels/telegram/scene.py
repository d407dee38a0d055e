"""What stands around the Telegram channel in its tests: a sink, a helm and notes that remember and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import aiohttp

from channels.telegram.settings import TelegramSettings
from gateway.errors import StoreError
from gateway.model.messages import Inbound, Press, Refused
from gateway.model.routes import Accepted
from gateway.model.sessions import SessionKind
from gateway.model.waits import Pressed, PressResult
from gateway.ports import ChannelContext, CommandInfo, Desk
from tests.support.clock import FakeClock
from tests.support.telegram import TOKEN

SECRET = "a-webhook-secret"


@dataclass(slots=True, kw_only=True)
class FakeSink:
    """`ports.Sink`: keeps what it is given, each event once. `fail` says what an event key raises, if anything."""

    events: list[Inbound | Press | Refused] = field(default_factory=list[Inbound | Press | Refused])
    fail: Callable[[str], Exception | None] = lambda _key: None
    result: PressResult = PressResult.APPROVED
    delay_s: float = 0.0
    running: int = 0
    most: int = 0
    """How many were taken at the same time."""

    async def message(self, message: Inbound) -> Accepted | None:
        await self._take(message)
        return None

    async def press(self, press: Press) -> Pressed:
        await self._take(press)
        return Pressed(result=self.result)

    async def refuse(self, refused: Refused) -> None:
        await self._take(refused)

    async def _take(self, event: Inbound | Press | Refused) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        error = self.fail(event.event_key)
        if error is not None:
            raise error
        if event.event_key not in {one.event_key for one in self.events}:
            self.events.append(event)

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Inbound)]

    @property
    def refused(self) -> list[Refused]:
        return [event for event in self.events if isinstance(event, Refused)]

    @property
    def pressed(self) -> list[Press]:
        return [event for event in self.events if isinstance(event, Press)]


@dataclass(slots=True, kw_only=True)
class FakeHelm:
    """`ports.Helm`: the lease is ours while `ours`."""

    ours: bool = True
    broken: bool = False
    held: list[tuple[str, timedelta]] = field(default_factory=list[tuple[str, timedelta]])
    alerts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def hold(self, name: str, ttl: timedelta) -> bool:
        self.held.append((name, ttl))
        if self.broken:
            raise StoreError("the disk is full")
        return self.ours

    async def alert(self, key: str, text: str) -> None:
        self.alerts.append((key, text))

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        names = ["help", "stop", "no-such-name"] if kind is SessionKind.MAIN else ["help"]
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


@dataclass(slots=True, kw_only=True)
class Scene:
    """One channel's surroundings."""

    client: aiohttp.ClientSession
    api_root: str = "http://127.0.0.1:9"
    mode: str = "polling"
    public_url: str = "https://bot.example.org"
    limits: dict[str, float] = field(default_factory=dict[str, float])
    accounts: tuple[tuple[str, str], ...] = (("main", TOKEN),)
    sink: FakeSink = field(default_factory=FakeSink)
    helm: FakeHelm = field(default_factory=FakeHelm)
    notes: FakeNotes = field(default_factory=FakeNotes)
    clock: FakeClock = field(default_factory=FakeClock)
    points: list[str] = field(default_factory=list[str])

    def settings(self) -> TelegramSettings:
        account: dict[str, Any] = {"api_root": self.api_root, "mode": self.mode, "limits": self.limits}
        if self.mode == "webhook":
            account["webhook_secret"] = SECRET
        return TelegramSettings.model_validate(
            {"accounts": {name: {**account, "token": token} for name, token in self.accounts}}
        )

    def context(self) -> ChannelContext:
        return ChannelContext(
            name="telegram",
            settings=self.settings(),
            desk=cast("Desk", None),
            helm=self.helm,
            notes=self.notes,
            client=self.client,
            public_url=self.public_url,
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


def person(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": f"User {user}"}


def message(update: int, text: str, *, user: int = 1001, chat: int | None = None, **more: Any) -> dict[str, Any]:
    """An update with a message, directly from a person unless `chat` is a group."""
    place = chat or user
    where = {"id": place, "type": "private" if place > 0 else "supergroup"}
    said = {"message_id": update + 10, "date": 1_750_000_000, "chat": where, "from": person(user), "text": text}
    return {"update_id": update, "message": {**said, **more}}


def press(update: int, data: str = "a1:handle", *, user: int = 1001, query: str = "") -> dict[str, Any]:
    """An update with a press on a message of the bot."""
    shown = {"message_id": 7, "date": 1_750_000_000, "chat": {"id": user, "type": "private"}}
    return {
        "update_id": update,
        "callback_query": {
            "id": query or f"q{update}",
            "from": person(user),
            "message": shown,
            "chat_instance": "1",
            "data": data,
        },
    }
