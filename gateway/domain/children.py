"""Types of child sessions (sub-sessions): lineage, agents, spawn requests and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType

from gateway.domain.ids import PAGE, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.tool_groups import NEWEST


class SpawnMode(StrEnum):
    """Delivery of a child's result to its parent."""

    RUN = "run"
    """Its answer is the result of the call that spawned it: the parent's turn waits."""
    SESSION = "session"
    """Later, as a message into the parent's session: the call returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Origin and limits of a child. A further task changes all but its parent, root, depth, agent and model."""

    parent: SessionId
    turn: TurnId
    """Turn of the parent whose step `n` gave the child its present task."""
    n: int
    root: SessionId
    """Topmost session, which was not spawned."""
    root_turn: TurnId
    """Turn of the root on whose behalf all of this works."""
    conversation: Conversation
    """Conversation in which that turn began; the child's cards and notes go there."""
    depth: int
    """1 for a child of a root; at most 2."""
    mode: SpawnMode
    agent: str = ""
    """Name of a configured agent; empty: the parent's."""
    model: str = ""
    """Name of a configured model; empty: the agent's or the parent's."""
    active_s: float
    """Maximum seconds of work of its turn; waiting for a decision does not count."""
    tokens: int
    """Maximum tokens of its turn, a part of its parent's; 0 is no limit."""


MAX_DEPTH = 2
"""Maximum depth of a child below its root."""
LIVE_BELOW_A_ROOT = 5
"""Maximum live children below a root."""
CHILDREN_A_TURN = 20
"""Maximum tasks that one turn may give: to new children, and to ended ones."""
PARENT = "parent"
"""Name under which a child writes to its parent, whose id it need not know."""
MAX_HOPS = 4
"""Maximum messages in a row from session to session, without a word of a person between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Configured kind of child."""

    name: str
    description: str
    """One line for the model that chooses an agent."""
    model: str = ""
    """Name of a configured model; empty: the parent's."""
    tools: tuple[str, ...] | None = None
    """Allowed subset of its parent's tools; None: all of them."""
    preset: str = ""
    """Preset of its sub-sessions; empty: none but those above."""
    generation: int = NEWEST
    """Highest generation of its tools."""
    instructions: str = ""
    """Text appended to the system prompt of children."""
    without: tuple[str, ...] = ()
    """Tools that its children never have."""


_OF_THE_PARENT = ("task", "todo_read", "todo_write")
"""Tools that stay with the session that gave a task to one of `OWN_AGENTS`."""
OWN_AGENTS: Mapping[str, Agent] = MappingProxyType(
    {
        "general": Agent(name="general", description="Does all that its parent can.", without=_OF_THE_PARENT),
        "explore": Agent(
            name="explore", description="Looks and reports; changes nothing.", preset="explore", without=_OF_THE_PARENT
        ),
    }
)
"""Agents that are there without a configuration."""


def with_own_agents(configured: Mapping[str, Agent]) -> Mapping[str, Agent]:
    """Return all agents by name. One of the owner's takes the place of ours with the same name."""
    return {**OWN_AGENTS, **configured}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChild:
    """Session to be spawned by a step, with its one task. The store derives its `Lineage` itself."""

    session: SessionId
    """Id from `ids.child_session` of the step."""
    title: str
    """A few words of the task on one line, for lists."""
    task: str
    """Text of its first message."""
    tools: tuple[str, ...]
    """The only tools it may have: its parent's, or some of them."""
    mode: SpawnMode
    preset: str = ""
    """Name of its preset; empty: the default of its kind."""
    agent: str = ""
    """As in `Lineage`; so are the fields below."""
    model: str = ""
    active_s: float
    tokens: int
    expires_in: timedelta
    """For RUN: time after which the parent stops waiting, and the child is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """Message to a child that is there already: it joins the task at work, or is a further task."""

    child: SessionId
    text: str
    waits: timedelta | None
    """Longest time that the sending turn waits for the answer; None: the answer is a message later."""
    tools: tuple[str, ...]
    """The only tools that it may have from now on, of those that it has."""
    active_s: float
    """Limits of a further task, as in `Lineage`; so is `tokens`."""
    tokens: int


class MessageFate(StrEnum):
    """Fate of a message to a child that nobody waits for."""

    BEGUN = "begun"
    """It is a further task of a child that had ended."""
    JOINED = "joined"
    """The child reads it in the task at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Sub-session that a call would begin, by the names that it gives. Empty fields inherit from the session."""

    step: str = ""
    """Name of the workflow's step; empty for the only sub-session of a call."""
    agent: str = ""
    model: str = ""
    preset: str = ""
    tools: tuple[str, ...] | None = None


class SpawnRefusal(StrEnum):
    """Reason why a child was not spawned, or not given a further task."""

    TOO_DEEP = "too_deep"
    TOO_MANY_LIVE = "too_many_live"
    """Five live children are below the root already."""
    TOO_MANY_IN_TURN = "too_many_in_turn"
    STOPPING = "stopping"
    """The parent's turn was stopped."""
    ENDING = "ending"
    """The child is being stopped."""
    TOO_MANY_HOPS = "too_many_hops"
    AWAITED = "awaited"
    """The parent waits for the child's answer, and reads nothing before it."""
    """`MAX_HOPS` messages between sessions led here, and no person has written since."""


def child_place(session: SessionId) -> Conversation:
    """Return the conversation of a child's own turns. It is on the page channel, which shows the stored rows
    themselves.
    """
    return Conversation(channel=PAGE, account="child", chat=session)
