"""System clock: the only module that reads it. Passed in by `gateway.app`. Beside it, a wait with a timeout."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime


class SystemClock:
    """`ports.Clock` of the operating system."""

    def now(self) -> datetime:
        """Return the wall clock, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()


async def is_set(event: asyncio.Event, within_s: float) -> bool:
    """Wait for an event, at most so many seconds. Return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()
