"""The store in one SQLite file: no server, one daemon. Only this package imports `sqlite3`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from gateway.errors import StoreError
from gateway.ports import Clock
from gateway.store.event_bus import LocalEventBus
from gateway.store.sqlite.children import SqliteChildren
from gateway.store.sqlite.damage import refuse_damaged
from gateway.store.sqlite.drops import SqliteDrops
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.intake import SqliteIntake
from gateway.store.sqlite.opening import FileLock, check_library, make_file, open_reader, open_writer
from gateway.store.sqlite.outbox import SqliteOutbox
from gateway.store.sqlite.queries import SqliteQueries
from gateway.store.sqlite.records import SqliteRecords
from gateway.store.sqlite.statements import load_migrations, load_statements
from gateway.store.sqlite.sweeps import SqliteSweeps
from gateway.store.sqlite.writer import ReaderPool, Writer

__all__ = ["SqliteStore", "open_sqlite"]

READERS = 2


class SqliteStore(
    SqliteIntake,
    SqliteDrops,
    SqliteEngine,
    SqliteChildren,
    SqliteSweeps,
    SqliteOutbox,
    SqliteRecords,
    SqliteQueries,
):
    """`ports.Store` in one SQLite file. Opened by `open_sqlite`."""

    def __init__(self, writer: Writer, readers: ReaderPool, live: LocalEventBus, lock: FileLock) -> None:
        """Take the running threads and the lock; `close` releases them."""
        super().__init__(writer, readers)
        self._live = live
        self._lock = lock

    @property
    def live(self) -> LocalEventBus:
        """Return the store's event bus."""
        return self._live

    async def probe(self) -> None:
        """Write something durably."""
        await self.write(lambda tx: tx.run("probe"))

    async def close(self) -> None:
        """Finish queued work and close. Idempotent."""
        # Readers first: the last connection to close checkpoints the WAL, which is the writer's work.
        await self.readers.close()
        await self.writer.close()
        self._lock.release()


def open_sqlite(path: str, clock: Clock) -> SqliteStore:
    """Open the store in the file `path`; create it or migrate its schema as needed.

    Blocks for milliseconds, after a crash for as long as a check of the file takes. Raises `StoreInUse` while another
    daemon has it, `StoreTooNew`, `StoreDamaged`, `StoreFull` or `StoreError` with a cure; then nothing was written.
    """
    check_library()
    if not Path(path).is_absolute():
        raise StoreError(f"The store's path {path!r} is not absolute.", cure="Use `sqlite:///` with an absolute path.")
    path = os.path.realpath(path)  # unlike `Path.resolve`, it does not raise for circular links: opening does
    sql, live = load_statements(), LocalEventBus()
    with ExitStack() as opened:
        make_file(path)
        lock = FileLock(path)
        opened.callback(lock.release)
        refuse_damaged(path)
        connection = open_writer(path, sql, load_migrations())
        opened.callback(connection.close)
        connections = [open_reader(path, sql) for _ in range(READERS)]
        opened.pop_all()
    writer, readers = Writer(path, sql, clock, live), ReaderPool("store-reader", path, sql, clock)
    writer.start([connection])
    readers.start(connections)
    return SqliteStore(writer, readers, live, lock)
