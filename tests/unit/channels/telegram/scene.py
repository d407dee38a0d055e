"""Surroundings of the Telegram channel under test, and updates as Telegram writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import aiohttp

from channels.telegram.settings import TelegramSettings
from gateway.ports import ChannelContext
from tests.support.clock import FakeClock
from tests.support.surroundings import FakeHelm, FakeNotes, FakeSink
from tests.support.telegram import TOKEN

SECRET = "a-webhook-secret"


@dataclass(slots=True, kw_only=True)
class Scene:
    """Surroundings of one channel."""

    client: aiohttp.ClientSession
    api_root: str = "http://127.0.0.1:9"
    mode: str = "polling"
    public_url: str = "https://bot.example.org"
    proxy: str = ""
    limits: dict[str, float] = field(default_factory=dict[str, float])
    accounts: tuple[tuple[str, str], ...] = (("main", TOKEN),)
    sink: FakeSink = field(default_factory=FakeSink)
    host: FakeHelm = field(default_factory=lambda: FakeHelm(of_owners=("stop", "no-such-name")))
    notes: FakeNotes = field(default_factory=FakeNotes)
    clock: FakeClock = field(default_factory=FakeClock)
    points: list[str] = field(default_factory=list[str])

    def settings(self) -> TelegramSettings:
        account: dict[str, Any] = {"api_root": self.api_root, "mode": self.mode, "limits": self.limits}
        if self.proxy:
            account["proxy"] = self.proxy
        if self.mode == "webhook":
            account["webhook_secret"] = SECRET
        return TelegramSettings.model_validate(
            {"accounts": {name: {**account, "token": token} for name, token in self.accounts}}
        )

    def context(self) -> ChannelContext:
        return ChannelContext(
            name="telegram",
            settings=self.settings(),
            host=self.host,
            key_value=self.notes,
            client=self.client,
            public_url=self.public_url,
            clock=self.clock,
            fail_point=self._passed,
        )

    async def _passed(self, point: str) -> None:
        self.points.append(point)


def person(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": f"User {user}"}


def message(update: int, text: str, *, user: int = 1001, chat: int | None = None, **more: Any) -> dict[str, Any]:
    """Return an update with a message, direct unless `chat` is a group."""
    place = chat or user
    where = {"id": place, "type": "private" if place > 0 else "supergroup"}
    said = {"message_id": update + 10, "date": 1_750_000_000, "chat": where, "from": person(user), "text": text}
    return {"update_id": update, "message": {**said, **more}}


def press(update: int, data: str = "a1:handle", *, user: int = 1001, query: str = "") -> dict[str, Any]:
    """Return an update with a press on a message of the bot."""
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
