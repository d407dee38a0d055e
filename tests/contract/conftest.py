"""Fixtures of the store's suites, under a clock that the test moves.

The kernel suite holds each rule once: it runs on the kernel over rows that are loaded one by one. Tests marked
`conformance` are of the backends (loading, atomic writing, indexes, reads, concurrency) and run on each of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gateway.domain.ids import mint
from gateway.ports import Store
from gateway.store import open_store
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.lazy_store import LazyStore
from tests.support.ram import ram
from tests.support.redis_server import RedisServer

KERNEL, MEMORY, SQLITE, REDIS = "kernel", "memory", "sqlite", "redis"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the stores of a test. The rules run once more through each backend with `--all`."""
    if "store" not in metafunc.fixturenames:
        return
    here, elsewhere = [KERNEL], [MEMORY, SQLITE, REDIS]
    if any(metafunc.definition.iter_markers("conformance")):
        here, elsewhere = elsewhere, here
    again = pytest.mark.whole("each rule runs once, each property of a backend on each")
    metafunc.parametrize("store", [*here, *(pytest.param(one, marks=again) for one in elsewhere)], indirect=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with TemporaryDirectory(dir=ram()) as folder, RedisServer(Path(folder)) as server:
        server.share()
        yield server


@pytest.fixture
async def store(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[Store]:
    with TemporaryDirectory(dir=ram()) as folder:
        if request.param == KERNEL:
            opened: Store = LazyStore(clock)
        else:
            opened = open_store(_url(request, folder), clock)
        yield opened
        await opened.close()


def _url(request: pytest.FixtureRequest, folder: str) -> str:
    """Return the address of an empty store: on Redis each test has a prefix of its own."""
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite://{folder}/dragoman.db"
        case _:
            server: RedisServer = request.getfixturevalue("redis_server")
            return f"{server.url}?prefix={mint('test')}"


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    return Scene(store, clock)
