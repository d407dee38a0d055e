"""Where channels meet the gateway: what they push into, what they offer, what they are built with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gateway.domain.ids import OwnerName, SessionId, TurnId
from gateway.domain.live import LiveEvent
from gateway.domain.messages import Attachment, Conversation, Inbound, Press, Refused
from gateway.domain.routes import Accepted
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import CardRow, RateLimit, RenderedSlot
from gateway.domain.views import Rows, SessionLine
from gateway.domain.waits import Pressed, Wait
from gateway.ports.clock import Clock

if TYPE_CHECKING:  # the type alone: whoever builds a channel has it loaded
    from aiohttp import ClientSession


class Sink(Protocol):
    """Where a channel pushes what it normalised. Returns after the commit: acknowledge then, not before."""

    async def message(self, message: Inbound) -> Accepted | None:
        """Take a message. None: it was dropped or answered at ingress. Raises `StoreError`: do not acknowledge.

        That is `NotKnownYet` for one that only an outsider is refused, while it is `unsure` whether they are one.
        """
        ...

    async def press(self, press: Press) -> Pressed:
        """Take a press and say what came of it, in time to answer the platform."""
        ...

    async def refuse(self, refused: Refused) -> None:
        """Keep an event that no message can be made of. Returns after the commit: acknowledge then."""
        ...


class Progress(Protocol):
    """Stores what is shown of a slot so far; called after each message of one that needs several."""

    async def __call__(self, platform_id: str) -> None:
        """Keep this as the slot's `platform_id`, so that a repetition goes on behind it."""
        ...


class Channel(Protocol):
    """A platform. `send` and `edit` raise `SendFailed` and nothing else for what the platform or network did."""

    @property
    def name(self) -> str:
        """The channel's name, as in `Conversation.channel`."""
        ...

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled. Called once, as one task of the daemon."""
        ...

    async def send(self, showing: RenderedSlot, progress: Progress) -> str:
        """Show a new slot and return what shows it: the `platform_id` that `edit` is given later."""
        ...

    async def edit(self, showing: RenderedSlot, progress: Progress) -> str:
        """Make what `showing.slot.platform_id` names show this content, and return what shows it now.

        Messages that are there are changed, missing ones added, surplus ones taken away. Twice is safe, but for an
        added message (`SendFailed.creating`).
        """
        ...

    async def typing(self, conversation: Conversation) -> None:
        """Show for some seconds that an answer is being written, where the platform can.

        Raises `SendFailed` with `WAIT` when the platform wants nothing shown there for a while, and nothing else.
        """
        ...

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """The limits of a message there, widest scope first; the bans of a scope hold for all that lies in it."""
        ...

    @property
    def streams(self) -> bool:
        """Whether an answer is shown while it is written: its slot is made early, and edited."""
        ...

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Read a file that came with a message of this conversation, in pieces as they come; again is safe.

        What `write` raises ends it and goes on to the caller. Raises `FetchFailed` for what the platform or network
        did: it says whether another try may help.
        """
        ...

    def trouble(self) -> str:
        """Why the channel does not work now, for health checks; empty when it does."""
        ...


@runtime_checkable
class WithAccounts(Protocol):
    """A channel that knows how each of its accounts does; for figures. Any channel may leave it out."""

    def accounts_up(self) -> Mapping[str, bool]:
        """Return whether each account works now, by name."""
        ...


class Auth(StrEnum):
    """Who may call an endpoint; checked by `http` before the handler is called."""

    COOKIE = "cookie"
    """Somebody signed in on the page."""
    SIGNED = "signed"
    """The handler verifies a platform's signature before it parses anything."""
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A route that a channel brings to the daemon's one server."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    """An aiohttp handler. With `COOKIE`, `request["owner"]` is the `OwnerName`."""
    auth: Auth


class HttpChannel(Channel, Protocol):
    """A channel that is served by the daemon's own server."""

    def endpoints(self) -> Sequence[Endpoint]:
        """Its routes. Called once, before `run`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """A command as the page completes it."""

    name: str
    usage: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a page needs to begin."""

    owner: OwnerName
    main: SessionId
    commands: Sequence[CommandInfo]
    model: str
    version: str
    currency: str = "USD"
    """What `Usage.cost_micros` are millionths of."""


COOKIE = "dragoman"
"""What the cookie of a sign-in is called, and the sub-protocol that a page's WebSocket names before its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What shows that somebody is signed in. Neither half is worth anything alone."""

    cookie: str = field(repr=False)
    """Browsers send it to every port of the host, so to whatever a tool serves there."""
    key: str = field(repr=False)
    """Stays with the page, which alone can read it; shown with every request."""

    @property
    def text(self) -> str:
        """The one text form, whose hash is stored."""
        return f"{self.cookie}.{self.key}"


class ArtifactKind(StrEnum):
    """What is kept of a call, each in a file of its own."""

    PRINTED = "printed"
    """Everything it printed, where that is more than its result shows. There is one."""
    PICTURE = "picture"
    FILE = "file"
    """Any other file for people."""


class WebApi(Protocol):
    """What the web page may see and ask, by owner. Raises `Forbidden` for another owner's main session."""

    async def sign_in(self, code: str, source: str) -> tuple[OwnerName, Credential] | None:
        """Redeem a link's code, once; None when it is not good. `Forbidden` after too many failures."""
        ...

    async def sign_out(self, credential: Credential) -> None:
        """End a sign-in."""
        ...

    def welcome(self, owner: OwnerName) -> Welcome:
        """What the page begins with."""
        ...

    async def sessions(self, owner: OwnerName) -> Sequence[SessionLine]:
        """The sessions that this owner may see; the own main one first."""
        ...

    async def changes(self, owner: OwnerName, session: SessionId, after: int) -> Rows:
        """Rows changed since a revision, at most 500."""
        ...

    async def older(self, owner: OwnerName, session: SessionId, before: int | None) -> Rows:
        """The last 200 rows before a place; None: the newest."""
        ...

    def card(self, owner: OwnerName, wait: Wait) -> CardRow:
        """An approval as this owner's page shows it, with buttons that work there."""
        ...

    async def output(
        self, owner: OwnerName, turn: TurnId, n: int, what: ArtifactKind = ArtifactKind.PRINTED, k: int = 0
    ) -> Path | None:
        """The file of a call that has everything it printed, or its `k`th picture or file, each counted from 0."""
        ...

    async def saw(self, owner: OwnerName) -> None:
        """The page is open now."""
        ...

    def watch(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Listen to what happens."""
        ...


class SignIns(Protocol):
    """Who is signed in; asked by `http` before a handler with `Auth.COOKIE` is called."""

    async def owner_of(self, credential: Credential) -> OwnerName | None:
        """Whose sign-in this is now."""
        ...


class ChannelKeyValue(Protocol):
    """The notes of one channel: small facts that outlive a restart."""

    async def read(self) -> Mapping[str, str]:
        """All of them."""
        ...

    async def keep(self, key: str, value: str) -> None:
        """Store one; durable when it returns."""
        ...


class ChannelHost(Protocol):
    """What a channel may do beside pushing messages."""

    async def hold(self, name: str, ttl: timedelta) -> bool:
        """Take or renew a named lease, such as that of the one poller of a token; False: another node has it."""
        ...

    async def alert(self, key: str, text: str) -> None:
        """Tell every owner that something needs a person; at most once an hour for the same key."""
        ...

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        """The commands of a kind of session, to be registered with the platform."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """What a channel is built with. A channel sees nothing else of the gateway."""

    name: str
    settings: Any
    """Its own settings model, or the table as it stands for a channel loaded by import path."""
    web_api: WebApi
    host: ChannelHost
    key_value: ChannelKeyValue
    client: ClientSession
    """The daemon's one HTTP client session: no total timeout, no redirect rules of its own."""
    public_url: str
    """Where the platform reaches the daemon's server, without a final slash; empty when nobody said."""
    clock: Clock
    fail_point: Callable[[str], Awaitable[None]]
    """Pass a named fail point; a no-op outside of fault tests."""
