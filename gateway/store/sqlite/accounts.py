"""Accounts and Node in SQLite: sign-in, where people can be reached, and the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal
from gateway.domain.messages import Conversation
from gateway.domain.views import LastContact
from gateway.store.codec import MICROSECOND, from_us, load_conversation
from gateway.store.constants import FAILURES_ALLOWED, FAILURES_KEPT, too_many_failures
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import moment
from gateway.store.sqlite.tx import ReadTx, Tx

FAILURES_KEPT_US = FAILURES_KEPT // MICROSECOND


class SqliteAccounts(SqliteBase):
    """`ports.Accounts` and `ports.Node`."""

    async def add_code(self, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
        """Store a sign-in code."""
        await self.write(lambda tx: tx.run("add_code", code_sha, owner, tx.now + ttl // MICROSECOND))

    async def redeem_code(self, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
        """Turn a code into a cookie, once."""
        return await self.write(lambda tx: _redeem_code(tx, code_sha, cookie_sha, ttl, source))

    async def signed_in(self, cookie_sha: str) -> OwnerName | None:
        """Whose cookie this is."""
        found = await self.read(lambda reader: reader.one("signed_in", cookie_sha, reader.now))
        return None if found is None else OwnerName(found[0])

    async def sign_out(self, cookie_sha: str) -> None:
        """Forget a cookie."""
        await self.write(lambda tx: tx.run("sign_out", cookie_sha))

    async def saw_page(self, owner: OwnerName) -> None:
        """Remember that the page is open."""
        await self.write(lambda tx: tx.run("saw_page", owner, tx.now))

    async def whereabouts(self, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
        """Where these people can be reached."""
        return await self.read(lambda reader: _reach(reader, owner, principals))

    async def alive(self, node: NodeId) -> None:
        """Remember that this node lives."""
        await self.write(lambda tx: tx.run("alive", tx.now))

    async def last_alive(self) -> datetime | None:
        """When a node last said so."""
        ((at,),) = await self.read(lambda reader: reader.run("last_alive"))
        return moment(at)

    async def hold(self, name: str, node: NodeId, ttl: timedelta) -> bool:
        """Take or renew a named lease."""
        return await self.write(lambda tx: bool(tx.run("hold", name, node, tx.now + ttl // MICROSECOND, tx.now)))


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


def _reach(reader: ReadTx, owner: OwnerName, principals: Sequence[Principal]) -> LastContact:
    direct: dict[Principal, tuple[Conversation, datetime]] = {}
    for principal in principals:
        found = reader.one("person", principal)
        if found is not None:
            direct[principal] = (load_conversation(found[0]), from_us(found[1]))
    seen = reader.one("page_seen", owner)
    return LastContact(direct=direct, page_seen_at=None if seen is None else from_us(seen[0]))
