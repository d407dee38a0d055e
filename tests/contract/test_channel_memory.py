"""Channel contract on the memory channel: the reference for rigs."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from gateway.domain.ids import Principal, principal
from gateway.domain.messages import Conversation
from gateway.errors import SendOutcome
from gateway.ports import Channel
from tests.contract.channel import ChannelContract
from tests.contract.channel_rig import Push, Rig, Seen, Who
from tests.support.memory_channel import (
    NAME,
    MemoryChannel,
    MemoryPlatform,
    Message,
    PlatformError,
    PlatformGone,
    conversation,
)


class MemoryRig(Rig):
    """A platform and a channel in this process."""

    name = NAME
    cannot: ClassVar = {}
    failures: ClassVar = {
        "wait": SendOutcome.WAIT,
        "broken": SendOutcome.RETRY,
        "gone": SendOutcome.UNCERTAIN,
        "blocked": SendOutcome.DEAD,
    }
    lost: ClassVar = "gone"
    files: ClassVar = True
    unreadable: ClassVar = [None, 7, [], {}, {"kind": "sticker"}, {"kind": "message", "bot": False, "user": 7}]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.other_side = MemoryPlatform()
        self._events: dict[str, object] = {}
        self._keys = (f"e{n}" for n in itertools.count())

    @asynccontextmanager
    async def platform(self) -> AsyncGenerator[None]:
        self.channel = MemoryChannel(self.engine.context(NAME, {}, self.client), self.other_side)
        yield

    async def ready(self) -> None:
        """It is at once."""

    # --- who and where ---

    def principal(self, who: Who) -> Principal:
        return principal(NAME, who)

    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        return conversation(f"{'two' if second else 'one'}/{who}")

    def group(self) -> Conversation:
        return conversation("one/kitchen")

    def thread(self) -> Conversation:
        return conversation("one/kitchen/bread")

    # --- what people do ---

    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        return await self._act(who, where, {"kind": "message", "text": text, "names_bot": to_bot})

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        id = f"file {name}"
        self.other_side.files[id] = content
        files = [{"id": id, "name": name}]
        return await self._act(who, where, {"kind": "message", "text": text, "names_bot": True, "files": files})

    def forget_files(self) -> None:
        self.other_side.files.clear()

    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        return await self._act(who, where, {"kind": "press", "data": handle, "reason": ""})

    async def _act(self, who: str, where: Conversation, event: dict[str, Any], *, bot: bool = False) -> str:
        return await self.push({"user": str(who), "bot": bot, "place": _place(where), **event})

    async def push(self, event: object) -> str:
        key = next(self._keys)
        self._events[key] = event
        self.other_side.push(key, event)
        return key

    async def told(self, event: str) -> str:
        await self.until(lambda: event in self.other_side.said)
        return self.other_side.said[event]

    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        press = {"kind": "press", "data": card.handle("Deny with reason"), "reason": reason}
        await self.told(await self._act(who, where, press))

    async def redeliver(self, event: str) -> None:
        self.other_side.said.pop(event, None)
        self.other_side.push(event, self._events[event])

    def acknowledged(self, event: str) -> bool:
        return event not in self.other_side.events

    async def from_nobody(self) -> Sequence[str]:
        message = {"kind": "message", "text": "let me in", "names_bot": True}
        return [await self._act("robot", place, message, bot=True) for place in (self.direct(Who.ANN), self.group())]

    # --- what they see ---

    def shown(self, where: Conversation) -> Sequence[Seen]:
        return [_seen(one) for one in self.other_side.messages.values() if one.place == _place(where)]

    def typed(self, where: Conversation) -> bool:
        return _place(where) in self.other_side.typing

    # --- what goes wrong ---

    @asynccontextmanager
    async def failing(self, failure: str) -> AsyncGenerator[None]:
        self.other_side.fail = lambda: PlatformGone() if failure == "gone" else PlatformError(failure)
        yield
        self.other_side.fail = lambda: None

    def limited(self) -> Channel:
        return MemoryChannel(self.engine.context(NAME, {}, self.client), self.other_side, every_s=1)

    @asynccontextmanager
    async def unreachable(self) -> AsyncGenerator[None]:
        self.other_side.connect(False)
        yield
        self.other_side.connect(True)


def _place(where: Conversation) -> str:
    return where.key.removeprefix(f"{NAME}/")


def _seen(one: Message) -> Seen:
    """Read markup as the platform does: names ring, addresses are links, tags are obeyed."""
    active = () if one.plain else tuple(word for word in one.text.split() if word[0] in "@<" or "://" in word)
    buttons = tuple(Push(*button) for button in one.buttons)
    return Seen(id=one.id, text=one.text, buttons=buttons, file=one.file, active=active)


class TestMemory(ChannelContract):
    rig_class = MemoryRig
