"""On the way in: what is said in one place is taken in the order in which it was said, places side by side.

Slack sends over two connections, so what was said in the same moment arrives in any order. Among those that wait, the
earliest by Slack's own timestamp is next; what arrives after a later one was taken comes too late for that.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True)
class _Lane:
    waiting: list[tuple[float, int, asyncio.Future[None]]] = field(
        default_factory=list[tuple[float, int, "asyncio.Future[None]"]]
    )
    """A heap: when it was said, who came first, and told when it is the turn."""


class OrderedQueue:
    """A queue for each place that something is being taken from; one that is empty is forgotten."""

    def __init__(self) -> None:
        """Have none."""
        self._lanes: dict[str, _Lane] = {}
        self._came = itertools.count()

    @asynccontextmanager
    async def turn(self, name: str, at: float = 0.0) -> AsyncGenerator[None]:
        """Wait until nobody has this lane, and nobody wants it for something earlier, or as early and asked before."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            loop.call_soon(self._next, name)  # not at once: what came with it may be earlier
        heappush(lane.waiting, (at, next(self._came), turn))
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._next(name)

    def _next(self, name: str) -> None:
        """Give the lane to whoever is next."""
        waiting = self._lanes[name].waiting
        while waiting:
            _, _, turn = heappop(waiting)
            if not turn.done():
                turn.set_result(None)
                return
        del self._lanes[name]

    def __len__(self) -> int:
        """How many places something is being taken from."""
        return len(self._lanes)
