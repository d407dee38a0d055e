"""What the memory store keeps of each thing beside the model's own types: leases, queues, senders."""

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
    """What was said beside the bot since the last model turn of this epoch was made."""
    summed_up: int = 0
    """How many of its ended turns, of all epochs, are before or in the summary; 0 when there is none."""
    task: TurnId | None = None
    """For a child: the turn that does its task."""
    parent_wait: WaitId | None = None
    """For a child in mode RUN: the wait of its parent."""


@dataclass(slots=True)
class TurnRow:
    """A turn and what only the store knows of it."""

    turn: Turn
    queued_at: datetime
    queued_rev: int
    node: NodeId | None = None
    fence: int = 0
    lease_until: datetime | None = None
    held_since: datetime | None = None
    held_until: datetime | None = None
    """Not claimed before: its last message was cut off, and what follows joins it."""
    early: dict[SlotId, SlotRow] = field(default_factory=lambda: dict[SlotId, SlotRow]())
    """Slots of an answer that is still being written, which no answer took over yet."""
    status: dict[SlotId, SlotRow] = field(default_factory=lambda: dict[SlotId, SlotRow]())
    """Its status lines, while it has not ended."""
    stopped_text: str = STOPPED_TEXT
    """What is said when nobody is left to end it after a stop."""
    inputs: list[InboundId] = field(default_factory=list[InboundId])
    steps: list[Step] = field(default_factory=list[Step])
    waits: list[WaitId] = field(default_factory=list[WaitId])
    started_under: dict[int, int] = field(default_factory=dict[int, int])
    """The fence under which a step was started last."""


@dataclass(slots=True)
class Lane:
    """A session's turns of one kind that have not ended, oldest first."""

    turns: dict[TurnId, TurnRow] = field(default_factory=dict[TurnId, TurnRow])
    held: int = 0


@dataclass(slots=True)
class SlotRow:
    """A slot, its age, and who is sending it."""

    slot: Slot
    seq: int
    """Grows with each slot made; the outbox goes by it."""
    node: NodeId | None = None
    sending_since: datetime | None = None
    shown_by: NodeId | None = None
    """Who shows the beginning of an answer, or a status line of a turn at work, and may be editing it."""
    again_at: datetime | None = None
    """When it is to be shown once more: an edit that nobody hears of may stand over it."""
    again_over: int = 0
    """The oldest version of which there may be such an edit; what is no newer need not be shown again."""
