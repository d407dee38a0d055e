"""Records beside turns in SQLite: accounts, nodes, key-value store, usage, allowed scopes and audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

from gateway.domain.audit import AuditHead, AuditRow, StartBasis, StartedCall
from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.steps import Usage
from gateway.domain.turns import TurnKind
from gateway.domain.views import LastContact, Spent
from gateway.errors import StoreError
from gateway.policy.audit import beginning_of, sealed
from gateway.store.answer_rules import NOTHING
from gateway.store.codec import MICROSECOND, from_us, load_conversation
from gateway.store.constants import FAILURES_ALLOWED, FAILURES_KEPT, too_many_failures
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import Columns, moment, readable
from gateway.store.sqlite.tx import ReadTx, Tx, Values

FAILURES_KEPT_US = FAILURES_KEPT // MICROSECOND


class SqliteRecords(SqliteBase):
    """`ports.Accounts`, `Node`, `KeyValue`, `UsageStore`, `Audit` and `TurnJournal.allowed_scopes`."""

    # --- accounts and nodes ---------------------------------------------------------------

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        await self.write(lambda tx: tx.run("add_code", code_sha, owner, tx.now + ttl // MICROSECOND))

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Exchange a code for a cookie, once."""
        return await self.write(lambda tx: _redeem_code(tx, code_sha, cookie_sha, ttl, source))

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Return the owner of this cookie."""
        found = await self.read(lambda reader: reader.one("signed_in", cookie_sha, reader.now))
        return None if found is None else OwnerName(found[0])

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        await self.write(lambda tx: tx.run("sign_out", cookie_sha))

    async def saw_page(self, owner: OwnerName) -> None:
        """Record that the owner's page is open."""
        await self.write(lambda tx: tx.run("saw_page", owner, tx.now))

    async def last_contact(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Return the last direct conversation of each person, and when the page was last open."""
        return await self.read(lambda reader: _last_contact(reader, owner, principals))

    async def alive(self, node: NodeId) -> None:
        """Record that this node is alive."""
        await self.write(lambda tx: tx.run("alive", tx.now))

    async def last_alive(self) -> datetime | None:
        """Return when a node was last recorded as alive."""
        ((at,),) = await self.read(lambda reader: reader.run("last_alive"))
        return moment(at)

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Acquire or renew a named lease."""
        return await self.write(lambda tx: bool(tx.run("hold", name, node, tx.now + ttl // MICROSECOND, tx.now)))

    # --- key-value store ------------------------------------------------------------------

    async def put(self, namespace: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a value; delete the namespace's expired ones."""
        await self.write(lambda tx: _put(tx, namespace, key, value, ttl))

    async def items(self, namespace: str) -> Mapping[str, str]:
        """Return the values of a namespace."""
        return dict(await self.read(lambda reader: reader.run("notes", namespace, reader.now)))

    # --- usage ----------------------------------------------------------------------------

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store the summary of the beginning of a history, and its cost."""
        return await self.write(lambda tx: _compact(tx, session, epoch, through, summary, spent))

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first."""
        return await self.read(lambda reader: readable(_spent_of, reader.run("spent", since.isoformat()), "day"))

    # --- scopes ---------------------------------------------------------------------------

    async def allowed_scopes(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Return the scopes, each with its tool, that were allowed in this session's history or above it."""
        found = await self.read(lambda reader: reader.run("allowed_scopes", session))
        return frozenset((tool, scope) for tool, scope in found)

    # --- audit ----------------------------------------------------------------------------

    async def audit_head(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        return await self.read(_head)

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows after a place, in order."""
        return await self.read(lambda reader: [_row_of(columns) for columns in reader.run("audit_rows", after, limit)])

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return the calls that were started, each with its row."""
        return await self.read(lambda reader: [_call_of(found) for found in reader.run("started_calls", after, limit)])


# --- accounts and nodes -------------------------------------------------------------------


def _redeem_code(tx: Tx, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
    found = tx.one("take_code", code_sha)
    if found is None or found[1] <= tx.now:
        ((failures,),) = tx.run("failures", source, tx.now - FAILURES_KEPT_US)
        if failures >= FAILURES_ALLOWED:
            raise too_many_failures()
        tx.run("forget_failures", tx.now - FAILURES_KEPT_US)
        tx.run("add_failure", source, tx.now)
        return None
    owner = OwnerName(found[0])
    tx.run("add_cookie", cookie_sha, owner, tx.now + ttl // MICROSECOND)
    return owner


def _last_contact(reader: ReadTx, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
    direct: dict[Principal, tuple[Conversation, datetime]] = {}
    for principal in principals:
        found = reader.one("person", principal)
        if found is not None:
            direct[principal] = (load_conversation(found[0]), from_us(found[1]))
    seen = reader.one("page_seen", owner)
    return LastContact(direct=direct, page_seen_at=None if seen is None else from_us(seen[0]))


# --- key-value store ----------------------------------------------------------------------


def _put(tx: Tx, namespace: str, key: str, value: str, ttl: timedelta | None) -> None:
    tx.run("forget_notes", namespace, tx.now)
    tx.run("note", namespace, key, value, None if ttl is None else tx.now + ttl // MICROSECOND)


# --- usage --------------------------------------------------------------------------------


def _compact(tx: Tx, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
    if spent is not None and spent.usage != NOTHING:
        add_spent(tx, spent)
    return tx.count("compact", session, epoch, through, summary) > 0


def add_spent(tx: Tx, spent: Spent) -> None:
    """Add to this person's usage of this model on this day."""
    usage = spent.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    tx.run("add_spent", spent.day.isoformat(), spent.principal, spent.model, spent.answers, *tokens, usage.cost_micros)


def _spent_of(columns: Values) -> Spent:
    day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros = columns
    usage = Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens, cost_micros=cost_micros
    )
    return Spent(day=date.fromisoformat(day), principal=Principal(principal), model=model, answers=answers, usage=usage)


# --- audit --------------------------------------------------------------------------------


def add_audit_row(tx: Tx, row: AuditRow) -> int:
    """Append a row, ignoring its place and hashes. Return its place."""
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
