"""Context of a SQLite transition: named statements, time, revisions, wake-ups."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gateway.store.codec import from_us, storable
from gateway.store.notifications import Notifications

Values = tuple[Any, ...]


class ReadTx:
    """Named statements on one connection."""

    def __init__(self, db: sqlite3.Connection, sql: Mapping[str, str], now: int) -> None:
        """Take the connection, the statements and the time in microseconds."""
        self.now = now
        self.db = db
        self._sql = sql

    def run(self, name: str, *values: Any) -> list[Values]:
        """Run a statement and return its rows."""
        try:
            return self.db.execute(self._sql[name], values).fetchall()
        except UnicodeEncodeError:
            clean = tuple(storable(value) if isinstance(value, str) else value for value in values)
            return self.db.execute(self._sql[name], clean).fetchall()

    def one(self, name: str, *values: Any) -> Values | None:
        """Run a statement that returns one row at most."""
        rows = self.run(name, *values)
        return rows[0] if rows else None


class Tx(ReadTx):
    """One transition, run by one function within one savepoint."""

    def __init__(self, db: sqlite3.Connection, sql: Mapping[str, str], now: int, rev: int) -> None:
        """Start at the store's last revision."""
        super().__init__(db, sql, now)
        self.rev = rev
        self.touched = Notifications()

    @property
    def moment(self) -> datetime:
        """Return the time of the transition."""
        return from_us(self.now)
