"""Events of the `EventBus`: wake-ups and streamed deltas. All of them may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.file_changes import FileChangeKind
from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.waits import WaitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Rows of a session changed; subscribers query the store from their last revision."""

    session: SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsDue:
    """A turn can be claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsDue:
    """A slot can be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWoken:
    """Wake-up of a turn's holder: a wait was decided, or a stop or a steering message arrived."""

    turn: TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """Next piece of the answer that becomes step `n`; `start` is its offset in characters."""

    session: SessionId
    turn: TurnId
    n: int
    start: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDelta:
    """Next piece of output of the tool call of step `n`; `start` is its offset in characters."""

    session: SessionId
    turn: TurnId
    n: int
    start: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnActive:
    """A turn is running on this node. Published when it is claimed and with each renewal of its lease, not while
    parked.
    """

    session: SessionId
    turn: TurnId
    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReleased:
    """A turn is no longer running on this node: it ended, was parked or was released."""

    turn: TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Current activity of a turn: its running calls, or else its open waits. With neither, the model is asked next."""

    calls: tuple[str, ...] = ()
    """Tool and argument of each call, `shell: df -h`, of any length and with secrets."""
    waits: tuple[WaitKind, ...] = ()
    tail: str = ""
    """Last line that the first call printed; empty when it printed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressChanged:
    """Current activity of a root's turn, by the root or by a child, for the turn's status line."""

    turn: TurnId
    """Turn of the root, to which the status line belongs."""
    conversation: Conversation
    """Conversation in which that turn began."""
    by: SessionId
    """Acting session: the root, or a child."""
    title: str
    """Title of the child; empty for the root."""
    text: str
    """One line of plain text: `shell: df -h`, `thinking`, `waits for a decision`; empty when it has ended."""
    waits: frozenset[WaitKind] = frozenset()
    """Kinds of the open waits, when nothing else is running."""
    tail: str = ""
    """Last line that the root's running call printed, redacted; empty for a child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsStopped:
    """The jobs of a session's family shall end, by /stop, /new or sessions_stop."""

    session: SessionId
    """The root session."""
    only: Principal | None
    """Principal whose jobs are meant; None: everybody's."""
    why: str
    """Reason in one sentence."""
    below: SessionId | None = None
    """Sub-session whose jobs are meant, with those of all below it; None: the whole family's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKilled:
    """A job shall end, by a call on another node."""

    session: SessionId
    """The root session."""
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanged:
    """A call of a file tool changed a file of a workspace. After a crash it may be published again."""

    session: SessionId
    turn: TurnId
    n: int
    """Step of the call."""
    path: str
    """Relative to the workspace."""
    kind: FileChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """A node was drained, or may work again; each node reads how it stands with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOut:
    """A sign-in on the page ended; open pages ask whether it was theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Events may have been lost, as after a reconnect. Subscribers of any topic read again what the store has of it."""


LiveEvent: TypeAlias = (
    Changed
    | TurnsDue
    | SlotsDue
    | TurnWoken
    | TextDelta
    | OutputDelta
    | TurnActive
    | TurnReleased
    | ProgressChanged
    | JobsStopped
    | JobKilled
    | FileChanged
    | NodesChanged
    | SignedOut
    | LookAgain
)

TURNS = "turns"
SLOTS = "slots"
SESSIONS = "sessions"
"""Topic of every `Changed`, for lists of sessions."""
ANSWERS = "answers"
"""Topic of every `TextDelta`, `TurnActive`, `TurnReleased` and `ProgressChanged`; live edits subscribe to it. Published
to the sender of the conversation's account.
"""

SIGN_INS = "sign-ins"
"""Topic of every `SignedOut`."""
NODES = "nodes"
"""Topic of every `NodesChanged`."""
JOBS = "jobs"
"""Topic of every `JobsStopped` and `JobKilled`."""
FILES = "files"
"""Topic of every `FileChanged`, on the node whose workspace it is."""


def session_topic(session: SessionId) -> str:
    """Return the topic of one session: `Changed`, `TextDelta`, `OutputDelta`."""
    return f"session/{session}"


def turn_topic(turn: TurnId) -> str:
    """Return the topic of one turn: `TurnWoken`."""
    return f"turn/{turn}"
