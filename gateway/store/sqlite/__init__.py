"""The store in one SQLite file: no server, one daemon. Only this package knows `sqlite3`."""

from __future__ import annotations

from gateway.store.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
