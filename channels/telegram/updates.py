"""Delivery of Telegram's updates to the gateway's sink: in order per chat, chats in parallel, presses first.

Called by `account`. A batch is confirmed to Telegram only when all of it is stored. A redelivered update is recognised
by its event key, so redelivery is harmless.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

from channels._shared.poison import POISON_KEPT, Poison
from channels.telegram import ids, inbound
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.inbound import BotIdentity, ChatMigration, Meaning, TelegramPress
from gateway.domain.messages import Inbound, Refused
from gateway.domain.waits import PressResult
from gateway.errors import StoreError
from gateway.ports import Clock, Sink

SIDE_BY_SIDE = 16
"""Chats processed in parallel: enough for the store to commit them together."""


class AnswerPress(Protocol):
    """Callback that answers a press; returns at once."""

    def __call__(self, query: str, result: PressResult) -> None:
        """Send the result of the press `query`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """Update with its meaning."""

    raw: object
    meaning: Meaning

    @property
    def rank(self) -> int:
        """Return the priority: migrations first, so that messages under the new id join the old chat; then presses."""
        match self.meaning:
            case ChatMigration():
                return 0
            case TelegramPress():
                return 1
            case _:
                return 2

    @property
    def key(self) -> str:
        """Return the key for deduplication."""
        match self.meaning:
            case Inbound(event_key=key) | Refused(event_key=key):
                return key
            case TelegramPress(press=press):
                return press.event_key
            case ChatMigration(old=old, new=new):
                return f"moved{old}.{new}"

    @property
    def queue(self) -> str:
        """Return the queue; events of one queue are processed in order."""
        match self.meaning:
            case Inbound() as message:
                return message.conversation.chat
            case TelegramPress() as pressing:
                return pressing.press.conversation.chat
            case Refused() as refused:
                return refused.event_key
            case ChatMigration() as migration:
                return migration.old


class TelegramUpdates:
    """Processor of one account's updates."""

    def __init__(
        self,
        *,
        bot: BotIdentity,
        sink: Sink,
        migrations: ChatMigrations,
        clock: Clock,
        answer: AnswerPress,
        broken: Callable[[], None],
    ) -> None:
        """Take the bot's identity and the destinations; `broken` is called for an event that was put aside."""
        self._bot = bot
        self._sink = sink
        self._migrations = migrations
        self._clock = clock
        self._answer = answer
        self._poison = Poison(channel=ids.CHANNEL, account=bot.account, sink=sink, broken=broken)

    async def take(self, updates: Sequence[object]) -> bool:
        """Store a batch; return after the commits, False if any update is not stored. Never raises `StoreError`."""
        now = self._clock.now()
        # `read` accepts any JSON value.
        in_order = sorted(updates, key=number_of)  # a self-hosted server may mix them
        events = [_Event(raw=raw, meaning=inbound.read(cast("Any", raw), self._bot, now)) for raw in in_order]
        stored = True
        for rank in range(3):
            if of_rank := [event for event in events if event.rank == rank]:
                stored &= await self._side_by_side(of_rank)
        return stored

    async def _side_by_side(self, events: Sequence[_Event]) -> bool:
        queues: dict[str, list[_Event]] = {}
        for event in events:
            queues.setdefault(event.queue, []).append(event)
        limiter = asyncio.Semaphore(SIDE_BY_SIDE)
        async with asyncio.TaskGroup() as group:
            works = [
                group.create_task(self._in_order(queue, limiter), name=f"telegram {self._bot.account} {name}")
                for name, queue in queues.items()
            ]
        return all(work.result() for work in works)

    async def _in_order(self, queue: Sequence[_Event], limiter: asyncio.Semaphore) -> bool:
        """Process a queue up to its first event that is not stored: later ones must not overtake it."""
        async with limiter:
            for event in queue:
                if not await self._stored(event):
                    return False
        return True

    async def _stored(self, event: _Event) -> bool:
        log = logging.getLogger(__name__)
        try:
            await self._hand_over(event)
        except StoreError as error:
            log.warning("an update of %s is not stored yet: %s", self._bot.account, error)
            return False
        except Exception as error:  # the failure becomes a row, so that it blocks nobody (house rule 9)
            log.exception("an update of %s could not be taken", self._bot.account)
            return await self._poison.put_aside(event.key, inbound.written(event.raw), error)
        return True

    async def _hand_over(self, event: _Event) -> None:
        match event.meaning:
            case Inbound() as message:
                conversation = await self._migrations.first(message.conversation)
                later = await self._migrations.later(conversation.chat)
                await self._sink.message(replace(message, conversation=conversation, also_called=later))
            case TelegramPress(query=query, press=press):
                conversation = await self._migrations.first(press.conversation)
                pressed = await self._sink.press(replace(press, conversation=conversation))
                self._answer(query, pressed.result)
            case Refused() as refused:
                await self._sink.refuse(replace(refused, raw=refused.raw[:POISON_KEPT]))
                if query := _query(event.raw):
                    self._answer(query, PressResult.NOT_VALID)
            case ChatMigration(old=old, new=new):
                await self._migrations.learn(old, new)


_Object: TypeAlias = Mapping[str, Any]


def number_of(raw: object) -> int:
    """Return an update's number; -1 without one, so that it goes first, since nothing waits for it."""
    number = cast("_Object", raw).get("update_id") if isinstance(raw, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else -1


def _query(raw: object) -> str:
    """Return the press id of an unusable update: the button spins until the press is answered."""
    query = cast("_Object", raw).get("callback_query") if isinstance(raw, dict) else None
    number = cast("_Object", query).get("id") if isinstance(query, dict) else None
    return number if isinstance(number, str) and len(number) <= 128 else ""
