"""Routes: where a message goes, why it starts nothing, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.domain.ids import InboundId, OwnerName, SessionId, TurnId, main_session
from gateway.domain.sessions import Origin, Session, SessionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message goes."""

    session: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    title: str


def main_route(owner: OwnerName) -> Route:
    """The way to the owner's main session."""
    return Route(
        session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner)
    )


def empty_session(route: Route, now: datetime) -> Session:
    """The session of a route as it is before anything is stored in it."""
    return Session(
        id=route.session,
        kind=route.kind,
        origin=route.origin,
        owner=route.owner,
        title=route.title,
        epoch=0,
        root_kind=route.kind,
        created_at=now,
        active_at=now,
    )


class DropReason(StrEnum):
    """Why a message started nothing. Stored with it."""

    STRANGER = "stranger"
    """Nobody allowed this person."""
    CHAT_NOT_ALLOWED = "chat_not_allowed"
    """Nobody allowed this group, channel or thread."""
    EMPTY = "empty"
    """There was nothing in it that can be answered."""
    UNREADABLE = "unreadable"
    """There was nothing in it that can be read yet: a picture, a voice message."""
    EDITED_LATE = "edited_late"
    """A new text of a message that was given to its turn already, or that was never taken."""
    CONTEXT = "context"
    """Said beside the bot in a group that is allowed: kept for the next turn there, as data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The message starts nothing; a row says why."""

    reason: DropReason
    told: bool
    """Whether the sender is told; a stranger at most once a day."""
    route: Route | None = None
    """For `CONTEXT`: the session it is kept for."""


class WhileRunning(StrEnum):
    """What a message does that comes while a turn of its session runs."""

    STEER = "steer"
    """Given to the running turn at its next step, when it is of the same person in the same conversation."""
    QUEUE = "queue"
    """A turn of its own, after this one."""
    INTERRUPT = "interrupt"
    """Under the same conditions: the running turn is stopped, and this is the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of a message that was routed."""

    inbound: InboundId
    turn: TurnId
    duplicate: bool = False
    """True when this event was stored before; nothing was written now."""
    steered: bool = False
    """True when it joined a turn that is under way instead of starting one."""
    waiting: bool = False
    """True when that turn, or one before it, waits for a decision."""
