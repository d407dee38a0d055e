"""Results of routing a message: route, drop, and the accepted message. Decided by `gateway.policy.routing`, stored by
ingress.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.domain.ids import InboundId, OwnerName, SessionId, TurnId, main_session
from gateway.domain.sessions import Origin, Session, SessionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Session that a message belongs to."""

    session: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    title: str


def main_route(owner: OwnerName) -> Route:
    """Return the route to the owner's main session."""
    return Route(
        session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner)
    )


def empty_session(route: Route, now: datetime) -> Session:
    """Return the session of a route before anything is stored in it."""
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
    """Reason why a message started no turn. Stored with it."""

    STRANGER = "stranger"
    """This person is not allowed."""
    CHAT_NOT_ALLOWED = "chat_not_allowed"
    """This group, channel or thread is not allowed."""
    EMPTY = "empty"
    """The message has no content that can be answered."""
    UNREADABLE = "unreadable"
    """The message has only content that cannot be read yet: a picture, a voice message."""
    EDITED_LATE = "edited_late"
    """The message edits one that its turn was given already, or that was never accepted."""
    TOO_FAST = "too_fast"
    """This person wrote more messages in a minute than are read."""
    CONTEXT = "context"
    """The message does not address the bot, in an allowed group: stored for the next turn there, as data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The message starts no turn; a row states the reason."""

    reason: DropReason
    told: bool
    """True when the sender gets a reply; a stranger at most once a day."""
    route: Route | None = None
    """For `CONTEXT`: route of the session it is stored for."""


class WhileRunning(StrEnum):
    """Effect of a message that arrives while a turn of its session runs."""

    STEER = "steer"
    """Join the running turn at its next step, if it is of the same person in the same conversation."""
    QUEUE = "queue"
    """Start a turn of its own after the running one."""
    INTERRUPT = "interrupt"
    """Stop the running turn and be the next one, under the conditions of STEER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Result of accepting a routed message."""

    inbound: InboundId
    turn: TurnId
    duplicate: bool = False
    """True when this event was stored before; nothing was written now."""
    steered: bool = False
    """True when it joined an active turn instead of starting one."""
    waiting: bool = False
    """True when that turn, or one before it, waits for a decision."""
    answers: bool = False
    """True when it answered a question of that turn: no model is given it as a message."""
