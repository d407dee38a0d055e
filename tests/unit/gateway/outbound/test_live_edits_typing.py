"""Typing: shown while a turn is active and no message shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from gateway.domain.ids import TurnId
from gateway.domain.messages import Conversation
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.live_edits import TYPING_AT_ONCE
from gateway.outbound.rate_limit import BANS, SendPath
from tests.support.fakes import ANN_PAGE, FakeChannel
from tests.support.makers import CHAT, chat
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.outbound.test_live_edits import World, running, shown

WAY = SendPath.to(CHAT, ())


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with running(World(FakeChannel())) as found:
        yield found


async def test_typing_is_shown_every_four_seconds_of_work(world: World) -> None:
    await world.working()
    await world.passes(0.19)
    assert world.channel.typed == []
    await world.passes(0.02)
    assert world.channel.typed == [CHAT]
    await world.passes(3.9)
    assert world.channel.typed == [CHAT]
    await world.passes(0.2)
    assert world.channel.typed == [CHAT, CHAT]
    await world.working()
    await world.passes(4.1)
    assert world.channel.typed == [CHAT, CHAT, CHAT]


async def test_a_turn_of_which_nothing_is_heard_is_forgotten(world: World) -> None:
    await world.working()
    for _ in range(5):
        await world.passes(4)

    assert world.channel.typed == [CHAT, CHAT]  # of which the second still belonged to it


async def test_an_answer_within_a_moment_shows_no_typing(world: World) -> None:
    await world.working()
    world.shows(shown("Done.", n=None), ("m1",))
    await world.passes(0.3)

    assert world.channel.typed == []


@pytest.mark.parametrize("where", [ANN_PAGE, Conversation(channel="slack", account="default", chat="D1")])
async def test_no_typing_where_there_is_nothing_to_type_into(world: World, where: Conversation) -> None:
    await world.working(where)
    await world.passes(1)

    assert world.channel.typed == []


async def test_turn_that_continues_after_a_text_shows_typing_again(world: World) -> None:
    await world.working()
    await world.writes("Let me look. ")
    world.shows(shown("Let me look."), ("m1",))
    await world.passes(3)
    assert world.channel.typed == []
    await world.working()
    await world.passes(0.3)
    assert world.channel.typed == [CHAT]


async def test_no_typing_while_the_answer_grows(world: World) -> None:
    await world.begins()
    for _ in range(3):
        await world.writes("a time ")
        await world.working()
        await world.passes(1.5)

    assert (world.channel.typed, len(world.edits)) == ([], 3)


@pytest.mark.parametrize("broken", [RuntimeError("no"), SendFailed("no", outcome=SendOutcome.DEAD)])
async def test_a_channel_that_cannot_type_harms_nobody(broken: Exception) -> None:
    @dataclass(slots=True)
    class Broken(FakeChannel):
        async def typing(self, conversation: Conversation) -> None:
            await FakeChannel.typing(self, conversation)
            raise broken

    async with running(World(Broken())) as world:
        await world.working()
        await world.passes(0.3)
        await world.passes(4)
        assert world.channel.typed == [CHAT, CHAT]


async def test_refused_typing_shows_nothing_until_the_ban_ends() -> None:
    @dataclass(slots=True)
    class Refused(FakeChannel):
        until: datetime | None = None

        async def typing(self, conversation: Conversation) -> None:
            await FakeChannel.typing(self, conversation)
            raise SendFailed("429", outcome=SendOutcome.WAIT, until=self.until)

    channel = Refused()
    async with running(World(channel)) as world:
        channel.until = world.clock.now() + timedelta(seconds=9)
        await world.working()
        await world.passes(0.3)
        for _ in range(2):
            await world.working()
            await world.passes(4)
        assert channel.typed == [CHAT]
        assert not world.limiter.try_acquire(WAY)
        assert await world.store.items(BANS) == {WAY.chat: f"{channel.until.isoformat()} 8.7"}
        await world.working()
        await world.passes(4)
        assert channel.typed == [CHAT, CHAT]


async def test_typing_in_a_crowd_is_sent_in_groups() -> None:
    @dataclass(slots=True)
    class Slow(FakeChannel):
        go: asyncio.Event = field(default_factory=asyncio.Event)

        async def typing(self, conversation: Conversation) -> None:
            await FakeChannel.typing(self, conversation)
            await self.go.wait()

    channel, crowd = Slow(), [chat(number) for number in range(3 * TYPING_AT_ONCE)]
    async with running(World(channel)) as world:
        for number, where in enumerate(crowd):
            await world.working(where, TurnId(f"t{number}"))
        await world.passes(0.3)
        assert channel.typed == crowd[:TYPING_AT_ONCE]
        channel.go.set()
        async with asyncio.timeout(PATIENCE_S):
            while len(channel.typed) < len(crowd):  # a look for each further group
                await world.passes(0.1)
        assert channel.typed == crowd
