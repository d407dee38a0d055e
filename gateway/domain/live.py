"""What travels through `EventBus`: wake-ups and streamed deltas. All of it may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.waits import WaitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Rows of a session changed; readers ask the store from their last revision."""

    session: SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsDue:
    """A turn can be claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsDue:
    """A slot can be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWoken:
    """Something about a turn was decided: a wait, a stop, a steering message."""

    turn: TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More text of the answer that becomes step `n`; `start` is its offset in characters."""

    session: SessionId
    turn: TurnId
    n: int
    start: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDelta:
    """More output of the tool call that is step `n`; `start` is its offset in characters."""

    session: SessionId
    turn: TurnId
    n: int
    start: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnActive:
    """A turn is being worked on here; said when it is claimed and with each renewal of its lease, not while parked."""

    session: SessionId
    turn: TurnId
    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReleased:
    """A turn is not worked on here any more: it ended, was parked or given back."""

    turn: TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What is done now for a turn."""

    text: str = ""
    """One line of plain text: `shell: df -h`, `waits for a decision`; empty: no call is at work."""
    waits: frozenset[WaitKind] = frozenset()
    """What is waited for, when nothing else is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressChanged:
    """What is done now for a turn of a root, by itself or by a child, for its status line."""

    turn: TurnId
    """The root's turn, whose line it is."""
    conversation: Conversation
    """Where that began."""
    by: SessionId
    """The session that does it: the root, or a child."""
    title: str
    """The child's title; empty for the root."""
    text: str
    """One line of plain text: `shell: df -h`, `thinking`, `waits for a decision`; empty when it has ended."""
    waits: frozenset[WaitKind] = frozenset()
    """What is waited for, when nothing else is done."""


LiveEvent: TypeAlias = (
    Changed | TurnsDue | SlotsDue | TurnWoken | TextDelta | OutputDelta | TurnActive | TurnReleased | ProgressChanged
)

TURNS = "turns"
SLOTS = "slots"
SESSIONS = "sessions"
"""Every `Changed`, for whoever lists sessions."""
ANSWERS = "answers"
"""Topic of every `TextDelta`, `TurnActive`, `TurnReleased` and `ProgressChanged`; live edits subscribe to it."""


def session_topic(session: SessionId) -> str:
    """The topic of one session: `Changed`, `TextDelta`, `OutputDelta`."""
    return f"session/{session}"


def turn_topic(turn: TurnId) -> str:
    """The topic of one turn: `TurnWoken`."""
    return f"turn/{turn}"
