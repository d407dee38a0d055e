"""Protocols between channels and the gateway. Implemented by `channels/*` on one side and by `gateway.server` and
`gateway.inbound` on the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gateway.domain.events import LiveEvent
from gateway.domain.ids import InboundId, OwnerName, SessionId, TurnId
from gateway.domain.messages import Attachment, Conversation, Inbound, Press, Refused
from gateway.domain.routes import Accepted
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import CardRow, QuestionCard, RateLimit, RenderedSlot
from gateway.domain.turns import NamedLease
from gateway.domain.views import RowPage, SessionLine
from gateway.domain.waits import Pressed, Wait
from gateway.ports.clock import Clock

if TYPE_CHECKING:  # for the type only: the builder of a channel has it loaded
    from aiohttp import ClientSession


class Sink(Protocol):
    """Receiver of the events that a channel has normalised. Every method returns after the commit: acknowledge then,
    not before.
    """

    async def message(self, message: Inbound) -> Accepted | None:
        """Store a message. Return None when it was dropped or answered at ingress.

        Raises `StoreError`: do not acknowledge. Its subclass `NotKnownYet` means: outsiders are refused, and the
        platform does not say yet whether the sender is one (`Inbound.unsure`).
        """
        ...

    async def press(self, press: Press) -> Pressed:
        """Store a press and return its result, in time to answer the platform."""
        ...

    async def refuse(self, refused: Refused) -> None:
        """Store an event that is not a message. Returns after the commit: acknowledge then."""
        ...


class Progress(Protocol):
    """Callback that stores the shown part of a slot. Called after each message of a slot that needs several."""

    async def __call__(self, message_ids: tuple[str, ...]) -> None:
        """Store these as the slot's messages, so that a retry continues after it."""
        ...


class Channel(Protocol):
    """Platform adapter. `show` raises only `SendFailed` for failures of the platform or the network."""

    @property
    def name(self) -> str:
        """The channel's name, as in `Conversation.channel`."""
        ...

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled. Called once, as one task of the daemon."""
        ...

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Make the messages of `showing.slot.message_ids`, none at first, show this content. Return their ids now.

        Existing messages are edited, missing ones added and surplus ones removed. Idempotent except for an added
        message (`SendFailed.creating`).
        """
        ...

    async def typing(self, conversation: Conversation) -> None:
        """Show a typing indicator for some seconds, where the platform has one.

        Raises only `SendFailed` with `WAIT`, when the platform wants no indicator there for a while.
        """
        ...

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """Return the rate limits of a message there, widest scope first. A ban of a scope covers all inside it."""
        ...

    @property
    def streams(self) -> bool:
        """True when an answer is shown while it streams: its slot is created early, then edited."""
        ...

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Download a file of a message of this conversation and pass its pieces to `write`. Safe to repeat.

        An exception of `write` ends the download and propagates. Raises `FetchFailed` for failures of the platform or
        the network; its `retryable` says whether a retry may help.
        """
        ...

    def trouble(self) -> str:
        """Return the reason why the channel does not work now, for health checks; empty when it works."""
        ...


@runtime_checkable
class MarksReceipt(Protocol):
    """Channel that marks what it received until that is answered. Optional."""

    def answered(self, messages: Sequence[Inbound]) -> None:
        """Take the marks off messages of a turn that has ended and is answered. Return at once; repeating is safe."""
        ...

    def stopped(self, conversation: Conversation) -> None:
        """Take the marks off all messages here: a stop is announced once for several turns. Return at once."""
        ...


@runtime_checkable
class WithAccounts(Protocol):
    """Channel that reports the state of each of its accounts, for metrics. Optional."""

    def accounts_up(self) -> Mapping[str, bool]:
        """Return whether each account works now, by account name."""
        ...


class Auth(StrEnum):
    """Access rule of an endpoint. Checked by `gateway.server.http` before it calls the handler."""

    COOKIE = "cookie"
    """Only a person signed in on the page."""
    SIGNED = "signed"
    """Anyone; the handler verifies the platform's signature before it parses anything."""
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """HTTP route that a channel adds to the daemon's one server."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    """aiohttp handler. With `COOKIE`, `request["owner"]` is the `OwnerName`."""
    auth: Auth


class HttpChannel(Channel, Protocol):
    """Channel that receives events through the daemon's HTTP server."""

    def endpoints(self) -> Sequence[Endpoint]:
        """Return its routes. Called once, before `run`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """Command as the page and the platforms complete it."""

    name: str
    usage: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """First data that a page needs after sign-in."""

    owner: OwnerName
    main: SessionId
    commands: Sequence[CommandInfo]
    model: str
    version: str
    currency: str = "USD"
    """Currency whose millionths `Usage.cost_micros` counts."""
    warning: str = ""
    """Sentence about a store that may lose something."""


COOKIE = "dragoman"
"""Name of the sign-in cookie, and of the sub-protocol that a page's WebSocket names before its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Proof of a sign-in. Neither half is of use without the other."""

    cookie: str = field(repr=False)
    """Browsers send it to every port of the host, so also to a server of a tool."""
    key: str = field(repr=False)
    """Kept by the page, which alone can read it; sent with every request."""

    @property
    def text(self) -> str:
        """Text form of both halves. The store keeps its hash."""
        return f"{self.cookie}.{self.key}"


class ArtifactKind(StrEnum):
    """Kind of artifact of a call. Each artifact is a file of its own."""

    PRINTED = "printed"
    """Complete output, when it is longer than the result shows. At most one per call."""
    PICTURE = "picture"
    FILE = "file"
    """Any other file for people."""
    SPOKEN = "spoken"
    """A spoken answer. At most one per step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Recording that a person sent."""

    data: bytes
    media_type: str


class Recordings(Protocol):
    """Recordings that people sent, as the web page plays them."""

    async def recording(self, owner: OwnerName, turn: TurnId, message: InboundId, k: int) -> Recording | None:
        """Return file `k` of a message, counted from 0; None when there is no recording that this owner may hear.

        Raises `FileAway` when it is on a node that cannot be asked now.
        """
        ...


class WebApi(Protocol):
    """Queries and commands of the web page, by owner. Raises `Forbidden` for another owner's main session."""

    async def sign_in(self, code: str, source: str) -> tuple[OwnerName, Credential] | None:
        """Redeem the code of a sign-in link, once. Return None for a code that is not valid.

        Raises `Forbidden` after too many failures of this `source`.
        """
        ...

    async def sign_out(self, credential: Credential) -> None:
        """End a sign-in."""
        ...

    def welcome(self, owner: OwnerName) -> Welcome:
        """Return the first data of a page."""
        ...

    async def sessions(self, owner: OwnerName) -> Sequence[SessionLine]:
        """Return the sessions that this owner may see, the owner's main session first."""
        ...

    async def changes(self, owner: OwnerName, session: SessionId, after: int) -> RowPage:
        """Return the rows changed after a revision, at most 500."""
        ...

    async def older(self, owner: OwnerName, session: SessionId, before: int | None) -> RowPage:
        """Return the last 200 rows before a place; None: the newest."""
        ...

    def card(self, owner: OwnerName, wait: Wait) -> CardRow | QuestionCard:
        """Return an approval as a card of this owner's page, with buttons that are valid there."""
        ...

    async def output(
        self, owner: OwnerName, turn: TurnId, n: int, what: ArtifactKind = ArtifactKind.PRINTED, k: int = 0
    ) -> Path | None:
        """Return the path of the `k`th artifact of this kind of a call, counted from 0 in each kind; None when there is
        none.
        """
        ...

    async def saw(self, owner: OwnerName) -> None:
        """Store that the owner has the page open now."""
        ...

    def watch(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Subscribe to topics of the event bus until the context ends."""
        ...


class SignIns(Protocol):
    """Lookup of sign-ins. Used by `gateway.server.http` before a handler with `Auth.COOKIE`."""

    async def owner_of(self, credential: Credential) -> OwnerName | None:
        """Return the owner of this sign-in; None when it is not valid now."""
        ...


class ChannelKeyValue(Protocol):
    """Key-value store of one channel: small facts that outlive a restart."""

    async def read(self) -> Mapping[str, str]:
        """Return all pairs."""
        ...

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None when there is none, or it has expired."""
        ...

    async def keep(self, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store a pair, in place of an older value of the key; durable when it returns. It expires after `ttl`.

        Give each thing a key of its own: another node may store the next one meanwhile.
        """
        ...


class ChannelHost(Protocol):
    """Services of the daemon for a channel, besides receiving its events."""

    async def hold(self, name: str, ttl: timedelta) -> NamedLease | None:
        """Take or renew a named lease, for instance of the only poller of a token. Return None while another node
        holds it.
        """
        ...

    async def alert(self, key: str, text: str, *, under: NamedLease | None = None) -> None:
        """Send every owner a message about something that needs a person; at most once an hour for the same key.

        Nothing is sent when another node took the lease `under` since: it reports its own trouble.
        """
        ...

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        """Return the commands of a kind of session, to be registered with the platform."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """Constructor argument of a channel, and its only access to the gateway."""

    name: str
    settings: Any
    """Instance of `ChannelSpec.settings`; without one, the table as configured."""
    host: ChannelHost
    key_value: ChannelKeyValue
    client: ClientSession
    """The daemon's only HTTP client session: no total timeout, no redirect rules of its own."""
    public_url: str
    """Base URL at which the platform reaches the daemon's server, without a final slash; empty when not configured."""
    clock: Clock
    fail_point: Callable[[str], Awaitable[None]]
    """Fail point hook: await it with the point's name. A no-op outside of fault tests."""
