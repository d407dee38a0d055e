"""What every part of the SQLite store stands on: transitions go to the writer, reads to the readers."""

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
        """Take the threads, which run already."""
        self.writer = writer
        self.readers = readers
        self.ended = TurnCache()

    async def write(self, transition: Callable[[Tx], T]) -> T:
        """Run a transition and return when it is committed. Raises what it raises, or `StoreError`."""
        return await self.writer.submit(transition)

    async def read(self, view: Callable[[ReadTx], T]) -> T:
        """Run a read on one state of the store. Raises what it raises, or `StoreError`."""
        return await self.readers.submit(view)
