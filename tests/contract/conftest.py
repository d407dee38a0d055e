"""Every contract runs on every implementation of the store, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.ports import Store
from gateway.store import open_store
from tests.contract.scene import Scene
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite://{tmp_path / 'dragoman.db'}"
    opened = open_store(url, clock)
    yield opened
    await opened.close()


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    return Scene(store, clock)
