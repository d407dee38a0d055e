"""Where channels meet the gateway: what they push into, what they offer, what they are built with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from gateway.model.ids import OwnerName, SessionId, TurnId
from gateway.model.live import LiveEvent
from gateway.model.messages import Inbound, Press
from gateway.model.sessions import Accepted
from gateway.model.slots import CardRow, Showing
from gateway.model.views import Rows, SessionLine
from gateway.model.waits import Pressed, Wait
from gateway.ports.clock import Clock


class Sink(Protocol):
    """Where a channel pushes what it normalised. Returns after the commit: acknowledge then, not before."""

    async def message(self, message: Inbound) -> Accepted | None:
        """Take a message. None: it was dropped or answered at ingress. Raises `StoreError`: do not acknowledge."""
        ...

    async def press(self, press: Press) -> Pressed:
        """Take a press and say what came of it, in time to answer the platform."""
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

    async def send(self, showing: Showing) -> str:
        """Show a new message and return the platform's id of it."""
        ...

    async def edit(self, showing: Showing) -> None:
        """Change the message `showing.slot.platform_id` to this content. Twice is safe."""
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


class Desk(Protocol):
    """What the web page may see and ask, by owner. Raises `Forbidden` for another owner's main session."""

    async def sign_in(self, code: str, source: str) -> tuple[OwnerName, str] | None:
        """Redeem a link's code: the owner and `<cookie>.<key>`, or None.

        Browsers send a cookie to every port of a host; so a page also shows a key that only its own origin can read.
        `Forbidden` after too many failures.
        """
        ...

    async def sign_out(self, cookie: str) -> None:
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

    async def output(self, owner: OwnerName, turn: TurnId, n: int) -> Path | None:
        """The file with everything a call printed."""
        ...

    async def saw(self, owner: OwnerName) -> None:
        """The page is open now."""
        ...

    def watch(self, *topics: str) -> AbstractAsyncContextManager[AsyncIterator[LiveEvent]]:
        """Listen to what happens."""
        ...


class Desks(Protocol):
    """Who is signed in; asked by `http` before a handler with `Auth.COOKIE` is called."""

    async def owner_of(self, cookie: str) -> OwnerName | None:
        """Whose cookie this is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """What a channel is built with. A channel sees nothing else of the gateway."""

    name: str
    settings: Any
    """Its own settings model, or the table as it stands for a channel loaded by import path."""
    desk: Desk
    clock: Clock
    fail_point: Callable[[str], Awaitable[None]]
    """Pass a named fail point; a no-op outside of fault tests."""
