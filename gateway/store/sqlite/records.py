"""Records beside turns in SQLite: usage and the audit."""

from __future__ import annotations

from datetime import date

from gateway.domain.audit import AuditHead, AuditRow, StartBasis, StartedCall
from gateway.domain.ids import GrantId, NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.steps import Usage
from gateway.domain.turns import TurnKind
from gateway.domain.views import Spent
from gateway.errors import StoreError
from gateway.policy.audit import beginning_of
from gateway.store.codec import from_us
from gateway.store.sqlite.decode import Columns
from gateway.store.sqlite.tx import ReadTx, Tx, Values


def add_spent(tx: Tx, spent: Spent) -> None:
    """Add to this person's usage of this model on this day."""
    usage = spent.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    tx.run("add_spent", spent.day.isoformat(), spent.principal, spent.model, spent.answers, *tokens, usage.cost_micros)


def spent_of(columns: Values) -> Spent:
    """Return the usage of a day, person and model."""
    day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros = columns
    usage = Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens, cost_micros=cost_micros
    )
    return Spent(day=date.fromisoformat(day), principal=Principal(principal), model=model, answers=answers, usage=usage)


# --- audit --------------------------------------------------------------------------------


def add_audit_row(tx: Tx, row: AuditRow) -> None:
    """Append a sealed row."""
    about = (row.session, row.turn, row.n, row.lane, row.tool, row.action_sha, row.because, row.wait)
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
    ord_, turn, n, started_at, *row = columns
    found = None if row[0] is None else audit_row_of(tuple(row))
    return StartedCall(ord=ord_, turn=TurnId(turn), n=n, started_at=from_us(started_at), row=found)


def audit_row_of(columns: Columns) -> AuditRow:
    """Return a row of the audit. Raises `StoreError` when it cannot be read."""
    seq, at, session, turn, n, lane, tool, sha, because, wait, grant, rule, by, *rest = columns
    sandbox, node, prev_hash, hash_ = rest
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
            grant=None if grant is None else GrantId(grant),
            rule=rule,
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
