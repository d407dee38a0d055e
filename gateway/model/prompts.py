"""What a model is given, and what it streams back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.model.ids import CallId
from gateway.model.tools import Answer, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UserText:
    """What a person said."""

    text: str
    name: str = ""
    """Who, when more than one person speaks in the session; shown to the model as data."""
    data: str = ""
    """What others said, in labelled blocks that they cannot end: given before the text, never read as a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The one result of one call of an earlier answer."""

    call: CallId
    tool: str
    result: ToolResult


Message: TypeAlias = UserText | Answer | CallResult
"""In order: each answer's calls are followed by exactly their results, in call order, before any user text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of the answer's text, as it streams."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The answer is whole. Always the last event; a stream that ends without it raised `ModelError`."""

    answer: Answer


ModelEvent: TypeAlias = TextPart | Complete
