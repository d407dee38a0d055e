"""In-process `EventBus`: wake-ups and streamed deltas between the engine's tasks.

Lost events are harmless: subscribers read the rows again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from gateway.domain.events import ANSWERS, LiveEvent, LookAgain
from gateway.domain.messages import Conversation

KEPT = 1_000
"""Events kept for one subscriber; the oldest are lost."""


class _Subscriber:
    """One subscriber: a bounded queue that drops its oldest events."""

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


class _Callback:
    """A subscriber that is called at once."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def offer(self, _event: LiveEvent) -> None:
        self._call()


class LocalEventBus:
    """Publish and subscribe by topic within this process."""

    def __init__(self) -> None:
        """Start with no subscribers."""
        self._topics: dict[str, set[_Subscriber | _Callback]] = {}

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Hand the event to the topic's current subscribers, in this process: there is no other node."""
        for subscriber in self._topics.get(topic, ()):
            subscriber.offer(event)

    publish_here = publish

    def publish_to_sender(self, where: Conversation, event: LiveEvent) -> None:
        """Hand the event to live edits: this process sends for every account."""
        self.publish_here(ANSWERS, event)

    def send_for(self, accounts: Collection[tuple[str, str]]) -> None:
        """Do nothing: no other process sends."""

    def look_again(self) -> None:
        """Publish to every subscriber that events may have been lost."""
        for subscriber in {one for subscribers in self._topics.values() for one in subscribers}:
            subscriber.offer(LookAgain())

    def call(self, topic: str, call: Callable[[], None]) -> None:
        """Call `call` on each event from now on. It must not raise."""
        self._topics.setdefault(topic, set()).add(_Callback(call))

    @asynccontextmanager
    async def subscribe(self, *topics: str) -> AsyncGenerator[AsyncIterator[LiveEvent]]:
        """Subscribe to `topics` until the context ends."""
        subscriber = _Subscriber()
        for topic in topics:
            self._topics.setdefault(topic, set()).add(subscriber)
        try:
            yield subscriber
        finally:
            for topic in topics:
                subscribers = self._topics[topic]
                subscribers.discard(subscriber)
                if not subscribers:
                    del self._topics[topic]

    async def wait_for(self, topic: str, within_s: float) -> bool:
        """Wait for the topic's next event; return False on timeout, in seconds."""
        try:
            async with asyncio.timeout(within_s), self.subscribe(topic) as events:
                await anext(events)
        except TimeoutError:
            return False
        return True
