"""Fixtures of the store contract: every store implementation, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from tempfile import TemporaryDirectory

import pytest

from gateway.ports import Store
from gateway.store import open_store
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.ram import ram


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[Store]:
    with TemporaryDirectory(dir=ram()) as folder:
        opened = open_store("memory://" if request.param == "memory" else f"sqlite://{folder}/dragoman.db", clock)
        yield opened
        await opened.close()


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    return Scene(store, clock)
