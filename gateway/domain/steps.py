"""Step types: the journal of a turn, and the usage of model answers. Written by `TurnJournal`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gateway.domain.hooks import HookOutcome
from gateway.domain.ids import TurnId
from gateway.domain.tools import ToolCall, ToolResult


class StepKind(StrEnum):
    """Kind of a journalled act."""

    MODEL = "model"
    TOOL = "tool"


class StepState(StrEnum):
    """State of a tool call. A model step is stored when it is finished."""

    PLANNED = "planned"
    """Part of a stored answer; not executed yet."""
    ASKED = "asked"
    """A wait is open, or decided and not yet consumed."""
    STARTED = "started"
    """Its effect may have begun."""
    FINISHED = "finished"
    """The result is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and cost of a model answer."""

    input_tokens: int = 0
    """All tokens read, cached ones included."""
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the configured currency; 0 when no price is known."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
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
    """Name of the model that gave it."""
    usage: Usage = field(default_factory=Usage)
    opaque: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that a provider wants back unchanged (reasoning), by provider; never interpreted here."""
    note: str = ""
    """Note for the person, for instance that a fallback answered. One line; no model is given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Journalled act of a turn, as stored. Numbers grow by one in a turn, in the order of answers and calls."""

    turn: TurnId
    n: int
    kind: StepKind
    state: StepState
    answer: Answer | None = None
    """Answer of a model step."""
    call: ToolCall | None = None
    """Call of a tool step."""
    answer_n: int = 0
    """For a tool step: number of the model step with its call."""
    result: ToolResult | None = None
    hook_outcome: HookOutcome | None = None
    """For a tool step: outcome of the hooks before it; None when none has run."""
    asked_anew: bool = False
    """True when its approval or question expired in a downtime and was asked again; that happens once."""
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def arguments(self) -> str:
        """JSON text of the arguments that are decided and run: the model's, or those of a hook."""
        if self.hook_outcome is not None and self.hook_outcome.arguments is not None:
            return self.hook_outcome.arguments
        return "" if self.call is None else self.call.arguments
