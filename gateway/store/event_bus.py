"""`EventBus` in one process: wake-ups and streamed deltas between the engine's tasks.

What is lost here is read again from rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.domain.live import LiveEvent

KEPT = 1_000


class _Listener:
    """One subscription: a bounded queue that drops its oldest events."""

    def __init__(self) -> None:
        self._events: deque[LiveEvent] = deque(maxlen=KEPT)
        self._ready = asyncio.Event()

    def offer(self, event: LiveEvent) -> None:
        self._events.append(event)
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[LiveEvent]:
        return self

    async def __anext__(self) -> LiveEvent:
        while not self._events:
            self._ready.clear()
            await self._ready.wait()
        return self._events.popleft()


class _Called:
    """A subscription that is told at once."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def offer(self, _event: LiveEvent) -> None:
        self._call()


class LocalEventBus:
    """Publish and subscribe by topic within this process."""

    def __init__(self) -> None:
        """Start with no listeners."""
        self._topics: dict[str, set[_Listener | _Called]] = {}

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Hand the event to the topic's listeners of this moment."""
        for listener in self._topics.get(topic, ()):
            listener.offer(event)

    def call(self, topic: str, call: Callable[[], None]) -> None:
        """Have `call` called with each event from now on. It must not fail."""
        self._topics.setdefault(topic, set()).add(_Called(call))

    @asynccontextmanager
    async def subscribe(self, *topics: str) -> AsyncGenerator[AsyncIterator[LiveEvent]]:
        """Listen to `topics` until the context ends."""
        listener = _Listener()
        for topic in topics:
            self._topics.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            for topic in topics:
                listeners = self._topics[topic]
                listeners.discard(listener)
                if not listeners:
                    del self._topics[topic]

    async def heard(self, topic: str, within_s: float) -> bool:
        """Wait for the topic's next event; False when there was none within so many seconds."""
        try:
            async with asyncio.timeout(within_s), self.subscribe(topic) as events:
                await anext(events)
        except TimeoutError:
            return False
        return True
