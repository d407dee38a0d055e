"""Notes in SQLite: small facts by room."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from gateway.store.codec import MICROSECOND
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.tx import Tx


class SqliteKeyValue(SqliteBase):
    """`ports.Notes`."""

    async def note(self, room: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a small fact; forget the room's expired ones."""
        await self.write(lambda tx: _note(tx, room, key, value, ttl))

    async def notes(self, room: str) -> Mapping[str, str]:
        """The facts of a room."""
        return dict(await self.read(lambda reader: reader.run("notes", room, reader.now)))


def _note(tx: Tx, room: str, key: str, value: str, ttl: timedelta | None) -> None:
    tx.run("forget_notes", room, tx.now)
    tx.run("note", room, key, value, None if ttl is None else tx.now + ttl // MICROSECOND)
