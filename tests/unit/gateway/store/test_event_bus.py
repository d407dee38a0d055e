from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.domain.events import Changed, LiveEvent, OutputDelta, SlotsDue, TurnsDue
from gateway.domain.ids import SessionId, TurnId
from gateway.store.event_bus import KEPT, LocalEventBus


def delta(start: int) -> OutputDelta:
    return OutputDelta(session=SessionId("s"), turn=TurnId("t"), n=1, start=start, text="x")


async def soon(events: AsyncIterator[LiveEvent]) -> LiveEvent:
    async with asyncio.timeout(1):
        return await anext(events)


async def test_a_listener_hears_its_topics_in_order_and_no_others() -> None:
    live = LocalEventBus()
    async with live.subscribe("a", "b") as events:
        live.publish("c", Changed(session=SessionId("c")))
        live.publish("a", TurnsDue())
        live.publish("b", SlotsDue())

        assert [await soon(events), await soon(events)] == [TurnsDue(), SlotsDue()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(events)


async def test_subscriber_gets_every_later_event_and_none_before() -> None:
    live = LocalEventBus()
    live.publish("a", delta(0))
    async with live.subscribe("a") as one, live.subscribe("a") as other:
        live.publish("a", delta(1))

        assert await soon(one) == await soon(other) == delta(1)


async def test_a_waiting_listener_is_woken() -> None:
    live = LocalEventBus()
    async with live.subscribe("a") as events, asyncio.TaskGroup() as group:
        found = group.create_task(soon(events))
        await asyncio.sleep(0)
        live.publish("a", TurnsDue())

    assert found.result() == TurnsDue()


async def test_slow_subscriber_loses_oldest_and_publish_never_waits() -> None:
    live = LocalEventBus()
    async with live.subscribe("a") as events:
        for n in range(KEPT + 5):
            live.publish("a", delta(n))

        assert KEPT == 1000
        assert [await soon(events) for _ in range(KEPT)] == [delta(n) for n in range(5, KEPT + 5)]


async def test_former_subscriber_gets_nothing_and_leaks_nothing() -> None:
    live = LocalEventBus()
    async with live.subscribe("a", "b") as events:
        live.publish("a", delta(1))
    live.publish("a", delta(2))

    assert await soon(events) == delta(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await anext(events)
