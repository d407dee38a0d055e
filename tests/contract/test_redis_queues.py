"""A long queue of one session on Redis: its turns run in their order on any node, and move to any store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.ids import TurnId, mint
from gateway.store import open_store
from gateway.store.copying import export, migrate
from gateway.store.redis.copying import copy_of
from gateway.store.redis.long_queues import AT_ONCE, LONG, SECTION
from tests.contract.scene import OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.redis_server import RedisServer

TURNS = LONG + 2 * AT_ONCE


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return f"{redis_server.url}?prefix={mint('test')}"


@pytest.fixture
async def scenes(url: str, clock: FakeClock) -> AsyncIterator[tuple[Scene, Scene]]:
    """Two nodes."""
    stores = [open_store(url, clock) for _ in range(2)]
    yield Scene(stores[0], clock), Scene(stores[1], clock)
    for store in stores:
        await store.close()


async def queued(scene: Scene) -> list[TurnId]:
    """Accept more turns than a row holds, and return them in their order."""
    async with asyncio.TaskGroup() as group:
        said = [group.create_task(scene.say(), name="say") for _ in range(TURNS)]
    return [one.result().turn for one in said]


def sections_in(url: str) -> list[int]:
    """Return the seconds for which each section stays; -1 for good."""
    with copy_of(url) as copy:
        return [copy.client.ttl(copy.key(key)) for key in list(copy.keys()) if key.startswith(f"{SECTION}:")]


async def test_a_long_queue_runs_in_its_order(scenes: tuple[Scene, Scene], url: str) -> None:
    """One node takes the messages, the other runs the turns. The section that lost some fades, the others stay."""
    one, other = scenes
    turns = await queued(one)
    for turn in turns[:3]:
        lease = await other.claim(OTHER_NODE)
        assert lease.turn == turn
        await other.finish(lease)
    turns.append((await one.say()).turn)
    assert (await other.claim(OTHER_NODE)).turn == turns[3]
    left = await asyncio.to_thread(sections_in, url)
    assert left.count(-1) == 2, "the second of the first two, and one for those behind"
    assert len([one for one in left if one > 0]) == 1


async def test_a_long_queue_moves_to_another_store(scenes: tuple[Scene, Scene], url: str, tmp_path: Path) -> None:
    turns = await queued(scenes[0])
    out = await asyncio.to_thread(export, url, str(tmp_path / "out.db"))
    moved = await asyncio.to_thread(migrate, str(tmp_path / "out.db"), f"{url}back", scenes[0].clock.now())
    assert moved.tally.digest == out.tally.digest
    again = open_store(f"{url}back", scenes[0].clock)
    try:
        there = Scene(again, scenes[0].clock)
        assert (await there.claim()).turn == turns[0]
        await there.say()
        assert await asyncio.to_thread(sections_in, f"{url}back")
    finally:
        await again.close()
