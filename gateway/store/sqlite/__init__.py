"""The store in one SQLite file: no server, one daemon. Only this package imports `sqlite3`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias, TypeVar

from gateway.domain.ids import NodeId, SlotId, TurnId
from gateway.domain.messages import Received
from gateway.domain.slots import NewSlot, Slot
from gateway.domain.steps import Answer
from gateway.domain.turns import Lease, TurnKind, TurnState, company
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait
from gateway.errors import RowDamaged, StoreError
from gateway.ports import Clock
from gateway.store.decode import UNREADABLE
from gateway.store.event_bus import LocalEventBus
from gateway.store.kernel import journal, turns
from gateway.store.kernel.part import Part
from gateway.store.sqlite.damage import refuse_damaged
from gateway.store.sqlite.opening import FileLock, check_library, last_rev, make_file, open_reader, open_writer
from gateway.store.sqlite.queries import SqliteQueries, history_of, places_of_ended
from gateway.store.sqlite.source import SqliteSource
from gateway.store.sqlite.statements import SchemaMigration, load_migrations, load_statements
from gateway.store.sqlite.tx import Tx
from gateway.store.sqlite.writer import ReaderPool, Writer

__all__ = ["SqliteStore", "open_sqlite"]

T = TypeVar("T")
Connect: TypeAlias = Callable[[str, Mapping[str, str], tuple[SchemaMigration, ...]], sqlite3.Connection]

READERS = 2
"""Threads that read."""
UNREAD_AT_MOST = 3
"""Ended turns that a claim reads at most for its history: more would block all writers. Beyond that the turn's worker
reads them itself."""


class SqliteStore(SqliteQueries):
    """`ports.Store` in one SQLite file. Opened by `open_sqlite`."""

    def __init__(
        self, clock: Clock, writer: Writer, readers: ReaderPool, events: LocalEventBus, lock: FileLock
    ) -> None:
        """Take the running threads and the lock; `close` releases them."""
        super().__init__(clock, readers)
        self.writer = writer
        self._events = events
        self._lock = lock
        self._source = SqliteSource()
        writer.on_rollback(self._source.forget)

    @property
    def event_bus(self) -> LocalEventBus:
        """Return the store's event bus."""
        return self._events

    async def probe(self) -> None:
        """Write something durably."""
        await self.writer.submit(lambda tx: tx.run("probe"))

    async def close(self) -> None:
        """Finish queued work and close. Idempotent."""
        # Readers first: the last connection to close checkpoints the WAL, which is the writer's work.
        await self.readers.close()
        await self.writer.close()
        self._lock.release()

    # --- transitions ------------------------------------------------------------------------

    async def run(self, transition: Callable[[Part], T]) -> T:
        """Run a transition and return when it is committed."""
        return await self.writer.submit(lambda tx: self._change(tx, transition))

    async def claim_turns(
        self, take: Callable[[Part, TurnId], Claimed | None], limit: int, wait_s: float, home: str = ""
    ) -> list[Claimed]:
        """Claim ready turns; when there is none, wait for one."""
        return await self.writer.claim_turns(lambda tx: self._claim(tx, take, limit, home), limit, wait_s)

    async def claim_due(self, take: Callable[[Part], list[Slot]], limit: int, wait_s: float) -> list[Slot]:
        """Claim due slots; when there is none, wait for some."""
        return await self.writer.claim_slots(lambda tx: self._change(tx, take), limit, wait_s)

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        """Lease turns that may run. The ended turns read for their histories are kept once they are committed."""
        read: dict[int, TurnView] = {}
        claimed = await self.lease_turns(
            node, home, limit, wait_s, lambda part, lease: self._claimed(part, lease, history, read)
        )
        self.ended.keep(read)
        return claimed

    async def finish_turn(
        self,
        lease: Lease,
        state: TurnState,
        *,
        answer: Answer | None,
        given: Sequence[Received],
        slots: Sequence[NewSlot],
        timers: Sequence[NewWait],
    ) -> bool:
        """End the turn with its last answer. Histories read it from the cache of ended turns."""

        def end(part: Part) -> tuple[bool, dict[int, TurnView]]:
            done = journal.finish_turn(part, lease, state, answer, given, slots, timers)
            if not done or not part.is_whole(lease.turn):
                return done, {}
            return True, {part.turns[lease.turn].ord: turns.view_of(part, lease.turn)}

        done, ended = await self.run(end)
        self.ended.keep(ended)
        return done

    def _claimed(self, part: Part, lease: Lease, history: int, read: dict[int, TurnView]) -> Claimed:
        """Return a leased turn with its rows and history, read with the claim: a read of each costs 0.3 ms of CPU."""
        try:
            view = turns.view_of(part, lease.turn)
            asked = history and view.turn.kind is TurnKind.MODEL
            return Claimed(lease=lease, view=view, history=self._history(view, history, read) if asked else None)
        except (*UNREADABLE, StoreError, RowDamaged):  # the next read raises it
            return Claimed(lease=lease, view=None)

    def _history(self, view: TurnView, limit: int, read: dict[int, TurnView]) -> Sequence[TurnView] | None:
        tx = self._source.tx
        places = places_of_ended(tx, view.session.id, view.turn.epoch, limit)
        if self.ended.unknown(places) > UNREAD_AT_MOST:
            return None
        return history_of(tx, view.session, places, self.ended, read)

    def _change(self, tx: Tx, transition: Callable[[Part], T]) -> T:
        """Run a transition in the writer's thread and write what it changed."""
        source = self._source
        source.tx = tx
        part = Part(source, tx.moment, tx.rev, tx.touched)
        result = transition(part)
        source.store(part)
        tx.rev = part.rev
        return result

    def _claim(self, tx: Tx, take: Callable[[Part, TurnId], Claimed | None], limit: int, home: str) -> list[Claimed]:
        claimed, most = list[Claimed](), limit
        self._source.tx = tx
        while len(claimed) < most and (ready := self._source.ready_turns(tx.moment, 1, home)):
            taken = self._change(tx, lambda part, turn=ready[0]: take(part, turn))
            assert taken is not None, "the index and the kernel agree"
            claimed.append(taken)
            most = min(most, company(taken.begun))
        return claimed

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """Send the newer version once more. A version stored after this check is sent after the edit in question."""
        newer = await self.read(lambda reader: reader.one("slot_newer", slot, version))
        return newer is not None and await super().slot_overwritten(slot, version)


def open_sqlite(path: str, clock: Clock, connect: Connect = open_writer) -> SqliteStore:
    """Open the store in the file `path`; create it or migrate its schema as needed. `connect` opens for the writer.

    Blocks for milliseconds, after a crash for as long as a check of the file takes. Raises `StoreInUse` while another
    daemon has it, `StoreTooNew`, `StoreDamaged`, `StoreFull` or `StoreError` with a cure; then nothing was written.
    """
    check_library()
    if not Path(path).is_absolute():
        raise StoreError(f"The store's path {path!r} is not absolute.", cure="Use `sqlite:///` with an absolute path.")
    path = os.path.realpath(path)  # unlike `Path.resolve`, it does not raise for circular links: opening does
    sql, events = load_statements(), LocalEventBus()
    with ExitStack() as opened:
        make_file(path)
        lock = FileLock(path)
        opened.callback(lock.release)
        refuse_damaged(path)
        connection = connect(path, sql, load_migrations())
        opened.callback(connection.close)
        rev = last_rev(connection, path, sql)
        connections = [open_reader(path, sql) for _ in range(READERS)]
        opened.pop_all()
    writer, readers = Writer(path, sql, clock, events, rev), ReaderPool("store-reader", path, sql, clock)
    store = SqliteStore(clock, writer, readers, events, lock)
    writer.start([connection])
    readers.start(connections)
    return store
