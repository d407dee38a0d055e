"""A SQLite store in a separate folder, for tests of its behaviour beyond the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from gateway.domain.events import LiveEvent
from gateway.domain.routes import Accepted, WhileRunning
from gateway.domain.turns import TurnKind
from gateway.store.sqlite import SqliteStore, open_sqlite
from tests.support.clock import FakeClock
from tests.support.makers import inbound, route


@asynccontextmanager
async def opened(path: str, clock: FakeClock | None = None) -> AsyncGenerator[SqliteStore]:
    store = open_sqlite(path, clock or FakeClock())
    try:
        yield store
    finally:
        await store.close()


async def say(store: SqliteStore, key: str | None = None, text: str = "hello") -> Accepted:
    message = inbound(text, key=key)
    return await store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)


async def first(events: AsyncIterator[LiveEvent]) -> LiveEvent:
    return await anext(events)
