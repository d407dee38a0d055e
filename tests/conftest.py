"""Fixtures and hooks for every test: no task or process may be left behind; what is not traced."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from hypothesis import settings

from tests.support.proof import examples
from tests.support.redis_server import SHARED
from tests.support.warm import STEM

SAMPLED = pytest.StashKey[Counter[str]]()
"""Cases collected so far of each test marked `sampled`."""
GRACE_S = 0.5
"""Time that an ending task or process has to disappear."""
LOGS = ("log-*.txt", "redis.log")
"""Names of the logs of daemons and servers of tests."""
LOG_SHOWN = 6000
"""Characters of the end of each log that a failed test shows."""
UNTRACED = (
    "tests/fault/",
    "tests/scenario/",
    "tests/bench/",
    "tests/fuzz/",
    "tests/contract/test_store_machine.py",
    "tests/unit/gateway/store/test_same_family.py",
)
"""Whose coverage is not measured: the daemon is another process there, or what runs is run by other tests too, and
less often. Tracing more than doubles the CPU of whatever happens in this process.
"""
TRACED_CASES = 2
"""So many of the cases of one test are traced: further ones differ in what they are given. None of those that
Hypothesis makes is, by the hundred.
"""


def pytest_configure() -> None:
    """Choose how many examples Hypothesis makes, and write exceptions plainly into logs, as the daemon does.

    Where `rich` is installed, structlog shows every local variable of every frame instead: seconds of CPU for one
    exception that holds a store.
    """
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    usual = settings.get_profile(settings.get_current_profile_name())
    # What one example takes is the load's, with eight processes on two cores. Tests by the clock measure what is long.
    settings.register_profile("sized", usual, max_examples=examples(usual.max_examples), deadline=None)
    settings.load_profile("sized")


def pytest_unconfigure() -> None:
    """End what daemons were forked from."""
    STEM.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among ten thousand tests and what they import: a third of what collecting them costs."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark further cases of a test marked `sampled` as `whole`, which a plain run leaves out."""
    if sampled := item.get_closest_marker("sampled"):
        cases = item.config.stash.setdefault(SAMPLED, Counter())
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        if cases[test] > sampled.args[0]:
            item.add_marker(pytest.mark.whole("the first cases stay"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave some untraced."""
    cases = Counter[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        made = item.get_closest_marker("hypothesis") is not None
        if item.nodeid.startswith(UNTRACED) or made or cases[test] > TRACED_CASES:
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of what daemons and servers logged in the folder of a test that failed."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        logs = sorted(path for name in LOGS for path in folder.rglob(name))
        report.sections += [(str(path.relative_to(folder)), end_of(path)) for path in logs]
    return report


def end_of(log: Path) -> str:
    """Return the last lines of a log."""
    return log.read_text(errors="replace")[-LOG_SHOWN:]


@pytest.fixture(autouse=True)
def nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a child process of this one is alive that was not there before."""
    if pytest_asyncio.is_async_test(request.node):
        request.getfixturevalue("no_task_is_left")
    before = children()
    yield
    left = leaked_children(before)
    for pid in left:
        os.kill(pid, signal.SIGKILL)  # the next test must not inherit it
    if left:
        named = ", ".join(f"{pid} ({command})" for pid, command in left.items())
        pytest.fail(f"the test left processes running: {named}. Stop them and wait for their end.", pytrace=False)


@pytest_asyncio.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """Fail a test after which tasks of its event loop are not done. Chosen for each async test by the fixture above.

    Tests that share a loop of a wider scope have one of this name in that loop.
    """
    async with no_tasks_left():
        yield


@asynccontextmanager
async def no_tasks_left() -> AsyncGenerator[None]:
    """Fail when tasks of this event loop that were not there at the beginning are not done soon after the end."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=GRACE_S)
    names = sorted(f"{task.get_name()} ({task.get_coro()})" for task in left if not task.done())
    if names:
        pytest.fail(f"the test left tasks running: {', '.join(names)}. Cancel them and await their end.", pytrace=False)


def children() -> set[int]:
    """Return the children of this process, any thread's, alive or ended. Empty where there is no /proc.

    What daemons are forked from stays, and its children count as this process's own.
    """
    found = children_of("self")
    if STEM.pid is not None:
        found.discard(STEM.pid)
        found |= children_of(str(STEM.pid))
    return found


def children_of(process: str) -> set[int]:
    """Return the children of one process, by its pid or `self`."""
    found = set[int]()
    tasks = f"/proc/{process}/task"
    try:
        threads = os.listdir(tasks)  # beside each of 16,000 tests, where Path.glob takes ten times as long
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"{tasks}/{thread}/children", "rb", buffering=0) as listing:
                found.update(map(int, listing.read().split()))
        except OSError:  # the thread ended meanwhile
            continue
    return found


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that ended and was not waited for (a zombie) does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def command_of(pid: int) -> str:
    """Return a process's command line; empty in the moment between fork and exec."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def leaked_children(before: set[int]) -> dict[int, str]:
    """Return children that are new and stay alive for the time of grace."""
    end = time.monotonic() + GRACE_S
    while left := [pid for pid in children() - before - SHARED if is_alive(pid)]:
        if time.monotonic() > end:
            return {pid: command_of(pid) for pid in left}
        time.sleep(0.01)
    return {}
