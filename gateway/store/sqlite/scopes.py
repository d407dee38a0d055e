"""What people allowed for longer than one call, in SQLite: a read of the approvals that were used."""

from __future__ import annotations

from gateway.domain.ids import SessionId
from gateway.store.sqlite.base import SqliteBase


class SqliteScopes(SqliteBase):
    """`ports.Steps.allowed_scopes`."""

    async def allowed_scopes(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Read which scopes of which tools were allowed in this session's history, or above it."""
        found = await self.read(lambda reader: reader.run("allowed_scopes", session))
        return frozenset((tool, scope) for tool, scope in found)
