"""Reads of a node whose Redis another node writes to: few requests, one moment, and no write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis

from gateway.domain.ids import SessionId, mint
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact
from gateway.store.redis import RedisStore, open_redis
from tests.contract.scene import OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import route
from tests.support.patience import PATIENCE_S
from tests.support.ram import ram
from tests.support.redis_server import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that counts the requests of these tests alone."""
    with TemporaryDirectory(dir=ram()) as folder, RedisServer(Path(folder)) as started:
        started.share()
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    """A connection that asks for figures."""
    opened: Any = redis.Redis(port=server.port)
    with opened as found:
        yield found


@pytest.fixture
async def pair(server: RedisServer, clock: FakeClock) -> AsyncIterator[list[RedisStore]]:
    """Two nodes."""
    url = f"{server.url}?prefix={mint('reads')}"
    stores = [open_redis(url, clock) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


def written(client: Any) -> int:
    return client.info("persistence")["aof_current_size"]


def requests(client: Any) -> int:
    return client.info("stats")["total_reads_processed"]


def value(part: Part, key: str) -> str:
    found = part.facts.get(("moment", key))
    return "" if found is None else found.value


def put(both: str, part: Part) -> None:
    for key in ("a", "b"):
        part.facts.put(("moment", key), Fact(both))


async def test_a_read_in_two_steps_is_of_one_moment(pair: list[RedisStore]) -> None:
    """Another node changes both rows between them: what the first one had read is read again."""
    one, other = pair
    loop, changes = asyncio.get_running_loop(), ["2"]

    def read(part: Part) -> tuple[str, str]:
        first = value(part, "a")
        while changes:
            asyncio.run_coroutine_threadsafe(other.run(partial(put, changes.pop())), loop).result(PATIENCE_S)
        return first, value(part, "b")

    await other.run(partial(put, "1"))
    assert await one.run(read) == ("2", "2")


async def test_a_read_in_two_steps_writes_nothing(client: Any, pair: list[RedisStore]) -> None:
    """Not even its number: that is for a write which may be sent again."""
    one, _ = pair
    await one.put("moment", "e", "")
    before = written(client)
    assert await one.run(lambda part: (value(part, "c"), value(part, "d"))) == ("", "")
    assert written(client) == before


async def test_a_claim_of_queued_turns_takes_four_requests(
    client: Any, pair: list[RedisStore], clock: FakeClock
) -> None:
    """On a node that did not see them come: which are ready, their rows, what those name, and the commit."""
    one, other = pair
    counts = list[int]()
    for number in range(12):
        await Scene(one, clock).say(to=route(SessionId(f"chat:{number}")))
        if number % 3 == 2:
            before = requests(client)
            assert len(await other.claim(OTHER_NODE, 3)) == 3
            counts.append(requests(client) - before - 1)
    assert min(counts) == 4, counts
