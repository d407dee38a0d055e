"""End of a streamed answer: final text and edits under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from gateway.domain.events import ANSWERS, TurnReleased
from gateway.domain.ids import SlotId
from gateway.domain.slots import RateLimit
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.message_actor import RETRY_S, SETTLED_AFTER_S
from tests.support.fakes import FakeChannel
from tests.support.makers import CHAT
from tests.unit.gateway.outbound.test_live_edits import TURN, SlowChannel, World, running


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with running(World(FakeChannel())) as found:
        yield found


async def test_finish_waits_for_the_edit_under_way() -> None:
    channel = SlowChannel()
    async with running(World(channel)) as world:
        slot = await world.begins()
        await world.writes("a time there ")
        await world.passes(1.1)
        assert channel.begun == 1
        await world.writes("was ")
        await world.passes(1.1)
        assert channel.begun == 1  # one at a time
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(world.messages.of(slot.id).finish())
            await asyncio.sleep(0.05)
            assert not finishing.done()
            channel.go.set()
            assert await finishing == 0
        await world.passes(1.1)
        assert world.edits == ["Once upon a time there"]


async def test_finish_of_an_unknown_slot_does_nothing(world: World) -> None:
    assert await world.messages.of(SlotId("unknown")).finish() == 0
    assert world.edits == []


async def test_an_edit_that_hangs_is_given_up_and_may_still_come() -> None:
    channel = SlowChannel()
    async with running(World(channel, edit_within_s=0.1)) as world:
        slot = await world.begins()
        await world.writes("a time ")
        await world.passes(1.1)
        async with asyncio.timeout(2):
            assert await world.messages.of(slot.id).finish() == SETTLED_AFTER_S
        assert (channel.begun, world.edits) == (1, [])


async def test_finish_has_a_limit_and_does_not_cancel_an_edit() -> None:
    channel = SlowChannel()
    async with running(World(channel, patience_s=0.05)) as world:
        slot = await world.begins()
        await world.writes("a time ")
        await world.passes(1.1)
        for _ in range(2):
            assert await world.messages.of(slot.id).finish() == RETRY_S
        channel.go.set()
        assert await world.messages.of(slot.id).finish() == 0
    assert (channel.begun, world.edits) == (1, ["Once upon a time"])


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (None, 0),
        (SendFailed("gone", outcome=SendOutcome.DEAD), 0),
        (SendFailed("429", outcome=SendOutcome.WAIT), 0),
        (SendFailed("no", outcome=SendOutcome.WAIT, unsettled=True), SETTLED_AFTER_S),
        (SendFailed("no", outcome=SendOutcome.RETRY), SETTLED_AFTER_S),
        (SendFailed("no", outcome=SendOutcome.UNCERTAIN), SETTLED_AFTER_S),
        (RuntimeError("the channel broke"), SETTLED_AFTER_S),
    ],
)
async def test_the_last_words_wait_while_an_edit_may_still_come(
    world: World, failure: Exception | None, expected: float
) -> None:
    world.channel.outcomes = [failure]
    slot = await world.begins()
    await world.writes("a time ")
    await world.passes(1.1)
    assert await world.messages.of(slot.id).finish() == pytest.approx(expected)
    world.clock.advance(2)
    assert await world.messages.of(slot.id).finish() == pytest.approx(max(expected - 2, 0))
    world.clock.advance(SETTLED_AFTER_S)
    assert await world.messages.of(slot.id).finish() == 0


def paced(per_s: float, *, spaces_edits: bool = False) -> FakeChannel:
    """Return a channel with a rate limit for each chat; 0 for none."""
    limit = RateLimit(scope=CHAT.chat_scope, every_s=1 / per_s, burst=3, spaces_edits=spaces_edits) if per_s else None
    return FakeChannel(pace=() if limit is None else (limit,))


@pytest.mark.by_the_clock
@pytest.mark.parametrize(("per_s", "passed_s", "waits_s"), [(1, 0.7, 0.3), (4, 0.1, 0.15), (1, 1.1, 0), (0, 0, 0)])
async def test_last_words_keep_a_distance_to_the_last_edit(per_s: float, passed_s: float, waits_s: float) -> None:
    """At most a second, and no more than the rate limit of the chat."""
    async with running(World(paced(per_s))) as world:
        slot = await world.begins()
        await world.writes("a time ")
        await world.passes(1.1)
        assert len(world.edits) == 1
        world.clock.advance(passed_s)
        began = time.monotonic()
        assert await world.messages.of(slot.id).finish() == 0
        assert time.monotonic() - began == pytest.approx(waits_s, abs=0.1)


@pytest.mark.by_the_clock
@pytest.mark.parametrize(
    ("per_s", "spaces_edits", "passed_s", "waits_s"),
    [(1, True, 0.7, 0.3), (4, True, 0.1, 0.15), (1, True, 1.1, 0), (1, False, 0.2, 0), (0, False, 0.2, 0)],
)
async def test_last_words_keep_a_distance_to_the_beginning(
    per_s: float, spaces_edits: bool, passed_s: float, waits_s: float
) -> None:
    """Only where the channel wants that: elsewhere a short answer would take a second longer."""
    async with running(World(paced(per_s, spaces_edits=spaces_edits))) as world:
        slot = await world.begins()
        world.clock.advance(passed_s)
        began = time.monotonic()
        assert await world.messages.of(slot.id).finish() == 0
        assert time.monotonic() - began == pytest.approx(waits_s, abs=0.1)


async def test_last_words_keep_no_distance_when_it_stops() -> None:
    async with running(World(paced(1))) as world:
        slot = await world.begins()
        await world.writes("a time ")
        await world.passes(1.1)
        world.streams.drain()
        began = time.monotonic()
        assert await world.messages.of(slot.id).finish() == 0
        assert time.monotonic() - began < 0.5


# --- a turn that is not worked on any more ------------------------------------------------------


async def test_a_turn_that_rests_shows_no_typing(world: World) -> None:
    await world.working()
    world.store.event_bus.publish(ANSWERS, TurnReleased(turn=TURN))
    for _ in range(10):
        await world.passes(1.0)
    assert world.channel.typed == []


async def test_released_turn_is_forgotten_after_a_second(world: World) -> None:
    await world.begins()
    world.store.event_bus.publish(ANSWERS, TurnReleased(turn=TURN))
    await world.passes(0.9)
    await world.writes("a time there ")
    await world.passes(0.2)
    assert world.edits == ["Once upon a time there"]
    await world.passes(1.0)
    await world.writes("was a king ")
    await world.passes(1.1)
    assert world.edits == ["Once upon a time there"]


async def test_a_turn_that_is_taken_up_again_goes_on(world: World) -> None:
    await world.working()
    world.store.event_bus.publish(ANSWERS, TurnReleased(turn=TURN))
    await world.working()
    await world.passes(0.5)
    assert world.channel.typed == [CHAT]
