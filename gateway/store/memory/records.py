"""Records beside turns in memory: accounts, nodes, key-value store, usage, allowed scopes and audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import islice

from gateway.domain.audit import AuditHead, AuditRow, StartedCall
from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId, TurnId
from gateway.domain.sessions import Session
from gateway.domain.steps import Step
from gateway.domain.views import LastContact, Spent
from gateway.domain.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.store.answer_rules import NOTHING
from gateway.store.constants import FAILURES_ALLOWED, FAILURES_KEPT, too_many_failures
from gateway.store.memory.turn_ops import TurnOps


class MemoryRecords(TurnOps):
    """`ports.Accounts`, `Node`, `KeyValue`, `UsageStore`, `Audit` and `TurnJournal.allowed_scopes`."""

    # --- accounts and nodes ---------------------------------------------------------------

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        with self.transition() as now:
            self.codes[code_sha] = (owner, now + ttl)

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Exchange a code for a cookie, once."""
        with self.transition() as now:
            owner, until = self.codes.get(code_sha, (None, now))
            if owner is None or until <= now:
                failures = [at for at in self.failures.get(source, []) if now - at < FAILURES_KEPT]
                if len(failures) >= FAILURES_ALLOWED:
                    raise too_many_failures()
                self.codes.pop(code_sha, None)
                self.failures[source] = [*failures, now]
                return None
            del self.codes[code_sha]
            self.cookies[cookie_sha] = (owner, now + ttl)
            return owner

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Return the owner of this cookie."""
        owner, until = self.cookies.get(cookie_sha, (None, self.clock.now()))
        return owner if owner is not None and until > self.clock.now() else None

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        with self.transition():
            self.cookies.pop(cookie_sha, None)

    async def saw_page(self, owner: OwnerName) -> None:
        """Record that the owner's page is open."""
        with self.transition() as now:
            self.page_seen[owner] = now

    async def last_contact(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Return the last direct conversation of each person, and when the page was last open."""
        direct = {p: self.people[p] for p in principals if p in self.people}
        return LastContact(direct=direct, page_seen_at=self.page_seen.get(owner))

    async def alive(self, node: NodeId) -> None:
        """Record that this node is alive."""
        with self.transition() as now:
            self.alive_at = now

    async def last_alive(self) -> datetime | None:
        """Return when a node was last recorded as alive."""
        return self.alive_at

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Acquire or renew a named lease."""
        with self.transition() as now:
            holder, until = self.holds.get(name, (node, now))
            if holder != node and until > now:
                return False
            self.holds[name] = (node, now + ttl)
            return True

    # --- key-value store ------------------------------------------------------------------

    async def put(self, namespace: str, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a value; delete the namespace's expired ones."""
        with self.transition() as now:
            lasting = self._lasting(namespace, now)
            self.namespaces[namespace] = lasting | {key: (value, None if ttl is None else now + ttl)}

    async def items(self, namespace: str) -> Mapping[str, str]:
        """Return the values of a namespace."""
        found = self._lasting(namespace, self.clock.now())
        return {key: found[key][0] for key in sorted(found)}

    def _lasting(self, namespace: str, now: datetime) -> dict[str, tuple[str, datetime | None]]:
        facts = self.namespaces.get(namespace, {}).items()
        return {key: (value, until) for key, (value, until) in facts if until is None or until > now}

    # --- usage ----------------------------------------------------------------------------

    async def compact(self, session: SessionId, epoch: int, through: TurnId, summary: str, spent: Spent | None) -> bool:
        """Store the summary of the beginning of a history, and its cost."""
        with self.transition():
            if spent is not None and spent.usage != NOTHING:
                self.add_spent(spent)
            row, ended = self.all_sessions.get(session), self.ended.get(session, [])
            place = next((n for n, one in enumerate(ended, 1) if one.turn.id == through and one.turn.epoch == epoch), 0)
            if row is None or row.session.epoch != epoch or place <= row.summed_up:
                return False
            row.session, row.summed_up = replace(row.session, summary=summary), place
            return True

    async def spent(self, since: date) -> Sequence[Spent]:
        """Return the usage since a day, the newest first."""
        found = [one for one in self.books.values() if one.day >= since]
        found.sort(key=lambda one: (one.principal, one.model))
        return sorted(found, key=lambda one: one.day, reverse=True)

    # --- scopes ---------------------------------------------------------------------------

    async def allowed_scopes(self, session: SessionId) -> frozenset[tuple[str, str]]:
        """Return the scopes, each with its tool, that were allowed in this session's history or above it."""
        used = [request for one in self._up(session) for request in self._used(one)]
        return frozenset((request.action.tool, request.scope) for request in used if request.scope)

    def _up(self, id_: SessionId | None) -> Iterator[Session]:
        """Yield the session and those above it."""
        while id_ is not None and id_ in self.all_sessions:
            session = self.all_sessions[id_].session
            yield session
            id_ = session.lineage.parent if session.lineage else None

    def _used(self, session: Session) -> Iterator[ApprovalRequest]:
        """Yield the approvals of its present epoch whose call was started."""
        for row in self.rows.get(session.id, {}).values():
            wait = row.item
            if not isinstance(wait, Wait) or (wait.kind, wait.state) != (WaitKind.APPROVAL, WaitState.CONSUMED):
                continue
            if wait.approval is not None and self.turns[wait.turn].turn.epoch == session.epoch:
                yield wait.approval

    # --- audit ----------------------------------------------------------------------------

    async def audit_head(self) -> AuditHead:
        """Return the place and hash of the last audit row."""
        return self.last_audit()

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return rows after a place, in order."""
        return self.audit[max(after, 0) : max(after, 0) + limit]

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return the calls that were started, each with its row."""
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
