"""Concurrent DNS lookups with a limit, and abandoned lookups."""

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
    """Fake system whose lookups block until released."""

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


async def test_abandoned_lookup_keeps_its_place(slow: Slow) -> None:
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


async def test_unknown_name_raises(slow: Slow) -> None:
    slow.go.set()
    with pytest.raises(socket.gaierror):
        await ThreadedResolver(1).find("broken", 80)


def test_loop_closes_during_a_lookup(slow: Slow) -> None:
    async def ask() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.get_running_loop().getaddrinfo("a", 80)

    with asyncio.Runner(loop_factory=DaemonEventLoop) as runner:
        runner.run(ask())
    assert slow.asked == ["a"]
    slow.go.set()  # its thread reports to a closed loop, and ends


async def test_lookup_raises_oserror_without_a_thread(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = ThreadedResolver(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="can't start new thread"):
            await lookups.find("a", 80)
    slow.go.set()
    assert await lookups.find("a", 80)
