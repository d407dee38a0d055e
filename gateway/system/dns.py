"""Beside every connection that goes out: names become addresses, each in a thread that nobody has to wait for.

The system's way of looking one up cannot be cut short, and takes half a minute when name servers do not answer. For a
pool's threads a program waits before it ends; for these it does not.
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
"""Names that the daemon looks up side by side."""

Found: TypeAlias = list[tuple[Any, ...]]
"""As `socket.getaddrinfo` returns it."""


class ThreadedResolver:
    """Looks names up, so many at once; what nobody waits for any more takes its place until it ends."""

    def __init__(self, at_once: int) -> None:
        """Take how many."""
        self._room = asyncio.Semaphore(at_once)

    async def find(self, *asked: Any, **how: Any) -> Found:
        """Do as `socket.getaddrinfo` does. Raises `OSError` and `UnicodeError` as that does."""
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        waited_for: asyncio.Future[Found] = loop.create_future()

        def ended(tell: Callable[[], None]) -> None:
            self._room.release()
            if not waited_for.done():
                tell()

        def look() -> None:
            try:
                tell = partial(waited_for.set_result, socket.getaddrinfo(*asked, **how))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                tell = partial(waited_for.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: the daemon has ended
                loop.call_soon_threadsafe(ended, tell)

        try:
            Thread(target=look, name="name", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._room.release()
            raise OSError(str(error)) from None
        return await waited_for


class DaemonEventLoop(asyncio.SelectorEventLoop):
    """asyncio's usual loop, whose names are looked up so."""

    def __init__(self) -> None:
        """Nothing is looked up yet."""
        super().__init__()
        self._lookups = ThreadedResolver(AT_ONCE)

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Found:
        """As `socket.getaddrinfo`."""
        return await self._lookups.find(host, port, family=family, type=type, proto=proto, flags=flags)
