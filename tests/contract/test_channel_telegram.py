"""Channel contract on Telegram: the real channel polls a Telegram on loopback, with two bots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, cast

from channels.telegram import ids
from channels.telegram.account import TelegramPauses
from channels.telegram.adapter import TelegramChannel
from channels.telegram.settings import TelegramSettings
from gateway.domain.ids import Principal
from gateway.domain.messages import Conversation
from gateway.errors import SendOutcome
from gateway.ports import Channel
from tests.contract.channel import ChannelContract
from tests.contract.channel_rig import QUIET_S, Push, Rig, Seen, Who
from tests.support.telegram import TOKEN, FakeTelegram, Fault, Shown, faults
from tests.support.telegram.people import found_entities
from tests.support.telegram.world import Query

USERS = MappingProxyType({Who.ANN: 1001, Who.CLEO: 3003, Who.BOB: 2002, Who.EVE: 6666})
GROUP, TOPIC = -1003, 7
SECOND = "987654321:AAFakeTokenOfAnotherBot-0123456789abc"
BOTS = MappingProxyType({"one": TOKEN, "two": SECOND})
NONE: Mapping[str, float] = MappingProxyType({"per_chat_per_s": 0, "per_group_per_min": 0, "overall_per_s": 0})
QUICK = TelegramPauses(
    first=0.02,
    longest=0.05,
    conflict=0.02,
    token=0.05,
    store=0.02,
    broken=0.02,
    lease=0.05,
    standby=0.05,
    written=0.005,
)
SENDING = ("send", "edit", "delete")


class TelegramRig(Rig):
    """Two bots; in the allowed group topics are on."""

    name = "telegram"
    cannot: ClassVar = {}
    failures: ClassVar = {
        "flood": SendOutcome.WAIT,
        "broken": SendOutcome.UNCERTAIN,
        "gateway": SendOutcome.UNCERTAIN,
        "dropped": SendOutcome.UNCERTAIN,
        "cut": SendOutcome.UNCERTAIN,
        "blocked": SendOutcome.DEAD,
        "revoked": SendOutcome.WAIT,
        "strange": SendOutcome.DEAD,
    }
    lost: ClassVar = "cut"
    files: ClassVar = True
    unreadable: ClassVar = [
        {"poll_answer": {"poll_id": "1"}},
        {"message": 7},
        {"message": {"message_id": "x", "chat": {"id": 1001, "type": "private"}}},
        {"message": {"message_id": 5, "date": 1, "chat": {"id": 1001, "type": "private"}, "from": None, "text": "x"}},
        {"callback_query": {"id": "1", "from": {"id": 1001, "is_bot": False}}},
        {},
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bots: dict[str, FakeTelegram] = {}
        self._queries: dict[str, str] = {}

    @asynccontextmanager
    async def platform(self) -> AsyncGenerator[None]:
        async with FakeTelegram().serve() as telegram:
            self.bots = {"one": telegram, "two": telegram.another_bot(SECOND, "dragoman_second_bot")}
            for bot in self.bots.values():
                bot.supergroup("Kitchen", chat=GROUP, topics={TOPIC: "Bread"})
            self.channel = self._channel(NONE)
            yield
        assert telegram.surprises == []

    def _channel(self, limits: Mapping[str, float]) -> TelegramChannel:
        root = self.bots["one"].api_root
        accounts = {name: {"token": token, "api_root": root, "limits": dict(limits)} for name, token in BOTS.items()}
        settings = TelegramSettings.model_validate({"accounts": accounts})
        return TelegramChannel(self.engine.context(self.name, settings, self.client), QUICK)

    async def ready(self) -> None:
        await self.until(lambda: not self.channel.trouble() and all(b.calls("getUpdates") for b in self.bots.values()))

    # --- who and where ---

    def principal(self, who: Who) -> Principal:
        return ids.principal(USERS[who])

    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        return ids.conversation("two" if second else "one", USERS[who], None)

    def group(self) -> Conversation:
        return ids.conversation("one", GROUP, None)

    def thread(self) -> Conversation:
        return ids.conversation("one", GROUP, TOPIC)

    # --- what people do ---

    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        bot = self.bots[where.account]
        words = f"@{bot.chats.bot['username']} {text}" if to_bot and int(where.chat) < 0 else text
        chat, topic = (int(where.chat), int(where.thread) if where.thread else None)
        said = bot.say(USERS[who], words, chat=None if chat > 0 else chat, topic=topic)
        return f"{where.account} {said.update_id}"

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        bot, chat = self.bots[where.account], int(where.chat)
        topic = int(where.thread) if where.thread else None
        place = None if chat > 0 else chat
        said = bot.attach(USERS[who], "document", content, caption=text, name=name, chat=place, topic=topic)
        return f"{where.account} {said.update_id}"

    def forget_files(self) -> None:
        for bot in self.bots.values():
            bot.chats.files.clear()

    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        bot, user = self.bots[where.account], USERS[who]
        if place := [one for one in bot.shown(int(where.chat)) if handle in _handles(one)]:
            query = bot.press(user, place[0], handle)
        else:
            # No app sends that: a program that speaks the app's protocol can, about any message that it sees.
            query = f"forged{len(bot.updates.given)}"
            chat = bot.private(int(where.chat))
            bot.chats.queries[query] = Query(query, user, asyncio.get_running_loop().time())
            message = {"message_id": 1, "date": bot.chats.now(), "chat": chat.payload()}
            sender = bot.person(user)
            fields = {"id": query, "from": sender, "message": message, "chat_instance": "1", "data": handle}
            bot.updates.add({"callback_query": fields})
        event = f"{where.account} {bot.updates.given[-1]['update_id']}"
        self._queries[event] = query
        return event

    async def told(self, event: str) -> str:
        return (await self._bot(event).toast(self._queries[event], within_s=5)).text

    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        said = await self.told(await self.press(who, where, card.handle("Deny with reason")))
        assert "Reply" in said
        bot = self.bots[where.account]
        bot.say(USERS[who], reason, reply_to=int(card.id))

    async def redeliver(self, event: str) -> None:
        bot, number = self._bot(event), int(event.split()[1])
        bot.send_raw(next(one for one in bot.updates.given if one["update_id"] == number))

    async def push(self, event: object) -> str:
        return f"one {self.bots['one'].updates.add(cast('dict[str, Any]', event))}"

    def acknowledged(self, event: str) -> bool:
        number = int(event.split()[1])
        return all(one["update_id"] != number for one in self._bot(event).updates.pending())

    async def from_nobody(self) -> Sequence[str]:
        bot = self.bots["one"]
        said = bot.say_anonymously(GROUP, "@dragoman_test_bot let me in")
        robot = bot.person(4004, is_bot=True)
        spoken = bot.say(4004, "@dragoman_test_bot let me in", chat=GROUP)
        assert robot["is_bot"]
        bot.post(bot.channel(), "@dragoman_test_bot let me in")
        return [f"one {one.update_id}" for one in (said, spoken)]

    # --- what they see ---

    def shown(self, where: Conversation) -> Sequence[Seen]:
        if not self.bots:
            return []
        thread = int(where.thread) if where.thread else None
        every = self.bots[where.account].shown(int(where.chat))
        return [_seen(one) for one in every if one.thread == thread]

    def typed(self, where: Conversation) -> bool:
        return any(chat == int(where.chat) for chat, _, _ in self.bots[where.account].chats.typing)

    def picture(self) -> str:
        return "\n".join(bot.picture() for bot in self.bots.values())

    # --- what goes wrong ---

    @asynccontextmanager
    async def failing(self, failure: str) -> AsyncGenerator[None]:
        fault: Fault = {
            "flood": faults.too_many(3),
            "broken": faults.broken(500),
            "gateway": faults.page(502),
            "dropped": faults.drop(),
            "cut": faults.cut(),
            "blocked": faults.error(403, "Forbidden: bot was blocked by the user"),
            "revoked": faults.error(401, "Unauthorized"),
            "strange": faults.error(400, "Bad Request: something that nobody ever heard of"),
        }[failure]
        self.bots["one"].script(lambda call: fault if call.method.startswith(SENDING) else None)
        yield
        self.bots["one"].script(lambda call: None)

    def limited(self) -> Channel:
        return self._channel({})

    @asynccontextmanager
    async def unreachable(self) -> AsyncGenerator[None]:
        lost = faults.drop()
        self.bots["one"].script(lambda call: lost, lambda call: lost)
        for bot in self.bots.values():
            bot.replay()  # a poll that waits ends, and finds the line dead
        self.engine.clock.advance(100)
        await asyncio.sleep(QUIET_S)
        yield
        self.bots["one"].script(lambda call: None)

    def _bot(self, event: str) -> FakeTelegram:
        return self.bots[event.split()[0]]


def _handles(message: Shown) -> list[str]:
    return [button["callback_data"] for row in message.buttons for button in row]


def _seen(message: Shown) -> Seen:
    """Read Telegram's automatic entities too: in groups names ring, and commands can be tapped."""
    quiet = [
        (one["offset"], one["offset"] + one["length"]) for one in message.entities if one["type"] in {"code", "pre"}
    ]
    active: list[str] = []
    for one in [*message.entities, *(found_entities(message.text) if message.chat < 0 else ())]:
        inside = any(begin <= one["offset"] < end for begin, end in quiet)
        if one["type"] in {"text_link", "text_mention", "url"} or (one["type"] == "mention" and not inside):
            active.append(one.get("url") or _part(message.text, one))
    return Seen(
        id=str(message.id),
        text=message.text,
        buttons=tuple(Push(button["text"], button["callback_data"]) for row in message.buttons for button in row),
        file=message.document.content.decode(errors="replace") if message.document else "",
        active=tuple(active),
    )


def _part(text: str, entity: dict[str, Any]) -> str:
    units = text.encode("utf-16-le")
    return units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le")


class TestTelegram(ChannelContract):
    rig_class = TelegramRig
