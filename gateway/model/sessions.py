"""Sessions and turns: one history, and one run over its next messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.model.ids import InboundId, NodeId, OwnerName, Principal, SessionId, TurnId
from gateway.model.messages import Conversation


class SessionKind(StrEnum):
    """What a session may have, decided at ingress and stored."""

    MAIN = "main"
    """An owner speaking directly."""
    DM = "dm"
    """Another allowed person speaking directly."""
    NON_MAIN = "non-main"
    """Groups, channels, threads, children, timers, hooks."""


class Origin(StrEnum):
    """Where a session comes from."""

    DIRECT = "direct"
    GROUP = "group"
    THREAD = "thread"
    CHILD = "child"
    TIMER = "timer"
    HOOK = "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One history. Its id never changes; `epoch` counts its fresh starts (`/new`)."""

    id: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    """The owner whose main session it is; None for every other kind."""
    title: str
    """How it is called in lists."""
    epoch: int
    root_kind: SessionKind
    """The kind whose approval rules hold: its own, or for a child its root's."""
    tools: tuple[str, ...] | None = None
    """For a child: the only tools it may have, already a part of its parent's. None: the kind decides."""
    created_at: datetime
    active_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message goes."""

    session: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    title: str


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
    NOT_ADDRESSED = "not_addressed"
    """The bot was not meant."""
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
    refuse: bool
    """True when the sender is told; a stranger at most once a day."""
    route: Route | None = None
    """For `CONTEXT`: the session it is kept for."""


class TurnKind(StrEnum):
    """What drives a turn."""

    MODEL = "model"
    """The configured model; one active at a time in a session, first come first served."""
    COMMAND = "command"
    """A tool command (`/shell …`); beside the model turn, at most four running in a session."""


class TurnState(StrEnum):
    """Where a turn stands. `done`, `stopped` and `failed` are final."""

    QUEUED = "queued"
    """Waits for a runner: new, or woken by a decision, or given back by a holder."""
    RUNNING = "running"
    """Held under a lease."""
    PARKED = "parked"
    """Nothing to run until a wait is decided; holds no lease and no memory."""
    STOPPING = "stopping"
    """Somebody said /stop while it was held: its holder may only write results."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


ENDED = frozenset({TurnState.DONE, TurnState.STOPPED, TurnState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run over a session's next message(s)."""

    id: TurnId
    session: SessionId
    epoch: int
    kind: TurnKind
    state: TurnState
    conversation: Conversation
    """Where it began; its answers and, in a main session, its cards go there."""
    principal: Principal
    created_at: datetime
    started_at: datetime | None
    """When it was first claimed."""
    ended_at: datetime | None
    active_ms: int
    """Milliseconds it was held so far; parked time does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one turn, until it is taken away. Every write carries `fence`."""

    turn: TurnId
    session: SessionId
    node: NodeId
    fence: int
    """Grows with each claim of the turn, so that a stale holder's writes are refused."""
    expires_at: datetime


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
