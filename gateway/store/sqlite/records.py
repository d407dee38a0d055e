"""Records beside turns in SQLite: usage and the audit."""

from __future__ import annotations

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.ids import TurnId
from gateway.domain.views import Spent
from gateway.policy.audit import beginning_of
from gateway.store.codec import from_us
from gateway.store.decode import Columns, audit_row_of
from gateway.store.sqlite.tx import ReadTx, Tx


def add_spent(tx: Tx, spent: Spent) -> None:
    """Add to this person's usage of this model on this day."""
    usage = spent.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    tx.run("add_spent", spent.day.isoformat(), spent.principal, spent.model, spent.answers, *tokens, usage.cost_micros)


# --- audit --------------------------------------------------------------------------------


def add_audit_row(tx: Tx, row: AuditRow) -> None:
    """Append a sealed row."""
    about = (row.session, row.turn, row.n, row.lane, row.tool, row.action_sha, row.basis, row.wait)
    tx.run(
        "add_audit_row",
        row.seq,
        tx.now,
        *about,
        row.grant,
        row.rule,
        row.decided_by,
        row.sandbox,
        row.node,
        row.prev_hash,
        row.hash,
    )


def audit_head(reader: ReadTx) -> AuditHead:
    """Return the end of the audit."""
    ((since_us, seq, hash_),) = reader.run("audit_head")
    since = from_us(since_us)
    return AuditHead(since=since, seq=seq or 0, hash=beginning_of(since) if seq is None else hash_)


def call_of(columns: Columns) -> StartedCall:
    """Return a started call with its row."""
    ord_, turn, n, started_at, seq, *row = columns
    found = None if row[0] is None else audit_row_of(tuple(row))
    return StartedCall(ord=ord_, turn=TurnId(turn), n=n, started_at=from_us(started_at), row=found, seq=seq)
