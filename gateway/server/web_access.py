"""Web access: sign-in and reads of the web page, each checked against its owner. Used by `page` and `http`."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from gateway.agent.transcription import HEAD_BYTES, suffix_of
from gateway.approvals import Approvals, page_card
from gateway.domain.events import SIGN_INS, LiveEvent, SignedOut
from gateway.domain.ids import InboundId, OwnerName, SessionId, TurnId, main_session
from gateway.domain.routes import empty_session, main_route
from gateway.domain.sessions import Session, works_in
from gateway.domain.slots import CardRow, QuestionCard, spoken_file
from gateway.domain.steps import Step, StepKind
from gateway.domain.views import Row, RowPage, SessionLine
from gateway.domain.waits import Wait, WaitKind
from gateway.errors import Forbidden, NotFound
from gateway.inbound.commands import command_list
from gateway.policy.routing import may_see
from gateway.ports import Accounts, ArtifactKind, Clock, Credential, EventBus, FindOutput, Queries, Recording, Welcome
from gateway.system.redaction import Redactor
from gateway.toolcalls.registry import Registry

CODE_GOOD_FOR = timedelta(minutes=10)
"""Time in which a sign-in link can be opened, once. `store/kernel/facts.py` limits failed sign-ins."""
ROWS_AT_ONCE = 200
"""Rows of one page of a history."""
CHANGES_AT_ONCE = 500
"""Changed rows of one answer."""
CHARS_AT_ONCE = 1_000_000
_TYPES: Final = {
    ".aac": "audio/aac",
    ".amr": "audio/amr",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".webm": "audio/webm",
}
"""Types of recordings that people sent, for the page's player."""


def sha(secret: str) -> str:
    """Return the stored form of a code or a credential: its SHA-256."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


@dataclass(slots=True, kw_only=True)
class WebAccess:
    """Web API and sign-ins; a `ports.WebApi` and `ports.SignIns`."""

    accounts: Accounts
    queries: Queries
    events: EventBus
    registry: Registry
    approvals: Approvals
    clock: Clock
    find: FindOutput
    """Return the path of a session's artifact."""
    inbox: Callable[[SessionId, str], Awaitable[bytes | None]]
    """Return a file that a person sent, by its path in the workspace of a session."""
    model_name: str
    version: str
    signed_in_for: timedelta
    redactor: Redactor
    currency: str = "USD"
    """Currency of the prices."""
    warning: Callable[[], str] = str
    """Sentence about a store that may lose something, for every page."""

    async def mint_code(self, owner: OwnerName) -> str:
        """Return a new single-use sign-in code for a link, valid for ten minutes. Never logged."""
        code = secrets.token_urlsafe(24)
        await self.accounts.add_code(owner, sha(code), CODE_GOOD_FOR)
        return code

    async def sign_in(self, code: str, source: str) -> tuple[OwnerName, Credential] | None:
        """Redeem a code for a cookie and a key; None if it is not valid."""
        made = Credential(cookie=secrets.token_urlsafe(32), key=secrets.token_urlsafe(32))
        owner = self._known(await self.accounts.redeem_code(sha(code), sha(made.text), self.signed_in_for, source))
        return None if owner is None else (owner, made)

    async def sign_out(self, credential: Credential) -> None:
        """End a sign-in. Its pages close at once, on all nodes."""
        await self.accounts.sign_out(sha(credential.text))
        self.events.publish(SIGN_INS, SignedOut())

    async def owner_of(self, credential: Credential) -> OwnerName | None:
        """Return the owner who is signed in with this credential now, or None."""
        return self._known(await self.accounts.signed_in(sha(credential.text)))

    def _known(self, owner: OwnerName | None) -> OwnerName | None:
        """Return the owner if still configured, else None: codes and cookies outlive a change of the configuration."""
        return owner if owner is not None and self.approvals.is_owner(owner) else None

    def welcome(self, owner: OwnerName) -> Welcome:
        """Return the initial data of the page, with the commands of the owner's main session."""
        commands = command_list(self.registry.snapshot(), self._main(owner))
        return Welcome(
            owner=owner,
            main=main_session(owner),
            commands=commands,
            model=self.model_name,
            version=self.version,
            currency=self.currency,
            warning=self.warning(),
        )

    def _main(self, owner: OwnerName) -> Session:
        """Return the owner's main session as before its first message."""
        return empty_session(main_route(owner), self.clock.now())

    async def sessions(self, owner: OwnerName) -> Sequence[SessionLine]:
        """Return the sessions that this owner may see; the owner's main session first, even if it is empty."""
        found = [(line, line.session) for line in await self.queries.sessions(always=main_session(owner))]
        lines = [line for line, session in found if may_see(owner, session.owner, session.root_kind)]
        mine = [line for line in lines if line.session.id == main_session(owner)]
        rest = [line for line in lines if line.session.id != main_session(owner)]
        if not mine:
            mine = [SessionLine(session=self._main(owner), rev=0, waiting=0, running=0, queued=0)]
        return [*mine, *rest]

    async def changes(self, owner: OwnerName, session: SessionId, after: int) -> RowPage:
        """Return the rows changed since a revision. Raises `Forbidden`."""
        await self._check(owner, session)
        return await self._shown(await self.queries.changes(session, after, CHANGES_AT_ONCE))

    async def older(self, owner: OwnerName, session: SessionId, before: int | None) -> RowPage:
        """Return the last rows before a place. Raises `Forbidden`."""
        await self._check(owner, session)
        return await self._shown(await self.queries.older(session, before, ROWS_AT_ONCE))

    async def _shown(self, rows: RowPage) -> RowPage:
        """Return the rows with the arguments that calls run with, and secrets redacted from them."""
        found, checked = list[Row](), 0
        for row in rows.rows:
            if isinstance(step := row.item, Step) and step.call is not None:
                arguments, hidden = self.redactor.known(step.arguments)
                if hidden or step.hook_outcome is not None:
                    call = replace(step.call, arguments=arguments)
                    row = replace(row, item=replace(step, call=call, hook_outcome=None))
                checked += len(arguments)
                if checked > CHARS_AT_ONCE:
                    checked = 0
                    await asyncio.sleep(0)  # a million of them take 15 ms, and 200 rows may have as many each
            found.append(row)
        return replace(rows, rows=tuple(found))

    async def _check(self, owner: OwnerName, session: SessionId) -> None:
        if session == main_session(owner):
            return
        found = await self.queries.session(session)
        if found is None or not may_see(owner, found.owner, found.root_kind):
            # The same text for both, so that it does not reveal which sessions exist.
            raise Forbidden("There is no such session, or you may not see it.", cure="Choose one from the list.")

    def card(self, owner: OwnerName, wait: Wait) -> CardRow | QuestionCard:
        """Return an approval or a question with the buttons of this owner's page."""
        if wait.kind is WaitKind.QUESTION:
            return self.approvals.question(wait, page_card(owner))
        return self.approvals.row(wait, page_card(owner))

    async def output(
        self, owner: OwnerName, turn: TurnId, n: int, what: ArtifactKind = ArtifactKind.PRINTED, k: int = 0
    ) -> Path | None:
        """Return a call's artifact: its full output, or one of its pictures or files. None if absent or not allowed.

        The name comes from the stored result, never from the request. A symbolic link in its place is not followed.
        Raises `FileAway` for one on a node that cannot be asked now.
        """
        try:
            view = await self.queries.turn(turn)
            await self._check(owner, view.session.id)
        except (NotFound, Forbidden):
            return None
        step = view.steps[n] if 0 <= n < len(view.steps) else None
        names = () if step is None else _files_of(step, what)
        return await self.find(view.session.id, names[k]) if 0 <= k < len(names) else None

    async def recording(self, owner: OwnerName, turn: TurnId, message: InboundId, k: int) -> Recording | None:
        """Return a recording that came with a message of a turn. None if absent, not allowed, or no recording.

        Raises `FileAway` when it is on a node that cannot be asked now.
        """
        try:
            view = await self.queries.turn(turn)
            await self._check(owner, view.session.id)
        except (NotFound, Forbidden):
            return None
        found = next((one.files or () for one in view.inputs if one.id == message), ())
        if not 0 <= k < len(found) or not found[k].path:
            return None
        data = await self.inbox(works_in(view.session), found[k].path)
        return None if data is None else _recording_of(data)

    async def saw(self, owner: OwnerName) -> None:
        """Record that the page is open now."""
        await self.accounts.saw_page(owner)

    def watch(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Subscribe to topics of the event bus."""
        return self.events.subscribe(*topics)


def _files_of(step: Step, what: ArtifactKind) -> Sequence[str]:
    """Return the file names of a step's artifacts, in order."""
    if what is ArtifactKind.SPOKEN:
        return [spoken_file(step.turn, step.n)] if step.kind is StepKind.MODEL else []
    result = step.result
    if result is None:
        return []
    match what:
        case ArtifactKind.PRINTED:
            return [result.full_output] if result.full_output else []
        case ArtifactKind.PICTURE:
            return [one.file for one in result.pictures]
        case ArtifactKind.FILE:
            return [one.file for one in result.files]


def _recording_of(data: bytes) -> Recording | None:
    """Return a file as a recording, with its type by its first bytes; None for anything else.

    A tool may have replaced it since: another file is no recording.
    """
    media_type = _TYPES.get(suffix_of(data[:HEAD_BYTES]))
    return None if media_type is None else Recording(data=data, media_type=media_type)
