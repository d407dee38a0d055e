"""What the web page may see and ask: every read is checked against its owner here."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from gateway.approvals import Approvals, page_card
from gateway.domain.ids import OwnerName, SessionId, TurnId, main_session
from gateway.domain.live import LiveEvent
from gateway.domain.routes import empty_session, main_route
from gateway.domain.sessions import Session
from gateway.domain.slots import CardRow
from gateway.domain.steps import Step
from gateway.domain.tools import ToolResult
from gateway.domain.views import Row, Rows, SessionLine
from gateway.domain.waits import Wait
from gateway.errors import Forbidden, NotFound
from gateway.inbound.commands import command_list
from gateway.policy.routing import may_see
from gateway.ports import Accounts, ArtifactKind, Clock, Credential, EventBus, Queries, Welcome
from gateway.system.redaction import Redactor
from gateway.toolcalls.registry import Registry

CODE_GOOD_FOR = timedelta(minutes=10)
ROWS_AT_ONCE = 200
CHANGES_AT_ONCE = 500
CHARS_AT_ONCE = 1_000_000


def sha(secret: str) -> str:
    """What is stored of a code or a credential."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class WebAccess:
    """`ports.Desk` and `ports.SignIns`."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        queries: Queries,
        events: EventBus,
        registry: Registry,
        approvals: Approvals,
        clock: Clock,
        kept: Callable[[SessionId, str], Path | None],
        model_name: str,
        version: str,
        signed_in_for: timedelta,
        redactor: Redactor,
        currency: str = "USD",
    ) -> None:
        """Take what is read; `kept` says where a file of a session's call is, `currency` what prices are in."""
        self._redactor = redactor
        self._accounts = accounts
        self._queries = queries
        self._events = events
        self._registry = registry
        self._approvals = approvals
        self._clock = clock
        self._kept = kept
        self._model_name = model_name
        self._version = version
        self._signed_in_for = signed_in_for
        self._currency = currency

    async def mint_code(self, owner: OwnerName) -> str:
        """Make a single-use sign-in code, good for ten minutes. For links; never logged."""
        code = secrets.token_urlsafe(24)
        await self._accounts.add_code(owner, sha(code), CODE_GOOD_FOR)
        return code

    async def sign_in(self, code: str, source: str) -> tuple[OwnerName, Credential] | None:
        """Redeem a code for a cookie and a key."""
        made = Credential(cookie=secrets.token_urlsafe(32), key=secrets.token_urlsafe(32))
        owner = self._known(await self._accounts.redeem_code(sha(code), sha(made.text), self._signed_in_for, source))
        return None if owner is None else (owner, made)

    async def sign_out(self, credential: Credential) -> None:
        """End a sign-in."""
        await self._accounts.sign_out(sha(credential.text))

    async def owner_of(self, credential: Credential) -> OwnerName | None:
        """Whose sign-in this is now."""
        return self._known(await self._accounts.signed_in(sha(credential.text)))

    def _known(self, owner: OwnerName | None) -> OwnerName | None:
        """Leave out whom the configuration no longer names: codes and cookies outlive a change of it."""
        return owner if owner is not None and self._approvals.is_owner(owner) else None

    def welcome(self, owner: OwnerName) -> Welcome:
        """What the page begins with: the commands are those of the owner's main session."""
        commands = command_list(self._registry, self._main(owner))
        return Welcome(
            owner=owner,
            main=main_session(owner),
            commands=commands,
            model=self._model_name,
            version=self._version,
            currency=self._currency,
        )

    def _main(self, owner: OwnerName) -> Session:
        """The owner's main session as it is before its first message."""
        return empty_session(main_route(owner), self._clock.now())

    async def sessions(self, owner: OwnerName) -> Sequence[SessionLine]:
        """The sessions that this owner may see; the own main one first, also before it has anything in it."""
        found = [(line, line.session) for line in await self._queries.sessions(always=main_session(owner))]
        lines = [line for line, session in found if may_see(owner, session.owner, session.root_kind)]
        mine = [line for line in lines if line.session.id == main_session(owner)]
        rest = [line for line in lines if line.session.id != main_session(owner)]
        if not mine:
            mine = [SessionLine(session=self._main(owner), rev=0, waiting=0, running=0, queued=0)]
        return [*mine, *rest]

    async def changes(self, owner: OwnerName, session: SessionId, after: int) -> Rows:
        """Rows changed since a revision."""
        await self._check(owner, session)
        return await self._shown(await self._queries.changes(session, after, CHANGES_AT_ONCE))

    async def older(self, owner: OwnerName, session: SessionId, before: int | None) -> Rows:
        """The last rows before a place."""
        await self._check(owner, session)
        return await self._shown(await self._queries.older(session, before, ROWS_AT_ONCE))

    async def _shown(self, rows: Rows) -> Rows:
        """The rows without secrets in what a model wants to call: it is stored as it runs."""
        found, looked_at = list[Row](), 0
        for row in rows.rows:
            if isinstance(step := row.item, Step) and step.call is not None:
                arguments, hidden = self._redactor.known(step.call.arguments)
                if hidden:
                    row = replace(row, item=replace(step, call=replace(step.call, arguments=arguments)))
                looked_at += len(arguments)
                if looked_at > CHARS_AT_ONCE:
                    looked_at = 0
                    await asyncio.sleep(0)  # a million of them take 15 ms, and 200 rows may have as many each
            found.append(row)
        return replace(rows, rows=tuple(found))

    async def _check(self, owner: OwnerName, session: SessionId) -> None:
        if session == main_session(owner):
            return
        found = await self._queries.session(session)
        if found is None or not may_see(owner, found.owner, found.root_kind):
            # The same words for both: what exists is not told.
            raise Forbidden("There is no such session for you.", cure="Choose one from the list.")

    def card(self, owner: OwnerName, wait: Wait) -> CardRow:
        """An approval with the buttons of this owner's page."""
        return self._approvals.row(wait, page_card(owner))

    async def output(
        self, owner: OwnerName, turn: TurnId, n: int, what: ArtifactKind = ArtifactKind.PRINTED, k: int = 0
    ) -> Path | None:
        """The file of a call that has everything it printed, or one of its pictures or files.

        The name comes from the stored result, never from the request. A link in its place is not followed.
        """
        try:
            view = await self._queries.turn(turn)
            await self._check(owner, view.session.id)
        except (NotFound, Forbidden):
            return None
        step = view.steps[n] if 0 <= n < len(view.steps) else None
        names = _files_of(step.result, what) if step is not None and step.result is not None else ()
        return self._kept(view.session.id, names[k]) if 0 <= k < len(names) else None

    async def saw(self, owner: OwnerName) -> None:
        """The page is open now."""
        await self._accounts.saw_page(owner)

    def watch(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Listen to what happens."""
        return self._events.subscribe(*topics)


def _files_of(result: ToolResult, what: ArtifactKind) -> Sequence[str]:
    """The names of the files that are kept of a call, in their order."""
    match what:
        case ArtifactKind.PRINTED:
            return [result.full_output] if result.full_output else []
        case ArtifactKind.PICTURE:
            return [one.file for one in result.pictures]
        case ArtifactKind.FILE:
            return [one.file for one in result.files]
