"""Accounts and Node in memory: sign-in, where people can be reached, and the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal
from gateway.domain.views import LastContact
from gateway.store.constants import FAILURES_ALLOWED, FAILURES_KEPT, too_many_failures
from gateway.store.memory.turn_ops import TurnOps


class MemoryAccounts(TurnOps):
    """`ports.Accounts` and `ports.Node`."""

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        with self.transition() as now:
            self.codes[code_sha] = (owner, now + ttl)

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Turn a code into a cookie, once."""
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
        """Whose cookie this is."""
        owner, until = self.cookies.get(cookie_sha, (None, self.clock.now()))
        return owner if owner is not None and until > self.clock.now() else None

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        with self.transition():
            self.cookies.pop(cookie_sha, None)

    async def saw_page(self, owner: OwnerName) -> None:
        """Remember that the page is open."""
        with self.transition() as now:
            self.page_seen[owner] = now

    async def whereabouts(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Where these people can be reached."""
        direct = {p: self.people[p] for p in principals if p in self.people}
        return LastContact(direct=direct, page_seen_at=self.page_seen.get(owner))

    async def alive(self, node: NodeId) -> None:
        """Remember that this node lives."""
        with self.transition() as now:
            self.alive_at = now

    async def last_alive(self) -> datetime | None:
        """When a node last said so."""
        return self.alive_at

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Take or renew a named lease."""
        with self.transition() as now:
            holder, until = self.holds.get(name, (node, now))
            if holder != node and until > now:
                return False
            self.holds[name] = (node, now + ttl)
            return True
