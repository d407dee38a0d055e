"""Turn types: one run over a session's next messages, its lease and its limits. Written by `TurnQueue`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.ids import NodeId, Principal, SessionId, TurnId
from gateway.domain.messages import Conversation


class TurnKind(StrEnum):
    """Driver of a turn."""

    MODEL = "model"
    """The configured model; one active turn at a time in a session, first come first served."""
    COMMAND = "command"
    """A tool command (`/shell …`); concurrent with the model turn, at most four running in a session."""


class TurnState(StrEnum):
    """State of a turn. `done`, `stopped` and `failed` are final."""

    QUEUED = "queued"
    """Waits for a worker: new, woken by a decision, or released by a holder."""
    RUNNING = "running"
    """Held under a lease."""
    PARKED = "parked"
    """Has nothing to run until a wait is decided; holds no lease and no memory."""
    STOPPING = "stopping"
    """Stopped by /stop while it was held: its holder may only write results."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


STOPPED_TEXT = "Stopped."
"""Last text of a stopped turn, unless who stops it chose another (`inbound.control_replies`)."""
INTERRUPTED_TEXT = "Interrupted."
"""Last text of a turn that was stopped by the message of the next one (`message_while_running`)."""

LEASE_LASTS = timedelta(seconds=15)
"""Duration of a lease, from its claim or renewal: after it another node may take the turn."""
COMMANDS_AT_ONCE = 4
"""Command turns of one session that run concurrently."""
BEGUN_AT_MOST = 10
"""Starts of a turn without an end or a decision in between. The limit stops a turn that ends the process each time."""
LIFE_BITS = 20
"""Bits of a fence below the number of the store's life."""
ENDED = frozenset({TurnState.DONE, TurnState.STOPPED, TurnState.FAILED})


def company(begun: int) -> int:
    """Return how many turns a node takes up at once when one of them was begun so often and did not end.

    A dead process leaves no trace of the turn that ended it. So the company halves with each start. A last start is
    made alone: only the turn that ends the process does not survive it.
    """
    return 2 ** max(0, BEGUN_AT_MOST - 1 - begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run over a session's next message(s). Who holds it is in the store's own row (`store.kernel`), not here."""

    id: TurnId
    session: SessionId
    epoch: int
    kind: TurnKind
    state: TurnState
    conversation: Conversation
    """Conversation in which it began; its answers and, in a main session, its cards go there."""
    principal: Principal
    created_at: datetime
    started_at: datetime | None
    """Time of the first claim."""
    ended_at: datetime | None
    active_ms: int
    """Milliseconds under a lease so far; parked time does not count, and none after the lease's end."""
    stopped_text: str = ""
    """Last text given by the command that stopped it. Empty without one, and when the command's reply stands in its
    conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Right to run one turn, until the turn is reclaimed. Every write carries `fence`."""

    turn: TurnId
    session: SessionId
    node: NodeId
    fence: int
    """Number that grows with each claim of the turn, so that a stale holder's writes are refused."""
    home: str = ""
    """Id of the place that holds the workspaces of its holder. Empty where one node has all files."""

    @property
    def claims(self) -> int:
        """Return the number of claims of the turn since the store's last loss."""
        return self.fence & ((1 << LIFE_BITS) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLease:
    """Right to be the only one that does something, such as polling a bot, until it expires."""

    name: str
    node: NodeId
    fence: int
    """Number that grows whenever another node takes the name, so that a stale holder's writes are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """Limits of one turn."""

    calls: int = 50
    active: timedelta = timedelta(minutes=15)
    """Maximum time of work; waiting for a decision does not count."""
    tokens: int = 1_000_000
    """Maximum tokens, input and output, those of its children included; 0 is no limit."""
    open_approvals: int = 3
    """Maximum open approvals of one person in a session; twice as many in all sessions. An owner's own session, with
    its children, has no limit."""
    child_active: timedelta = timedelta(minutes=10)
    """Maximum time of work of a child, and its default when the spawning call names none."""
