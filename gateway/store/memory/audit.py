"""The audit in memory: a list that only grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.steps import Step
from gateway.policy.audit import beginning_of, sealed
from gateway.store.codec import EPOCH
from gateway.store.memory.tables import Tables


class MemoryAudit(Tables):
    """`ports.Audit`."""

    async def audit_head(self) -> AuditHead:
        """Where the audit stands."""
        return self._head()

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Rows after a place, in order."""
        return self.audit[max(after, 0) : max(after, 0) + limit]

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Calls that were started, each with its row."""
        last = {(row.turn, row.n): row for row in self.audit}
        started = sorted(
            (row.ord, step.started_at, step)
            for rows in self.rows.values()
            for row in rows.values()
            if isinstance(step := row.item, Step) and step.started_at is not None and row.ord > after
        )
        return [
            StartedCall(ord=ord_, turn=step.turn, n=step.n, started_at=at, row=last.get((step.turn, step.n)))
            for ord_, at, step in islice(started, limit)
        ]

    def add_audit_row(self, row: AuditRow) -> None:
        """Write a row as the next one, whatever its place and its hashes say."""
        self.audit.append(sealed(row, self._head()))

    def _head(self) -> AuditHead:
        if not self.audit:
            return AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))
        return AuditHead(since=EPOCH, seq=self.audit[-1].seq, hash=self.audit[-1].hash)
