"""The SQLite store's threads: one that writes what is queued and commits it together, a few that read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from gateway.errors import StoreDamaged, StoreError
from gateway.observe import log
from gateway.ports import Clock, Live
from gateway.store.codec import to_us
from gateway.store.sqlite.failures import concerns_the_file, store_error
from gateway.store.sqlite.tx import Reader, Touched, Tx

T = TypeVar("T")

BATCH = 256
"""Transitions in one commit at most."""
REVS_AHEAD = 1_000
"""Revisions that are taken at once: they are unused after a crash, and one page less is written in each commit."""
IDLE_S = 1.0
"""Seconds without a transition after which a long WAL is moved into the file."""
LONG_WAL = 40
"""Commits, about 1 MB."""


@dataclass(slots=True)
class Job:
    """Something to be run by a thread, and the caller that waits for it."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    touched: Touched | None = None

    def settle(self) -> None:
        """Tell the caller, unless it went away. In its event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Worker(ABC):
    """A queue and the threads that serve it. `None` in the queue ends one thread."""

    def __init__(self, name: str, path: str, sql: Mapping[str, str], clock: Clock) -> None:
        """Take what every thread needs; subclasses start them."""
        self.path = path
        self._name = name
        self._sql = sql
        self._clock = clock
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._told = False

    def start(self, connections: Iterable[sqlite3.Connection]) -> None:
        """Start one thread for each connection; it closes the connection when it ends."""
        for number, db in enumerate(connections):
            # Daemon threads: a process that ends without `close` is a crash, which the store survives.
            thread = threading.Thread(target=self._serve, args=(db,), name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    async def submit(self, work: Callable[[Any], T]) -> T:
        """Have a thread run `work` and return what it returned. Raises what it raised, or `StoreError`.

        Cancelling the caller loses the result, never half of the work: it was done as a whole or not begun.
        """
        if self._closed:
            raise StoreError("The store is closed.", cure="Start the daemon again.")
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future())
        self._queue.put(job)
        return await job.future

    async def close(self) -> None:
        """Finish what is queued and end the threads. Twice is safe."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _failed(self, error: sqlite3.Error) -> StoreError:
        """Return what the caller is to be told. Damage is told in the log too, once: not every caller writes there."""
        told = store_error(error, self.path)
        if isinstance(told, StoreDamaged) and not self._told:
            self._told = True
            log("store").error("the store is damaged", error=str(told))
        return told

    @abstractmethod
    def _serve(self, db: sqlite3.Connection) -> None: ...


class ReaderPool(Worker):
    """Threads that read: each read sees one state of the store, none older than the last transition that returned."""

    def _serve(self, db: sqlite3.Connection) -> None:
        while (job := self._queue.get()) is not None:
            if job.future.cancelled():
                continue
            try:
                db.execute(self._sql["begin_reading"])
                job.result = job.work(Reader(db, self._sql, to_us(self._clock.now())))
            except sqlite3.Error as error:
                job.error = self._failed(error)
            except Exception as error:  # noqa: BLE001 - the caller gets it; the thread goes on
                job.error = error
            finally:
                if db.in_transaction:
                    db.execute(self._sql["rollback"])
            deliver([job], lambda job: job.settle())
        db.close()


class Writer(Worker):
    """The one thread that writes, commits and checkpoints. All that is queued is committed together, with no timer."""

    def __init__(self, path: str, sql: Mapping[str, str], clock: Clock, live: Live) -> None:
        """Take what it works with; `commits` and `transitions` count what was done."""
        super().__init__("store-writer", path, sql, clock)
        self._live = live
        self._rev = 0
        self._reserved = 0
        self._moved = 0
        self.commits = 0
        self.transitions = 0

    def _serve(self, db: sqlite3.Connection) -> None:
        (self._rev,) = db.execute(self._sql["read_rev"]).fetchone()
        self._reserved = self._rev
        wrote = False
        while True:
            try:
                job = self._queue.get(timeout=IDLE_S if wrote else None)
            except Empty:
                wrote = False
                self._checkpoint(db)
                continue
            if job is None:
                break
            batch, ended = self._with_the_rest(job)
            self._commit(db, batch)
            deliver(batch, self._announce)
            wrote = True
            if ended:
                break
        with suppress(sqlite3.Error):
            db.execute(self._sql["mark_clean"], (self._rev,))
            db.execute(self._sql["checkpoint"]).fetchall()
        db.close()

    def _with_the_rest(self, first: Job) -> tuple[list[Job], bool]:
        batch, ended = [first], False
        while len(batch) < BATCH:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is None:
                ended = True
                break
            batch.append(job)
        return batch, ended

    def _commit(self, db: sqlite3.Connection, batch: list[Job]) -> None:
        rev, reserved = self._rev, self._reserved
        try:
            db.execute(self._sql["begin"])
            for job in batch:
                # A caller that was cancelled before its turn came gets nothing written.
                if not job.future.cancelled():
                    rev = self._run(db, job, rev, alone=len(batch) == 1)
            if rev > reserved:
                reserved = rev + REVS_AHEAD
                db.execute(self._sql["save_rev"], (reserved,))
            db.execute(self._sql["commit"])
        except sqlite3.Error as error:
            # SQLite may have rolled back already, which ends the transaction.
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute(self._sql["rollback"])
            for job in batch:
                job.error, job.touched = self._failed(error), None
            return
        self._rev, self._reserved = rev, reserved
        self.commits += 1
        self.transitions += len(batch)

    def _run(self, db: sqlite3.Connection, job: Job, rev: int, *, alone: bool) -> int:
        """Run one transition and return the revision after it. What fails is undone without the rest of its batch.

        One that is `alone` needs no savepoint, which costs 0.03 ms: SQLite keeps a copy of every page for it.
        """
        tx = Tx(db, self._sql, to_us(self._clock.now()), rev)
        if not alone:
            db.execute(self._sql["savepoint"])
        try:
            job.result = job.work(tx)
        except Exception as error:
            if isinstance(error, sqlite3.Error):
                if concerns_the_file(error) or not db.in_transaction:
                    raise
                job.error = self._failed(error)
            else:
                job.error = error
            for name in ("rollback", "begin") if alone else ("rollback_to", "release"):
                db.execute(self._sql[name])
            return rev
        if not alone:
            db.execute(self._sql["release"])
        job.touched = tx.touched
        return tx.rev

    def _announce(self, job: Job) -> None:
        if job.touched is not None:
            job.touched.publish(self._live)
        job.settle()

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        if self.commits - self._moved >= LONG_WAL:
            # A checkpoint that fails is tried again: until then all is in the WAL.
            with suppress(sqlite3.Error):
                db.execute(self._sql["checkpoint_and_keep"]).fetchall()
                self._moved = self.commits


def deliver(jobs: list[Job], announce: Callable[[Job], None]) -> None:
    """Have `announce` called for each job in its own event loop. A loop that is gone waits for nothing any more."""
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_announce_all, mine, announce)


def _announce_all(jobs: list[Job], announce: Callable[[Job], None]) -> None:
    for job in jobs:
        announce(job)
