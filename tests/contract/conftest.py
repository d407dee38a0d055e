"""Fixtures of the store's suites, under a clock that the test moves.

The kernel suite holds each rule once: it runs on the kernel over rows that are loaded one by one. Tests marked
`conformance` are of the backends (loading, atomic writing, indexes, reads, concurrency) and run on each of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from tempfile import TemporaryDirectory

import pytest

from gateway.ports import Store
from gateway.store import open_store
from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.lazy_store import LazyStore
from tests.support.ram import ram

KERNEL, MEMORY, SQLITE = "kernel", "memory", "sqlite"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the stores of a test. The rules run once more through each backend with `--all`."""
    if "store" not in metafunc.fixturenames:
        return
    here, elsewhere = [KERNEL], [MEMORY, SQLITE]
    if any(metafunc.definition.iter_markers("conformance")):
        here, elsewhere = elsewhere, here
    again = pytest.mark.whole("each rule runs once, each property of a backend on each")
    metafunc.parametrize("store", [*here, *(pytest.param(one, marks=again) for one in elsewhere)], indirect=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[Store]:
    with TemporaryDirectory(dir=ram()) as folder:
        if request.param == KERNEL:
            opened: Store = LazyStore(clock)
        else:
            opened = open_store("memory://" if request.param == MEMORY else f"sqlite://{folder}/dragoman.db", clock)
        yield opened
        await opened.close()


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    return Scene(store, clock)
