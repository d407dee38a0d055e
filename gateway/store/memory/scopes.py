"""What people allowed for longer than one call, in memory: a read of the approvals that were used."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.domain.ids import SessionId
from gateway.domain.sessions import Session
from gateway.domain.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.store.memory.tables import Tables


class MemoryScopes(Tables):
    """`ports.Steps.allowed_scopes`."""

    async def allowed_scopes(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Read which scopes of which tools were allowed in this session's history, or above it."""
        used = [request for one in self._up(session) for request in self._used(one)]
        return frozenset((request.action.tool, request.scope) for request in used if request.scope)

    def _up(self, id_: SessionId | None) -> Iterator[Session]:
        """The session and those above it."""
        while id_ is not None and id_ in self.all_sessions:
            session = self.all_sessions[id_].session
            yield session
            id_ = session.lineage.parent if session.lineage else None

    def _used(self, session: Session) -> Iterator[ApprovalRequest]:
        """The approvals of its present epoch whose call was started."""
        for row in self.rows.get(session.id, {}).values():
            wait = row.item
            if not isinstance(wait, Wait) or (wait.kind, wait.state) != (WaitKind.APPROVAL, WaitState.CONSUMED):
                continue
            if wait.approval is not None and self.turns[wait.turn].turn.epoch == session.epoch:
                yield wait.approval
