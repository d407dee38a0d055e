"""Names are looked up side by side, so many at once, and nobody waits for one that was given up."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from gateway.system.dns import DaemonEventLoop, ThreadedResolver


class Slow:
    """A system whose lookups take until they are let go."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.go = threading.Event()
        self._arrived = threading.Semaphore(0)

    def __call__(self, host: Any, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        self._arrived.release()
        self.go.wait(10)
        if host == "broken":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    async def until_asked(self, times: int) -> None:
        for _ in range(times):
            assert await asyncio.to_thread(self._arrived.acquire, timeout=5)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    system = Slow()
    monkeypatch.setattr(socket, "getaddrinfo", system)
    yield system
    system.go.set()


async def test_so_many_are_asked_at_once_and_one_that_is_given_up_keeps_its_place(slow: Slow) -> None:
    lookups = ThreadedResolver(2)
    async with asyncio.TaskGroup() as group:
        first, second, third = (group.create_task(lookups.find(name, 80)) for name in ("a", "b", "c"))
        await slow.until_asked(2)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await asyncio.sleep(0.05)
        assert slow.asked == ["a", "b"]
        slow.go.set()
        assert (await second)[0][4] == (await third)[0][4] == ("192.0.2.1", 0)


async def test_a_name_that_is_not_there_is_an_error(slow: Slow) -> None:
    slow.go.set()
    with pytest.raises(socket.gaierror):
        await ThreadedResolver(1).find("broken", 80)


def test_the_loop_ends_while_a_name_is_looked_up(slow: Slow) -> None:
    async def ask() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.get_running_loop().getaddrinfo("a", 80)

    with asyncio.Runner(loop_factory=DaemonEventLoop) as runner:
        runner.run(ask())
    assert slow.asked == ["a"]
    slow.go.set()  # its thread tells a loop that is closed, and ends


async def test_no_thread_is_an_error_of_the_system(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = ThreadedResolver(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="can't start new thread"):
            await lookups.find("a", 80)
    slow.go.set()
    assert await lookups.find("a", 80)
