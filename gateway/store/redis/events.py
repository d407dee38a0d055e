"""Event bus of several nodes: publish and subscribe of Redis, and `LookAgain` after each reconnect."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import redis
from pydantic import TypeAdapter

from gateway.domain import events as kinds
from gateway.domain.events import ANSWERS, LiveEvent
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.store.event_bus import KEPT, LocalEventBus
from gateway.store.notifications import Notifications
from gateway.store.redis import connection
from gateway.store.write_queue import QueueEntry
from gateway.system.logging_setup import log

LIVE = "live"
"""Channel of everything that all nodes hear, without the prefix."""
Outgoing: TypeAlias = tuple[str, str, Callable[[], None] | None]
"""Channel and message of an event, and the callback when no node received it."""
SENT_AT_ONCE = 100
"""Events in one request."""
LISTEN_S = 1.0
"""Seconds of one poll of the subscription."""
PING_EVERY_S = 5.0
"""Seconds between two signs of life that are asked of the server."""
AGAIN_S = 0.2
"""Seconds between two attempts to connect."""
_EVENTS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (
        kinds.Changed,
        kinds.TurnsDue,
        kinds.SlotsDue,
        kinds.TurnWoken,
        kinds.TextDelta,
        kinds.OutputDelta,
        kinds.TurnActive,
        kinds.TurnReleased,
        kinds.ProgressChanged,
        kinds.JobsStopped,
        kinds.JobKilled,
        kinds.FileChanged,
        kinds.NodesChanged,
        kinds.SignedOut,
        kinds.LookAgain,
    )
}
_LOG = log("store")


class RedisEventBus(LocalEventBus):
    """`ports.EventBus` over all nodes. Subscribers here get an event at once, those elsewhere by Redis."""

    def __init__(self, url: str, prefix: str, node: str) -> None:
        """Take the address, the prefix of all channels and the name of this process."""
        super().__init__()
        self._url, self._node = url, node
        self._everyone, self._answers = f"{prefix}{LIVE}", f"{prefix}answers/"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mine: frozenset[str] = frozenset()
        self._outbox: SimpleQueue[Outgoing | None] = SimpleQueue()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"store-redis-{name}", daemon=True)
            for name, work in (("listen", self._listen), ("publish", self._send))
        ]
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """End the threads. Idempotent."""
        self._closed.set()
        self._outbox.put((self._everyone, json.dumps(["end", self._node]), None))  # ends the wait of the listener
        self._outbox.put(None)
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    # --- wake-ups of commits ----------------------------------------------------------------

    def wake(self, entries: Iterable[QueueEntry]) -> str:
        """Return the message of a commit's wake-ups for other nodes; empty when none is due."""
        all_ = Notifications()
        for touched in [entry.touched for entry in entries if entry.touched is not None]:
            all_.sessions |= touched.sessions
            all_.turns |= touched.turns
            all_.turns_due |= touched.turns_due
            all_.slots_due |= touched.slots_due
        if not (all_.sessions or all_.turns or all_.turns_due or all_.slots_due):
            return ""
        return self._wake_message(all_)

    def freed(self) -> tuple[str, str]:
        """Return the channel and the message that say that a slot can be sent."""
        return self._everyone, self._wake_message(Notifications(slots_due=True))

    def _wake_message(self, one: Notifications) -> str:
        return json.dumps(["wake", self._node, sorted(one.sessions), sorted(one.turns), one.turns_due, one.slots_due])

    def publish_locally(self, touched: Notifications) -> None:
        """Hand the wake-ups of a commit to subscribers here; the commit itself notified the other nodes."""
        touched.publish(_Here(self))

    # --- other events -----------------------------------------------------------------------

    def publish(self, topic: str, event: LiveEvent) -> None:
        """Hand the event to the topic's subscribers on all nodes."""
        self.publish_here(topic, event)
        self._post(self._everyone, self._message(topic, event))

    def publish_to_sender(self, where: Conversation, event: LiveEvent) -> None:
        """Hand the event to live edits of the node that sends for the account; without one, here."""
        channel = f"{self._answers}{where.channel}/{where.account}"
        if channel in self._mine:
            self.publish_here(ANSWERS, event)
            return
        self._note_loop()

        def publish_here() -> None:
            self._in_loop(lambda: self.publish_here(ANSWERS, event))

        self._post(channel, self._message(ANSWERS, event), publish_here)

    def _post(self, channel: str, message: str, otherwise: Callable[[], None] | None = None) -> None:
        if self._outbox.qsize() < KEPT:  # more wait only while Redis is away: events may be lost
            self._outbox.put((channel, message, otherwise))

    def send_for(self, accounts: Collection[tuple[str, str]]) -> None:
        """Take this node for the sender of these accounts."""
        self._mine = frozenset(f"{self._answers}{'/'.join(account)}" for account in accounts)

    def _message(self, topic: str, event: LiveEvent) -> str:
        name = type(event).__name__
        return json.dumps(["event", self._node, topic, name, _EVENTS[name].dump_python(event, mode="json")])

    @asynccontextmanager
    async def subscribe(self, *topics: str) -> AsyncGenerator[AsyncIterator[LiveEvent]]:
        """Subscribe to `topics` until the context ends."""
        self._note_loop()
        async with super().subscribe(*topics) as events:
            yield events

    def _note_loop(self) -> None:
        self._loop = asyncio.get_running_loop()

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)

    # --- threads ----------------------------------------------------------------------------

    def _send(self) -> None:
        client: Any = connection.connect(self._url)
        while (some := self._next_events()) is not None:
            pipeline = client.pipeline(transaction=False)
            for channel, message, _ in some:
                pipeline.publish(channel, message)
            try:
                heard: list[int] = pipeline.execute()
            except redis.RedisError:
                heard = [0] * len(some)  # events may be lost
            for (_, _, otherwise), count in zip(some, heard, strict=True):
                if not count and otherwise is not None:
                    otherwise()
        client.close()

    def _next_events(self) -> list[Outgoing] | None:
        """Wait for events, and return those that came meanwhile too; None at the end."""
        if (one := self._outbox.get()) is None:
            return None
        some = [one]
        with suppress(Empty):
            while len(some) < SENT_AT_ONCE and (one := self._outbox.get_nowait()) is not None:
                some.append(one)
        if one is None:
            self._outbox.put(None)
        return some

    def _listen(self) -> None:
        first = True
        while not self._closed.is_set():
            try:
                client: Any = connection.connect(self._url)
                with client, client.pubsub() as pubsub:
                    self._follow(pubsub, look_again=not first)
            except redis.RedisError as error:
                _LOG.warning("the event bus has lost Redis", why=str(error))
                self._closed.wait(AGAIN_S)
            first = False

    def _follow(self, pubsub: Any, *, look_again: bool) -> None:
        channels = {self._everyone}
        pubsub.subscribe(*channels)
        heard = time.monotonic()
        while not self._closed.is_set():
            wanted = {self._everyone, *self._mine}
            if wanted - channels:
                pubsub.subscribe(*(wanted - channels))
            if channels - wanted:
                pubsub.unsubscribe(*(channels - wanted))
            channels = wanted
            found = pubsub.get_message(timeout=LISTEN_S)
            now = time.monotonic()
            if found is not None:
                heard = now
                if found["type"] == "message":
                    self._in_loop(lambda data=found["data"]: self._hear(data))
                elif found["type"] == "subscribe" and look_again:
                    look_again = False
                    self._in_loop(self.look_again)
            elif now - heard > 2 * PING_EVERY_S:
                raise redis.ConnectionError("no sign of life")
            elif now - heard > PING_EVERY_S:
                pubsub.ping()

    def _hear(self, data: str) -> None:
        kind, node, *rest = json.loads(data)
        if node == self._node:
            return
        if kind == "wake":
            sessions, turns, turns_due, slots_due = rest
            self.publish_locally(
                Notifications(
                    sessions=set(map(SessionId, sessions)),
                    turns=set(map(TurnId, turns)),
                    turns_due=turns_due,
                    slots_due=slots_due,
                )
            )
        elif kind == "event":  # a node that ends has a word for its own listener; a newer version may have more
            topic, name, fields = rest
            if name in _EVENTS:
                self.publish_here(topic, _EVENTS[name].validate_python(fields))


class _Here(LocalEventBus):
    """A bus that publishes to the subscribers of another in this process."""

    def __init__(self, bus: RedisEventBus) -> None:
        super().__init__()
        self._bus = bus

    def publish(self, topic: str, event: LiveEvent) -> None:
        self._bus.publish_here(topic, event)
