"""Slots to be sent on the test engine, and channels that are slow, rate limited or send in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gateway.domain.ids import SessionId, SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, RateLimit, RenderedSlot, Slot, SlotKind
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Progress
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, in_background
from tests.support.makers import CHAT
from tests.support.stored import add_slot

ACCOUNT = "telegram/default"


async def slot(
    engine: Engine,
    text: str = "hello",
    *,
    where: Conversation = CHAT,
    kind: SlotKind = SlotKind.ANSWER,
    session: SessionId | None = None,
) -> SlotId:
    """Something to be shown."""
    return add_slot(engine.store, NewSlot(conversation=where, kind=kind, text=text), session, None)


async def asked(engine: Engine) -> SlotId:
    """A card in Ann's chat."""
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    assert await engine.store.park(lease)
    (card,) = [one for one in await engine.slots() if one.kind is SlotKind.CARD]
    return card.id


@dataclass(slots=True)
class PacedChannel(FakeChannel):
    """A channel with a rate limit for each chat."""

    every_s: float = 10
    burst: int = 1

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """The account's, as told, then the chat's."""
        scope = f"{ACCOUNT}/{conversation.chat}"
        return (*self.pace, RateLimit(scope=scope, every_s=self.every_s, burst=self.burst))


@dataclass(slots=True)
class PartsChannel(PacedChannel):
    """A channel that shows each line as a message of its own, behind those that are there."""

    parts: list[str] = field(default_factory=list[str])

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """The lines that are missing."""
        lines = showing.text.splitlines()
        there = list(showing.slot.message_ids)
        for line in lines[len(there) :]:
            self._fail()
            self.parts.append(line)
            there.append(f"m{len(self.parts)}")
            if len(there) < len(lines):
                await progress(tuple(there))
        return tuple(there)


def now(engine: Engine, id: SlotId) -> Slot:
    """The slot as it stands."""
    return engine.store.slots[id].slot


async def delivered(engine: Engine, channel: FakeChannel, *, rounds: int = 1) -> None:
    """Send what is due so often, two minutes apart."""
    for _ in range(rounds):
        delivery = engine.delivery(channel)
        async with in_background(delivery.run()) as running:
            await asyncio.sleep(0.03)
            delivery.drain()
            await running
        engine.clock.advance(120)


def told_to_wait(engine: Engine, seconds: float, scope: str = "") -> SendFailed:
    """A 429."""
    then = engine.clock.now() + timedelta(seconds=seconds)
    return SendFailed("429", outcome=SendOutcome.WAIT, until=then, scope=scope)


async def holds(found: bool) -> bool:
    """For `until`."""
    return found
