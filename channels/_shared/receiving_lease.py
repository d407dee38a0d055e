"""Lease of an account by which one node of several receives its events. Used by the `account` of channels with sockets.

The other nodes stand by and take over when the lease is free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from gateway.errors import StoreError
from gateway.ports import ChannelHost, Clock


@dataclass(slots=True, kw_only=True)
class ReceivingLease:
    """Right of this node to receive for one account."""

    name: str
    """Name of the lease: `slack/main`."""
    host: ChannelHost
    clock: Clock
    ttl: timedelta
    every_s: float
    """Interval in seconds between renewals, and between checks of a standby node."""
    _until: float = 0.0
    """Monotonic time at which the lease ends."""

    def has_lapsed(self) -> bool:
        """Return whether the lease may have ended: this process was suspended, or the store did not answer."""
        return self.clock.monotonic() >= self._until

    async def is_held(self) -> bool:
        """Return whether this node may receive now. A lease that may have ended is asked for at once, for an event."""
        return not self.has_lapsed() or await self._hold()

    async def lead(self, receive: Callable[[], Awaitable[None]], stand_by: Callable[[], None]) -> None:
        """Receive while this node holds the lease, until cancelled. `stand_by` is called while another one has it."""
        while True:
            if await self._hold():
                await self._receive(receive)
            else:
                stand_by()
                await asyncio.sleep(self.every_s)

    async def _hold(self) -> bool:
        asked_at = self.clock.monotonic()
        try:
            held = await self.host.hold(self.name, self.ttl)
        except StoreError as error:
            logging.getLogger(__name__).warning("the lease %s is not renewed: %s", self.name, error)
            return not self.has_lapsed()
        self._until = 0.0 if held is None else asked_at + self.ttl.total_seconds()
        return held is not None

    async def _receive(self, receive: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            await receive()

        async with asyncio.TaskGroup() as both:
            receiving = both.create_task(work(), name=f"receive {self.name}")
            while not receiving.done():
                await asyncio.wait([receiving], timeout=self.every_s)
                if not await self._hold():
                    receiving.cancel()
                    return
