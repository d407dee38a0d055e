"""The audit in SQLite: a row written where a call starts, in its transition, and reads of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.audit import AuditHead, AuditRow, StartBasis, StartedCall
from gateway.domain.ids import NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.turns import TurnKind
from gateway.errors import StoreError
from gateway.policy.audit import beginning_of, sealed
from gateway.store.codec import from_us
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import Columns
from gateway.store.sqlite.tx import ReadTx, Tx


class SqliteAudit(SqliteBase):
    """`ports.Audit`."""

    async def audit_head(self) -> AuditHead:
        """Where the audit stands."""
        return await self.read(_head)

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Rows after a place, in order."""
        return await self.read(lambda reader: [_row_of(columns) for columns in reader.run("audit_rows", after, limit)])

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Calls that were started, each with its row."""
        return await self.read(lambda reader: [_call_of(found) for found in reader.run("started_calls", after, limit)])


def add_audit_row(tx: Tx, row: AuditRow) -> int:
    """Write a row as the next one, whatever its place and its hashes say. Return its place."""
    row = sealed(row, _head(tx))
    about = (row.session, row.turn, row.n, row.lane, row.tool, row.action_sha, row.because, row.wait, row.decided_by)
    tx.run("add_audit_row", row.seq, tx.now, *about, row.sandbox, row.node, row.prev_hash, row.hash)
    return row.seq


def _head(reader: ReadTx) -> AuditHead:
    ((since_us, seq, hash_),) = reader.run("audit_head")
    since = from_us(since_us)
    return AuditHead(since=since, seq=seq or 0, hash=beginning_of(since) if seq is None else hash_)


def _call_of(columns: Columns) -> StartedCall:
    ord_, turn, n, started_at, *row = columns
    found = None if row[0] is None else _row_of(tuple(row))
    return StartedCall(ord=ord_, turn=TurnId(turn), n=n, started_at=from_us(started_at), row=found)


def _row_of(columns: Columns) -> AuditRow:
    seq, at, session, turn, n, lane, tool, sha, because, wait, by, sandbox, node, prev_hash, hash_ = columns
    try:
        return AuditRow(
            seq=seq,
            at=from_us(at),
            session=SessionId(session),
            turn=TurnId(turn),
            n=n,
            lane=TurnKind(lane),
            tool=tool,
            action_sha=sha,
            because=StartBasis(because),
            wait=None if wait is None else WaitId(wait),
            decided_by=None if by is None else Principal(by),
            sandbox=sandbox,
            node=NodeId(node),
            prev_hash=prev_hash,
            hash=hash_,
        )
    except (ValueError, TypeError, OverflowError):
        raise StoreError(
            f"Row {seq} of the audit cannot be read: it is not what was written.",
            cure="deploy/RUNBOOK.md (Was anything run that nobody allowed?) says what to look at.",
        ) from None
