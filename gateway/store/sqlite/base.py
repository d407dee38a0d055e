"""Base of every part of the SQLite store: transitions go to the writer thread, reads to the reader pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gateway.store.sqlite.turn_cache import TurnCache
from gateway.store.sqlite.tx import ReadTx, Tx
from gateway.store.sqlite.writer import ReaderPool, Writer

T = TypeVar("T")


class SqliteBase:
    """One open store."""

    def __init__(self, writer: Writer, readers: ReaderPool) -> None:
        """Take the running threads."""
        self.writer = writer
        self.readers = readers
        self.ended = TurnCache()

    async def write(self, transition: Callable[[Tx], T]) -> T:
        """Run a transition and return when it is committed. Raises its exception, or `StoreError`."""
        return await self.writer.submit(transition)

    async def read(self, view: Callable[[ReadTx], T]) -> T:
        """Run a read on one snapshot of the store. Raises its exception, or `StoreError`."""
        return await self.readers.submit(view)
