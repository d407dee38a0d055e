"""Sessions and turns: one history, and one run over its next messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.model.ids import PAGE, InboundId, NodeId, OwnerName, Principal, SessionId, TurnId, main_session
from gateway.model.messages import Conversation


class SessionKind(StrEnum):
    """What a session may have, decided at ingress and stored."""

    MAIN = "main"
    """An owner speaking directly."""
    DM = "dm"
    """Another allowed person speaking directly."""
    NON_MAIN = "non-main"
    """Groups, channels, threads, children."""


class Origin(StrEnum):
    """Where a session comes from."""

    DIRECT = "direct"
    GROUP = "group"
    THREAD = "thread"
    CHILD = "child"


class SpawnMode(StrEnum):
    """How a child's end reaches its parent."""

    RUN = "run"
    """As the result of the call that spawned it: the parent's turn waits."""
    SESSION = "session"
    """Later, as a message into the parent's session: the call returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Where a child comes from, and what it was given. Never changes."""

    parent: SessionId
    turn: TurnId
    """The parent's turn whose step `n` spawned it."""
    n: int
    root: SessionId
    """The session at the top, which no one spawned."""
    root_turn: TurnId
    """The turn of the root that all this works for."""
    conversation: Conversation
    """Where that turn began: cards and notes of the child stand there."""
    depth: int
    """1 for a child of a root; at most 2."""
    mode: SpawnMode
    agent: str = ""
    """One of the configured agents; empty: as its parent."""
    model: str = ""
    """One of the configured models; empty: the agent's or the parent's."""
    active_s: float
    """Seconds that its turn may work; waiting for a decision does not count."""
    tokens: int
    """Tokens that its turn may use, a part of its parent's; 0 when there is no limit."""


MAX_DEPTH = 2
LIVE_BELOW_A_ROOT = 5
CHILDREN_A_TURN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One history. Its id never changes; `epoch` counts its fresh starts (`/new`)."""

    id: SessionId
    kind: SessionKind
    origin: Origin
    owner: OwnerName | None
    """The owner whose main session it is, or is at its root; None for every other kind."""
    title: str
    """How it is called in lists."""
    epoch: int
    root_kind: SessionKind
    """The kind whose approval rules hold: its own, or for a child its root's."""
    tools: tuple[str, ...] | None = None
    """For a child: the only tools it may have, already a part of its parent's. None: the kind decides."""
    created_at: datetime
    active_at: datetime
    lineage: Lineage | None = None
    """For a child: where it comes from."""
    summary: str = ""
    """What was said before the turns that `Views.history` gives, in short; empty when nothing was left out, and in
    lists."""


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


def home_of(session: Session) -> SessionId:
    """Whose folder a session works in: its own, or for a child its root's, so that they see the same files."""
    return session.lineage.root if session.lineage else session.id


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
    refuse: bool
    """True when the sender is told; a stranger at most once a day."""
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


STOPPED_TEXT = "Stopped."
"""What a turn says that was stopped, where nobody gave other words."""

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
    stopped_text: str = ""
    """What whoever stopped it while it was held has it say at its end; empty where nobody did, or gave no words."""


LEASE_LASTS = timedelta(seconds=15)
"""From when a lease was given, or renewed."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """What one turn may use at most."""

    calls: int = 50
    active: timedelta = timedelta(minutes=15)
    """Time of work; waiting for a decision does not count."""
    tokens: int = 1_000_000
    """Read and written, those of its children included; 0 is no limit."""
    child_active: timedelta = timedelta(minutes=10)
    """Time of work of a child whose spawning named none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A configured kind of child."""

    name: str
    description: str
    """One line for the model that chooses it."""
    model: str = ""
    """One of the configured models; empty: the parent's."""
    tools: tuple[str, ...] | None = None
    """What it may have of its parent's tools; None: all of them."""
    instructions: str = ""
    """Text that follows the system prompt of children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChild:
    """A session to be spawned by a step, with its one task. Where it comes from (`Lineage`) the store knows itself."""

    session: SessionId
    """`ids.child_session` of the step."""
    title: str
    """A few words of the task, for lists; one line."""
    task: str
    """What its first message says."""
    tools: tuple[str, ...]
    """The only tools that it may have: its parent's, or some of them."""
    mode: SpawnMode
    agent: str = ""
    """As in `Lineage`; so are those that follow."""
    model: str = ""
    active_s: float
    tokens: int
    expires_at: datetime
    """For RUN: when the parent waits no longer, and the child is stopped."""


class SpawnRefusal(StrEnum):
    """Why a child was not spawned."""

    TOO_DEEP = "too_deep"
    TOO_MANY_LIVE = "too_many_live"
    """Five live ones are below the root already."""
    TOO_MANY_IN_TURN = "too_many_in_turn"
    STOPPING = "stopping"
    """The parent's turn was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLine:
    """A child as lists show it."""

    session: Session
    """With its lineage."""
    turn: Turn
    """The one that does its task."""
    waiting: int
    """Open approvals."""
    input_tokens: int
    output_tokens: int
    """Of that turn so far."""


def child_place(session: SessionId) -> Conversation:
    """Where a child's own turns take place: nobody reads along but the page, where the rows themselves are shown."""
    return Conversation(channel=PAGE, account="child", chat=session)
