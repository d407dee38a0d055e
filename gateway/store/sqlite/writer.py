"""Threads of the SQLite store: one writer with group commit, and a pool of readers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from gateway.domain.events import SLOTS, TURNS
from gateway.errors import StoreDamaged, StoreError
from gateway.ports import Clock
from gateway.store.codec import to_us
from gateway.store.event_bus import LocalEventBus
from gateway.store.sqlite.failures import FAILURES, concerns_the_file, gone, store_error
from gateway.store.sqlite.opening import keep_from_moving
from gateway.store.sqlite.tx import ReadTx, Tx
from gateway.store.write_queue import WaitingClaims, WriteEntry, deliver, goes_on_waiting
from gateway.system.logging_setup import log

T = TypeVar("T")

BATCH = 256
"""Maximum transitions in one commit."""
REVS_AHEAD = 1_000
"""Revisions reserved at once, which saves one page per commit. After a crash the rest stays unused."""
IDLE_S = 1.0
"""Seconds without a transition after which a long WAL is checkpointed."""
LONG_WAL = 40
"""Commits since the last checkpoint that make the WAL long, about 1 MB."""
Files: TypeAlias = tuple[tuple[int, int] | None, ...]
"""Device and inode of the store's file, its log and the log's index, as found by name."""
Written: TypeAlias = tuple[int, int] | None
"""Length of the log, and time of its last write."""


class StoreThreads(ABC):
    """Queue and its threads. `None` in the queue ends one thread."""

    def __init__(self, name: str, path: str, sql: Mapping[str, str], clock: Clock) -> None:
        """Take the name, path, statements and clock; `start` starts the threads."""
        self.path = path
        self._name = name
        self._sql = sql
        self._clock = clock
        self._queue: SimpleQueue[WriteEntry | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._logged = False

    def start(self, connections: Iterable[sqlite3.Connection]) -> None:
        """Start one thread for each connection; the thread closes it at its end."""
        for number, db in enumerate(connections):
            # Daemon threads: ending the process without `close` is a crash, which the store survives.
            thread = threading.Thread(target=self._serve, args=(db,), name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    async def submit(self, work: Callable[[Any], T]) -> T:
        """Run `work` in a thread and return its result. Raises its exception, or `StoreError`.

        Cancelling the caller loses the result, never half of the work: it is done as a whole or not begun.
        """
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        entry = WriteEntry(work, loop, loop.create_future())
        self._queue.put(entry)
        return await entry.future

    async def close(self) -> None:
        """Finish queued work and end the threads. Idempotent."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _failed(self, error: sqlite3.Error | MemoryError) -> StoreError:
        """Return the error for the caller. Damage is logged too, once: not every caller logs."""
        failure = store_error(error, self.path)
        if isinstance(failure, StoreDamaged) and not self._logged:
            self._logged = True
            log("store").error("the store is damaged", error=str(failure))
        return failure

    @abstractmethod
    def _serve(self, db: sqlite3.Connection) -> None: ...


class ReaderPool(StoreThreads):
    """Reader threads: each read sees one snapshot, none older than the last transition that returned."""

    def _serve(self, db: sqlite3.Connection) -> None:
        while (entry := self._queue.get()) is not None:
            if entry.future.cancelled():
                continue
            try:
                db.execute(self._sql["begin_reading"])
                entry.result = entry.work(ReadTx(db, self._sql, to_us(self._clock.now())))
            except FAILURES as error:
                entry.error = self._failed(error)
            except Exception as error:  # noqa: BLE001 - the caller gets it; the thread continues
                entry.error = error
            finally:
                with suppress(*FAILURES):
                    if db.in_transaction:
                        db.execute(self._sql["rollback"])
            deliver([entry], WriteEntry.settle)
        db.close()


class Writer(StoreThreads):
    """The one thread that writes, commits and checkpoints. All queued entries share one commit, without a timer."""

    def __init__(self, path: str, sql: Mapping[str, str], clock: Clock, events: LocalEventBus, rev: int) -> None:
        """Take the path, statements, clock, event bus and last revision; `commits` counts commits."""
        super().__init__("store-writer", path, sql, clock)
        self._events = events
        self._names = path, f"{path}-wal", f"{path}-shm"
        self._turns, self._slots = WaitingClaims(), WaitingClaims()
        events.call(TURNS, self._turns.look_again)
        events.call(SLOTS, self._slots.look_again)
        self._rev = self._reserved = rev
        self._files: Files = ()
        self._log: int | None = None
        self._left: Written = None
        self._away = False
        self._moved = 0
        self._rolled_back: Callable[[], None] = _nothing
        self.commits = 0

    def on_rollback(self, forget: Callable[[], None]) -> None:
        """Call `forget` in the writer's thread when a transition or a whole batch is rolled back."""
        self._rolled_back = forget

    async def claim_turns(self, work: Callable[[Tx], list[T]], most: int, wait_s: float) -> list[T]:
        """Run a claim of turns as `submit` does. A claim that finds none waits and runs in the commit that brings some.

        The wait ends after `wait_s` seconds, or when `TURNS` is published; then the result is empty.
        """
        return await self._claim(self._turns, work, most, wait_s)

    async def claim_slots(self, work: Callable[[Tx], list[T]], most: int, wait_s: float) -> list[T]:
        """Run a claim of slots likewise; `SLOTS` ends its wait."""
        return await self._claim(self._slots, work, most, wait_s)

    async def _claim(self, claims: WaitingClaims, work: Callable[[Tx], list[T]], most: int, wait_s: float) -> list[T]:
        if wait_s <= 0:
            return await self.submit(work)
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        entry = WriteEntry(work, loop, loop.create_future(), result=[], claims=claims, most=most)
        return await claims.claim(entry, self._queue.put, wait_s)

    def _serve(self, db: sqlite3.Connection) -> None:
        self._log = _opened(self._names[1])
        self._files, self._left = self._found(), self._written()
        wrote = False
        while True:
            try:
                entry = self._queue.get(timeout=IDLE_S if wrote else None)
            except Empty:
                wrote = False
                self._checkpoint(db)
                continue
            if entry is None:
                break
            batch, ended = self._with_the_rest(entry)
            self._commit(db, batch)
            deliver([entry for entry in batch if not goes_on_waiting(entry)], self._announce)
            wrote = True
            if ended:
                break
        self._turns.look_again()
        self._slots.look_again()
        self._leave(db)
        db.close()
        if self._log is not None:
            os.close(self._log)

    def _leave(self, db: sqlite3.Connection) -> None:
        """Checkpoint all at the end. Beside a replaced file the log is emptied too: it would be applied to that."""
        file, log, _ = self._found()
        if self._are_ours() or (file != self._files[0] and log == self._files[1]):
            with suppress(sqlite3.Error):
                db.execute(self._sql["mark_clean"], (self._rev,))
                db.execute(self._sql["checkpoint"]).fetchall()
        elif (file, log) == self._files[:2] and self._written() != self._left:
            with suppress(OSError):
                keep_from_moving(self.path)

    def _with_the_rest(self, first: WriteEntry) -> tuple[list[WriteEntry], bool]:
        batch, ended = [first], False
        while len(batch) < BATCH:
            try:
                entry = self._queue.get_nowait()
            except Empty:
                break
            if entry is None:
                ended = True
                break
            batch.append(entry)
        return batch, ended

    def _found(self) -> Files:
        return tuple([_file_at(name) for name in self._names])

    def _written(self) -> Written:
        """Return the written length of the open log, even if it was moved in the middle of a commit."""
        if self._log is None:
            return None
        found = os.fstat(self._log)
        return found.st_size, found.st_mtime_ns

    def _are_ours(self) -> bool:
        """Return whether the files are the opened ones, with no write to the log while they were away.

        Otherwise SQLite would write to unlinked files, or to a log that does not match its index.
        """
        if self._found() != self._files:
            self._away = True
            return False
        if self._away and self._written() != self._left:
            # The index describes the former log: the next start would take the log for damaged.
            with suppress(OSError):
                os.unlink(self._names[2])
            return False
        self._away = False
        return True

    def _commit(self, db: sqlite3.Connection, batch: list[WriteEntry]) -> None:
        if not self._are_ours():
            for entry in batch:
                entry.error = gone(self.path)
            return
        rev, reserved = self._rev, self._reserved
        try:
            db.execute(self._sql["begin"])
            for entry in batch:
                rev = self._run(db, entry, rev, first=entry is batch[0])
            rev = self._hand_out(db, batch, rev)
            if rev > reserved:
                reserved = rev + REVS_AHEAD
                db.execute(self._sql["save_rev"], (reserved,))
            db.execute(self._sql["commit"])
        except FAILURES as error:
            # SQLite may have rolled back already, which ends the transaction.
            with suppress(*FAILURES):
                if db.in_transaction:
                    db.execute(self._sql["rollback"])
            self._rolled_back()
            for entry in batch:
                entry.error, entry.touched = self._failed(error), None
            self._left = self._written()
            return
        self._rev, self._reserved, self._left = rev, reserved, self._written()
        self.commits += 1

    def _hand_out(self, db: sqlite3.Connection, batch: list[WriteEntry], rev: int) -> int:
        """Run waiting claims on the work of this batch, in the same commit; return the revision after that."""
        touched = [entry.touched for entry in batch if entry.touched is not None]
        if turns := [one for one in touched if one.turns_due]:
            rev, all_taken = self._hand_out_to(db, self._turns, batch, rev)
            for one in turns:
                one.turns_due = not all_taken
        if slots := [one for one in touched if one.slots_due]:
            rev, all_taken = self._hand_out_to(db, self._slots, batch, rev)
            for one in slots:
                one.slots_due = not all_taken
        return rev

    def _hand_out_to(
        self, db: sqlite3.Connection, claims: WaitingClaims, batch: list[WriteEntry], rev: int
    ) -> tuple[int, bool]:
        """Return the revision after it, and whether no work is left for other claims."""
        while (entry := claims.next()) is not None:
            batch.append(entry)
            rev = self._run(db, entry, rev, first=False)
            if entry.error is None and entry.touched is not None and len(entry.result) < entry.most:
                return rev, True
        return rev, False

    def _run(self, db: sqlite3.Connection, entry: WriteEntry, rev: int, *, first: bool) -> int:
        """Run one transition and return the revision after it. A failed one is rolled back alone, not its batch.

        The `first` one needs no savepoint, which costs 0.03 ms: SQLite copies every page for it. An entry whose caller
        was cancelled before is skipped.
        """
        if entry.future.cancelled():
            return rev
        tx = Tx(db, self._sql, to_us(self._clock.now()), rev)
        if not first:
            db.execute(self._sql["savepoint"])
        try:
            entry.result = entry.work(tx)
        except Exception as error:
            if isinstance(error, FAILURES):
                if concerns_the_file(error) or not db.in_transaction:
                    raise
                entry.error = self._failed(error)
            else:
                entry.error = error
            self._rolled_back()
            for name in ("rollback", "begin") if first else ("rollback_to", "release"):
                db.execute(self._sql[name])
            return rev
        if not first:
            db.execute(self._sql["release"])
        entry.touched = tx.touched
        return tx.rev

    def _announce(self, entry: WriteEntry) -> None:
        if entry.touched is not None:
            entry.touched.publish(self._events)
        entry.settle()

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        if self.commits - self._moved >= LONG_WAL and self._are_ours():
            # A failed checkpoint is retried: until then all is in the WAL.
            with suppress(*FAILURES):
                db.execute(self._sql["checkpoint_and_keep"]).fetchall()
                self._moved, self._left = self.commits, self._written()


def _nothing() -> None:
    """Forget nothing."""


def _opened(name: str) -> int | None:
    try:
        return os.open(name, os.O_RDONLY)
    except OSError:
        return None


def _file_at(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _closed() -> StoreError:
    return StoreError("The store is closed.", cure="Start the daemon again.")
