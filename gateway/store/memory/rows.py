"""Rows of the memory store: domain types with their leases, queue places and senders."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from gateway.domain.ids import InboundId, NodeId, SlotId, TurnId, WaitId
from gateway.domain.messages import CONTEXT_KEPT
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot
from gateway.domain.steps import Step
from gateway.domain.turns import STOPPED_TEXT, Turn


@dataclass(slots=True)
class SessionRow:
    """A session and the revision of its last change."""

    session: Session
    rev: int
    context: deque[InboundId] = field(default_factory=lambda: deque[InboundId](maxlen=CONTEXT_KEPT))
    """Overheard messages since the last model turn of this epoch was created."""
    summed_up: int = 0
    """Number of ended turns, of all epochs, before or in the summary; 0 without one."""
    task: TurnId | None = None
    """For a child: the turn of its task."""
    parent_wait: WaitId | None = None
    """For a child in mode RUN: the wait of its parent."""


@dataclass(slots=True)
class TurnRow:
    """A turn with the fields that only the store knows."""

    turn: Turn
    queued_at: datetime
    queued_rev: int
    node: NodeId | None = None
    fence: int = 0
    lease_until: datetime | None = None
    held_since: datetime | None = None
    held_until: datetime | None = None
    """Not claimable before: the rest of its last message is expected."""
    early: dict[SlotId, SlotRow] = field(default_factory=lambda: dict[SlotId, SlotRow]())
    """Draft slots that no answer took over yet."""
    status: dict[SlotId, SlotRow] = field(default_factory=lambda: dict[SlotId, SlotRow]())
    """Its status lines, until it ends."""
    stopped_text: str = STOPPED_TEXT
    """Text shown after a stop when no holder is left to end it."""
    inputs: list[InboundId] = field(default_factory=list[InboundId])
    steps: list[Step] = field(default_factory=list[Step])
    waits: list[WaitId] = field(default_factory=list[WaitId])
    started_under: dict[int, int] = field(default_factory=dict[int, int])
    """Fence of each step's last start."""


@dataclass(slots=True)
class Lane:
    """A session's turns of one kind that have not ended, oldest first."""

    turns: dict[TurnId, TurnRow] = field(default_factory=dict[TurnId, TurnRow])
    held: int = 0


@dataclass(slots=True)
class SlotRow:
    """A slot with its age and its sender."""

    slot: Slot
    seq: int
    """Increases with each slot created; the order of the outbox."""
    node: NodeId | None = None
    sending_since: datetime | None = None
    shown_by: NodeId | None = None
    """Node that shows a draft or a status line of a running turn, and may be editing it."""
    again_at: datetime | None = None
    """When to show it once more: an edit with unknown result may have overwritten it."""
    again_over: int = 0
    """Oldest version that such an edit may show; versions no newer than it need not be shown again."""
