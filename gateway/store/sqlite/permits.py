"""What people allowed for longer than one call, in SQLite: a read of the approvals that were used."""

from __future__ import annotations

from gateway.model.ids import SessionId
from gateway.store.sqlite.base import SqliteBase


class SqlitePermits(SqliteBase):
    """`ports.Steps.permits`."""

    async def permits(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Read which scopes of which tools were allowed in this session's history, or above it."""
        found = await self.read(lambda reader: reader.run("permits", session))
        return frozenset((tool, scope) for tool, scope in found)
