"""Turns: one run over a session's next messages, and the right to run it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.ids import NodeId, Principal, SessionId, TurnId
from gateway.domain.messages import Conversation


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
    """Milliseconds it was held so far; parked time does not count, and none after the end of a lease."""
    stopped_text: str = ""
    """What whoever stopped it while it was held has it say at its end; empty where nobody did, or it has nothing to
    say: the reply to the command stands in its conversation."""


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
class TurnLimits:
    """What one turn may use at most."""

    calls: int = 50
    active: timedelta = timedelta(minutes=15)
    """Time of work; waiting for a decision does not count."""
    tokens: int = 1_000_000
    """Read and written, those of its children included; 0 is no limit."""
    open_approvals: int = 3
    """Approvals of one person that may be open in a session; an owner's own session, with its children, has no limit.
    """
    child_active: timedelta = timedelta(minutes=10)
    """The most a child may work; one whose spawning names no time gets all of it."""
