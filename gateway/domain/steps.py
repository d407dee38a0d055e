"""Steps: the journalled acts of a turn, and what a model's answer cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gateway.domain.ids import TurnId
from gateway.domain.tools import ToolCall, ToolResult


class StepKind(StrEnum):
    """The journalled acts of a turn."""

    MODEL = "model"
    TOOL = "tool"


class StepState(StrEnum):
    """Where a tool call stands. A model step is stored when it is finished."""

    PLANNED = "planned"
    """Named by a stored answer; nothing was done."""
    ASKED = "asked"
    """A wait is open, or decided and not yet consumed."""
    STARTED = "started"
    """Its effect may have begun."""
    FINISHED = "finished"
    """It has its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a model answer cost."""

    input_tokens: int = 0
    """All that was read, with what was cached."""
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the configured currency; 0 when no price is known."""

    def __add__(self, other: Usage) -> Usage:
        """What both cost together."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One complete answer of a model: text, calls, or both."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """Which model gave it."""
    usage: Usage = field(default_factory=Usage)
    opaque: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a provider wants back unchanged (reasoning), by provider; never interpreted here."""
    note: str = ""
    """What the person is told besides, such as that a fallback answered. One line; no model is given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act of a turn, as stored. Numbers grow by one in a turn, in the order of the model's answers and calls."""

    turn: TurnId
    n: int
    kind: StepKind
    state: StepState
    answer: Answer | None = None
    """For a model step."""
    call: ToolCall | None = None
    """For a tool step."""
    answer_n: int = 0
    """For a tool step: the model step that named it."""
    result: ToolResult | None = None
    asked_anew: bool = False
    """True when a downtime swallowed its first approval, and it was asked again; it happens once."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
