"""Messages that people see in the chats of a bot, and requests of the bot: all that a test looks at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.patience import PATIENCE_S
from tests.support.telegram.checks import Json
from tests.support.telegram.faults import Call, Fault
from tests.support.telegram.world import Chats, Shown, Toast


@dataclass(frozen=True, slots=True)
class Fetched:
    """One request for a file's bytes."""

    path: str
    """Behind the token."""
    encoding: str
    """`Accept-Encoding`."""


@dataclass(slots=True)
class Hub:
    """Shared state of all bots of one server."""

    port: int = 0
    log: list[Call] = field(default_factory=list[Call])
    surprises: list[str] = field(default_factory=list[str])
    during_ban: list[Call] = field(default_factory=list[Call])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    before: Callable[[Call], Fault | None] = lambda call: None
    after: Callable[[Call], Fault | None] | None = None
    drops: Callable[[str], bool] = lambda method: False
    fetched: list[Fetched] = field(default_factory=list[Fetched])
    give: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None
    """Answers in place of the files, if there is one."""


class Watching:
    """The side of the tests; `FakeTelegram` has it."""

    chats: Chats
    hub: Hub

    def shown(self, chat: int, *, by_bot: bool = True, deleted: bool = False) -> list[Shown]:
        """The messages of a chat in order; of the bot alone, and without deleted ones, unless asked otherwise."""
        bot = self.chats.bot["id"]
        every = self.chats.all[chat].messages.values() if chat in self.chats.all else ()
        return [m for m in every if (m.by == bot or not by_bot) and (deleted or not m.deleted)]

    async def see(
        self,
        chat: int,
        contains: str = "",
        *,
        count: int = 1,
        button: str = "",
        topic: int | None = None,
        within_s: float = PATIENCE_S,
    ) -> Shown:
        """Wait for the `count`-th message of the bot with this text, and a button with that label; returns it."""

        def found() -> list[Shown]:
            every = [m for m in self.shown(chat) if contains in m.text and (topic is None or m.thread == topic)]
            return [m for m in every if any(button in label for label in m.labels)] if button else every

        try:
            await self.until(lambda: len(found()) >= count, within_s)
        except TimeoutError:
            wanted = f"{contains!r} with a button {button!r}" if button else repr(contains)
            raise AssertionError(f"no message {count} with {wanted} after {within_s} s; {self.picture(chat)}") from None
        return found()[count - 1]

    async def toast(self, query: str, *, within_s: float = PATIENCE_S) -> Toast:
        """Wait for what the person who pressed was told."""
        try:
            await self.until(lambda: query in self.chats.toasts, within_s)
        except TimeoutError:
            raise AssertionError(f"query {query} was not answered; {self.picture()}") from None
        return self.chats.toasts[query]

    def picture(self, chat: int | None = None) -> str:
        """A chat, or all of them, and the last calls, to be read by people."""
        lines: list[str] = []
        for one in self.chats.all.values() if chat is None else filter(None, [self.chats.all.get(chat)]):
            lines.append(f"{one.type} {one.id} {one.title} {one.refused}".rstrip() + ":")
            lines += [message.picture(self.chats.bot["id"]) for message in one.messages.values()]
        lines.append("the last calls:")
        lines += [f"  {c.method} {c.status or 'unanswered'} {short(c.parameters)}" for c in self.hub.log[-12:]]
        lines += [f"surprise: {surprise}" for surprise in self.surprises]
        return "\n".join([f"chat {chat}:" if chat is not None else "all chats:", *lines])

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait until a condition holds; it is looked at after each call. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s):
            while not condition():
                self.hub.changed.clear()
                await self.hub.changed.wait()

    @property
    def surprises(self) -> list[str]:
        """Return calls that no bot of ours should make and Telegram may let pass; a test asserts there are none."""
        return self.hub.surprises

    @property
    def log(self) -> list[Call]:
        """All calls of all bots, in the order in which they had been read."""
        return self.hub.log

    @property
    def during_ban(self) -> list[Call]:
        """The calls that came although a ban held there."""
        return self.hub.during_ban

    def calls(self, method: str = "", chat: int | None = None) -> list[Call]:
        """The calls of this bot."""
        mine = [call for call in self.log if call.bot == self.chats.bot["id"]]
        return [c for c in mine if method in ("", c.method) and chat in (None, c.chat)]


def short(parameters: Json) -> str:
    text = json.dumps(parameters, ensure_ascii=False, default=repr)
    return text if len(text) <= 160 else text[:157] + "…"
