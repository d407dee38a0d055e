"""Ordered queues of incoming events, one per channel, channels in parallel. Used by `updates`.

Slack sends over two connections, so simultaneous events arrive in any order. Among the waiting events, the earliest by
Slack's timestamp is next; an event that arrives after a later one was processed cannot be reordered.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True)
class _Queue:
    waiting: list[tuple[float, int, asyncio.Future[None]]] = field(
        default_factory=list[tuple[float, int, "asyncio.Future[None]"]]
    )
    """Heap of event time, order of arrival, and the future that starts the turn."""


class OrderedQueue:
    """Set of priority queues by name; an empty queue is removed."""

    def __init__(self) -> None:
        """Start without queues."""
        self._queues: dict[str, _Queue] = {}
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def turn(self, name: str, at: float = 0.0) -> AsyncGenerator[None]:
        """Wait for this queue until it is free and no earlier event, by time and then arrival, waits."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue()
            loop.call_soon(self._next, name)  # deferred: an event of the same moment may be earlier
        heappush(queue.waiting, (at, next(self._arrivals), turn))
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._next(name)

    def _next(self, name: str) -> None:
        """Start the next turn, or remove an empty queue."""
        waiting = self._queues[name].waiting
        while waiting:
            _, _, turn = heappop(waiting)
            if not turn.done():
                turn.set_result(None)
                return
        del self._queues[name]

    def __len__(self) -> int:
        """Return the number of active queues."""
        return len(self._queues)
