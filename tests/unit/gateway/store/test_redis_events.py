"""Event bus of several nodes: what a commit tells the others, and who hears it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.domain.events import (
    SESSIONS,
    SLOTS,
    TURNS,
    Changed,
    LiveEvent,
    SlotsDue,
    TurnsDue,
    TurnWoken,
    session_topic,
    turn_topic,
)
from gateway.domain.ids import SessionId, TurnId
from gateway.store.notifications import Notifications
from gateway.store.redis.events import LIVE, RedisEventBus
from gateway.store.write_queue import QueueEntry
from tests.support.patience import PATIENCE_S
from tests.support.redis_server import RedisServer
from tests.support.surroundings import until

PREFIX = "{events}:"
MAIN, TURN = SessionId("main:ann"), TurnId("t1")
TOPICS = (SESSIONS, TURNS, SLOTS, session_topic(MAIN), turn_topic(TURN))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(Path(tmp_path_factory.mktemp("redis"))) as started:
        started.share()
        yield started


@pytest.fixture
async def nodes(server: RedisServer) -> AsyncIterator[tuple[RedisEventBus, RedisEventBus]]:
    here, there = (RedisEventBus(server.url, PREFIX, name) for name in ("here", "there"))
    client: Any = redis.Redis(port=server.port)
    await until(lambda: client.pubsub_numsub(f"{PREFIX}{LIVE}")[0][1] == 2)
    yield here, there
    for one in (here, there):
        await one.close()
        await one.close()
    client.close()


def wake(bus: RedisEventBus, *touched: Notifications | None) -> str:
    loop = asyncio.get_running_loop()
    entries = [QueueEntry(work=lambda _: None, loop=loop, future=loop.create_future(), touched=one) for one in touched]
    return bus.wake(entries)


async def heard(events: AsyncIterator[LiveEvent], count: int) -> list[LiveEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(events) for _ in range(count)]


@pytest.mark.parametrize(
    ("touched", "events"),
    [
        ([Notifications(turns_due=True), Notifications()], [TurnsDue()]),
        ([Notifications(), None, Notifications(slots_due=True)], [SlotsDue()]),
        ([Notifications(turns={TURN})], [TurnWoken(turn=TURN)]),
        ([Notifications(sessions={MAIN}), Notifications(sessions={MAIN})], [Changed(session=MAIN)] * 2),
        (
            [Notifications(slots_due=True, turns={TURN}), Notifications(turns_due=True)],
            [TurnWoken(turn=TURN), TurnsDue(), SlotsDue()],
        ),
    ],
)
async def test_the_wake_ups_of_a_commit_are_heard_by_other_nodes(
    server: RedisServer,
    nodes: tuple[RedisEventBus, RedisEventBus],
    touched: list[Notifications | None],
    events: list[LiveEvent],
) -> None:
    """All of a batch in one message. The node that made the commit has told its own already."""
    here, there = nodes
    client: Any = redis.Redis(port=server.port)
    async with here.subscribe(*TOPICS) as own, there.subscribe(*TOPICS) as others:
        client.publish(f"{PREFIX}{LIVE}", wake(here, *touched))
        assert await heard(others, len(events)) == events
        there.publish("end", TurnsDue())
        here.publish_here(TURNS, TurnsDue())
        assert await heard(own, 1) == [TurnsDue()]
    client.close()


async def test_a_commit_that_wakes_nobody_has_no_message(nodes: tuple[RedisEventBus, RedisEventBus]) -> None:
    assert wake(nodes[0], Notifications(), None) == ""


async def test_a_free_place_is_heard_as_slots_that_are_due(
    server: RedisServer, nodes: tuple[RedisEventBus, RedisEventBus]
) -> None:
    here, there = nodes
    client: Any = redis.Redis(port=server.port)
    async with there.subscribe(*TOPICS) as others:
        client.publish(*here.freed())
        assert await heard(others, 1) == [SlotsDue()]
    client.close()
