"""DNS resolution in daemon threads. Used by every outgoing connection.

The system's lookup cannot be cancelled and takes half a minute when name servers do not answer. A program waits for
pool threads before it exits; for these daemon threads it does not.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeAlias

AT_ONCE = 32
"""Concurrent DNS lookups of the daemon."""

Found: TypeAlias = list[tuple[Any, ...]]
"""Return type of `socket.getaddrinfo`."""


class ThreadedResolver:
    """DNS resolver with a concurrency limit. An abandoned lookup occupies its place until it ends."""

    def __init__(self, at_once: int) -> None:
        """Allow `at_once` concurrent lookups."""
        self._places = asyncio.Semaphore(at_once)

    async def find(self, *asked: Any, **how: Any) -> Found:
        """Resolve as `socket.getaddrinfo` does. Raises `OSError` and `UnicodeError` as that does."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Found] = loop.create_future()

        def finish(report: Callable[[], None]) -> None:
            self._places.release()
            if not result.done():
                report()

        def resolve() -> None:
            try:
                report = partial(result.set_result, socket.getaddrinfo(*asked, **how))
            except Exception as error:  # noqa: BLE001 - raised in the waiting coroutine
                report = partial(result.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: the daemon has ended
                loop.call_soon_threadsafe(finish, report)

        try:
            Thread(target=resolve, name="name", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._places.release()
            raise OSError(str(error)) from None
        return await result


class DaemonEventLoop(asyncio.SelectorEventLoop):
    """asyncio's default event loop with DNS lookups in daemon threads."""

    def __init__(self) -> None:
        """Make the loop and its resolver."""
        super().__init__()
        self._resolver = ThreadedResolver(AT_ONCE)

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Found:
        """Resolve as `socket.getaddrinfo` does."""
        return await self._resolver.find(host, port, family=family, type=type, proto=proto, flags=flags)
