"""Stores that fail in the middle of a transition when told to: at a load, at a write, by a conflict, at the commit.

No part of the path of a message.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from gateway.domain.ids import mint
from gateway.errors import StoreError
from gateway.store.kernel.part import Missing, Part, Source
from gateway.store.sqlite.opening import open_writer
from gateway.store.sqlite.statements import SchemaMigration
from tests.support.lazy_store import IDS, LazyRows, LazyStore

T = TypeVar("T")


@dataclass(slots=True)
class Faults:
    """When the next transition fails. One fault at a time; a transition that ends before it disarms it."""

    at: int = 0
    """Number of the load or statement that fails, from 1; 0: none."""
    whole: bool = False
    """For SQLite: whether the file is at fault, and so the whole batch. For memory: a conflict before the failure."""
    struck: bool = False
    """True if the last fault struck."""

    def arm(self, at: int, *, whole: bool) -> None:
        """Let the next transition fail."""
        self.at, self.whole, self.struck = at, whole, False

    def disarm(self) -> None:
        """Let transitions succeed."""
        self.at = 0

    def strikes(self) -> bool:
        """Count one load or statement; return whether it fails."""
        if self.at == 0:
            return False
        self.at -= 1
        self.struck = self.at == 0
        return self.struck


class FaultyMemoryStore(LazyStore):
    """The kernel on memory: each load, and at last the write, may fail; a conflict makes a transition run once more."""

    faults = Faults()

    def change(self, transition: Callable[[Part], T]) -> T:
        """Run a transition until it misses no row. Raises `StoreError` for a fault; then nothing is stored."""
        rows, minted = LazyRows(self), [mint("") for _ in range(IDS)]
        conflicts = self.faults.at > 0 and self.faults.whole
        while True:
            part = Part(cast(Source, rows), self.clock.now(), self.rev, minted=iter(minted))
            self.runs += 1
            try:
                result = transition(part)
            except Missing as missing:
                self._may_fail()
                rows.load(missing)
                continue
            if conflicts:  # another node wrote the family meanwhile: all is loaded anew
                rows, conflicts = LazyRows(self), False
                continue
            self._may_fail()
            self.faults.disarm()
            self.commit(part)
            return result

    def _may_fail(self) -> None:
        if self.faults.strikes():
            raise StoreError("A load or a write failed.", cure="Try again: this is a test.")


class FaultyConnection:
    """The writer's connection to SQLite: any statement of a transaction may fail, its begin and its commit too."""

    def __init__(self, db: sqlite3.Connection, faults: Faults) -> None:
        """Take the connection."""
        self._db = db
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        """Return what the connection has."""
        return getattr(self._db, name)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement, or raise the error of a disk, or one that has no code."""
        begins = statement.startswith("BEGIN")
        if (begins or self._db.in_transaction) and self._faults.strikes():
            error = sqlite3.OperationalError("a statement failed")
            if self._faults.whole:
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        if statement.rstrip("; \n").upper().endswith("COMMIT"):
            self._faults.disarm()
        return self._db.execute(statement, values)


def faulty_connection(
    faults: Faults,
) -> Callable[[str, Mapping[str, str], tuple[SchemaMigration, ...]], sqlite3.Connection]:
    """Return what opens the writer's connection with these faults."""

    def connect(path: str, sql: Mapping[str, str], migrations: tuple[SchemaMigration, ...]) -> sqlite3.Connection:
        return cast(sqlite3.Connection, FaultyConnection(open_writer(path, sql, migrations), faults))

    return connect
