"""Handlers of control-socket commands: sign-in links, lists, the audit, and messages as an owner. Used by the CLI."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.approvals import title
from gateway.domain.audit import AuditRow
from gateway.domain.events import NODES, NodesChanged, session_topic
from gateway.domain.grants import Grant
from gateway.domain.ids import SYSTEM_CONTROL, OwnerName, SessionId, TurnId, main_session, web_principal
from gateway.domain.messages import Inbound, Received, owner_page
from gateway.domain.nodes import NodeLine, differences
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.turns import ENDED
from gateway.domain.views import Row
from gateway.errors import BadRequest, StoreError
from gateway.inbound.grant_commands import matching
from gateway.inbound.ingress import Ingress
from gateway.inbound.why import WhyReplies
from gateway.policy.audit import PAGE, verify
from gateway.ports import Audit, Clock, EventBus, Grants, Node, Queries
from gateway.server.http import HttpServer
from gateway.server.web_access import CODE_GOOD_FOR, WebAccess

LOOK_EVERY_S = 1.0
CHANGES_AT_ONCE = 500


@dataclass(slots=True, kw_only=True)
class ControlCommands:
    """Command handlers of the control socket. Only the daemon's user reaches it, so they act as the named owner."""

    web_access: WebAccess
    http: HttpServer
    ingress: Ingress
    queries: Queries
    audit: Audit
    grants: Grants
    node: Node
    why: WhyReplies
    events: EventBus
    clock: Clock
    owners: Sequence[OwnerName]
    page: bool = True
    """True if the web page is served."""
    page_here: bool = True
    """True if a link of this node leads to a page: its own, or that of the public address."""

    def commands(self) -> Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Any]]]:
        """Return the handlers by command name."""
        return {
            "link": self._link,
            "port": self._port,
            "sessions": self._sessions,
            "approvals": self._approvals,
            "audit": self._audit,
            "audit_exported": self._audit_exported,
            "grants": self._list_grants,
            "revoke": self._revoke,
            "explain": self._explain,
            "nodes": self._nodes,
            "drain": self._drain,
            "send": self._send,
        }

    async def link(self, owner: OwnerName) -> str:
        """Return a sign-in link that works once, for ten minutes. Raises `BadRequest` where there is no page."""
        if not self.page_here:
            raise BadRequest(
                "This node serves no web page.", cure="Ask a node with the role ingress, or set [http] public_url."
            )
        if not self.page:
            raise BadRequest(
                "The web page is switched off, so nobody can sign in.",
                cure="Set [channels.web] enabled = true and start Dragoman again.",
            )
        code = await self.web_access.mint_code(owner)
        return f"{self.http.address.link(self.http.port)}/#code={code}"

    async def _link(self, args: Mapping[str, Any]) -> dict[str, Any]:
        owner = self._owner(args)
        return {"url": await self.link(owner), "owner": owner, "expires_s": int(CODE_GOOD_FOR.total_seconds())}

    async def _port(self, _args: Mapping[str, Any]) -> dict[str, Any]:
        return {"port": self.http.port}

    async def _sessions(self, _args: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "id": line.session.id,
                "kind": line.session.kind.value,
                "title": line.session.title,
                "running": line.running,
                "waiting": line.waiting,
                "queued": line.queued,
                "active_at": line.session.active_at.isoformat(),
            }
            for line in await self.queries.sessions()
        ]

    async def _approvals(self, _args: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "id": wait.id,
                "session": wait.session,
                "tool": wait.approval.action.tool,
                "title": title(wait.approval),
                "rendered": wait.approval.rendered,
                "asked_at": wait.opened_at.isoformat(),
                "expires_at": wait.expires_at.isoformat(),
            }
            for wait in await self.queries.open_approvals()
            if wait.approval is not None
        ]

    async def _nodes(self, _args: Mapping[str, Any]) -> list[dict[str, Any]]:
        lines = await self.node.nodes()
        return [_shown_node(line, lines) for line in lines]

    async def _drain(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Drain a node, or let it work again; it returns at once."""
        name = await self.node.drain(str(args.get("name") or ""), drained=bool(args.get("drained")))
        self.events.publish(NODES, NodesChanged())
        return {"name": name}

    async def _list_grants(self, _args: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [_shown_grant(grant) for grant in await self.grants.live_grants()]

    async def _revoke(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Take a grant back, named by its id or the beginning of it."""
        wanted = args.get("grant")
        if not isinstance(wanted, str) or not wanted.strip():
            raise BadRequest("There is no grant without an id.", cure="`dragoman grants list` shows them.")
        found = matching(await self.grants.live_grants(), wanted.strip())
        if len(found) != 1:
            says = "Several grants begin with" if found else "There is no grant"
            raise BadRequest(f"{says} {wanted[:40]!r}.", cure="`dragoman grants list` shows their ids.")
        revoked = await self.grants.revoke_grant(found[0].id, SYSTEM_CONTROL)
        if revoked is None:
            raise BadRequest(f"The grant {found[0].id} ended meanwhile.", cure="Nothing is left to do.")
        return _shown_grant(revoked)

    async def _audit(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Verify the whole audit; return its last rows and the result."""
        last = args.get("last")
        if not isinstance(last, int) or isinstance(last, bool) or not 0 <= last <= PAGE:
            raise BadRequest(f"{str(last)[:40]!r} is not a number of rows.", cure=f"Use a number from 0 to {PAGE}.")
        end = (await self.audit.audit_head()).seq
        shown = {"rows": [_shown(row) for row in await self._readable(max(0, end - last), end)]}
        try:
            found = await verify(self.audit)
        except StoreError as error:
            return {**shown, "count": 0, "calls": 0, "head": "", "broken": error.message, "removed": 0}
        broken = found.broken.says if found.broken else None
        removed = 0 if found.removed is None else found.removed.seq
        result = {"count": found.rows, "calls": found.calls, "head": found.head, "broken": broken, "removed": removed}
        return {**shown, **result}

    async def _audit_exported(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Note the row that an export ended in, so that what is older than the setting may be removed up to it."""
        seq, head = args.get("seq"), args.get("head")
        if not isinstance(seq, int) or not isinstance(head, str):
            raise BadRequest("An export is named by its last row and its head.", cure="Use: dragoman audit export.")
        return {"noted": await self.audit.note_export(seq, head)}

    async def _explain(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision about a call in a stored session."""
        named, tool, text = (str(args.get(key) or "") for key in ("session", "tool", "text"))
        session = await self.queries.session(SessionId(named))
        if session is None:
            raise BadRequest(f"There is no session {named[:80]!r}.", cure="List them with: dragoman sessions.")
        return (await self.why.explain(session, tool, text)).as_table()

    async def _readable(self, after: int, end: int) -> Sequence[AuditRow]:
        """Return the readable audit rows after a place; verification names the first unreadable one."""
        try:
            return await self.audit.audit_rows(after, end - after)
        except StoreError:
            return [row for place in range(after, end) for row in await self._one(place)]

    async def _one(self, after: int) -> Sequence[AuditRow]:
        try:
            return [row for row in await self.audit.audit_rows(after, 1) if row.seq == after + 1]
        except StoreError:
            return ()

    async def _send(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message to an owner's main session; with `wait`, return the answer when the turn has ended."""
        owner, text = self._owner(args), args.get("text")
        if not isinstance(text, str) or not text.strip():
            raise BadRequest("There is no text to send.", cure='Write it in quotes: dragoman send "…".')
        session = main_session(owner)
        before = (await self.queries.older(session, None, 1)).rev
        async with self.events.subscribe(session_topic(session)) as events:
            message = self._message(owner, text)
            accepted = await self.ingress.message(message)
            if accepted is None:
                return {"answer": await self._reply(owner, before, message.event_key)}
            if not args.get("wait"):
                return {"answer": None, "turn": accepted.turn}
            while (state := (await self.queries.turn(accepted.turn)).turn.state) not in ENDED:
                try:
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await anext(events)
                except TimeoutError:
                    continue
        answer = await self._answer(owner, before, accepted.turn)
        return {"answer": answer, "turn": accepted.turn, "state": state.value}

    def _message(self, owner: OwnerName, text: str) -> Inbound:
        return Inbound(
            event_key=f"{owner}:cli-{secrets.token_hex(8)}",
            conversation=owner_page(owner),
            principal=web_principal(owner),
            name=owner,
            direct=True,
            addressed=True,
            text=text,
            sent_at=self.clock.now(),
        )

    async def _reply(self, owner: OwnerName, after: int, event_key: str) -> str:
        """Return the reply to a command: the first one after it, stored with it in one transition."""
        asked, replies = 0, list[tuple[int, str]]()
        async for row in self._changes(owner, after):
            if isinstance(row.item, Received) and row.item.message.event_key == event_key:
                asked = row.ord
            elif isinstance(row.item, Slot) and row.item.kind is SlotKind.REPLY:
                replies.append((row.ord, row.item.text))
        return min([reply for reply in replies if reply[0] > asked], default=(0, ""))[1]

    async def _answer(self, owner: OwnerName, after: int, turn: TurnId) -> str:
        found: dict[int, str] = {}
        async for row in self._changes(owner, after):
            if isinstance(row.item, Slot) and row.item.turn == turn and row.item.kind is SlotKind.ANSWER:
                found[row.ord] = row.item.text
        return "\n\n".join(text for _, text in sorted(found.items()))

    async def _changes(self, owner: OwnerName, after: int) -> AsyncIterator[Row]:
        """Yield the rows of an owner's main session that changed since a revision."""
        more = True
        while more:
            found = await self.queries.changes(main_session(owner), after, CHANGES_AT_ONCE)
            for row in found.rows:
                yield row
            after, more = found.rev, found.more

    def _owner(self, args: Mapping[str, Any]) -> OwnerName:
        named = args.get("owner")
        if named is None and len(self.owners) == 1:
            return self.owners[0]
        known = ", ".join(self.owners)
        if named is None:
            raise BadRequest("There are several owners.", cure=f"Name one of them: {known}.")
        if named not in self.owners:
            raise BadRequest(f"There is no owner {str(named)[:40]!r}.", cure=f"Name one of them: {known}.")
        return OwnerName(str(named))


def _shown(row: AuditRow) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "at": row.at.isoformat(timespec="seconds"),
        "call": f"{row.turn}/{row.n}",
        "session": row.session,
        "by": row.lane.value,
        "tool": row.tool,
        "because": row.basis.value,
        "rule": row.rule or row.grant,
        "decided_by": row.decided_by,
        "approval": row.wait,
        "grant": row.grant,
        "sandbox": row.sandbox,
        "action": row.action_sha[:8],
        "node": row.node,
    }


def _shown_node(line: NodeLine, lines: Sequence[NodeLine]) -> dict[str, Any]:
    state = "silent" if not line.lives else "drained" if line.drained else "works"
    return {
        "name": line.name,
        "life": line.node.rpartition("#")[2],
        "state": state,
        "roles": sorted(line.roles),
        "turns": list(line.turns),
        "version": line.version,
        "since": line.since.isoformat(timespec="seconds"),
        "alive": line.alive_at.isoformat(timespec="seconds"),
        "differs": differences(line, lines) if line.lives else [],
    }


def _shown_grant(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "allows": grant.shown,
        "place": grant.place.value,
        "held_by": grant.held_by,
        "granted_by": grant.granted_by,
        "granted_at": grant.granted_at.isoformat(timespec="seconds"),
        "expires_at": grant.expires_at.isoformat(timespec="seconds"),
        "used": grant.used,
        "last_used_at": grant.last_used_at.isoformat(timespec="seconds") if grant.last_used_at else None,
    }
