"""Children: sub-sessions, where each comes from, what it is given, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.domain.ids import PAGE, SessionId, TurnId
from gateway.domain.messages import Conversation


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


def child_place(session: SessionId) -> Conversation:
    """Where a child's own turns take place: nobody reads along but the page, where the rows themselves are shown."""
    return Conversation(channel=PAGE, account="child", chat=session)
