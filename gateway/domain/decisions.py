"""Decisions: whether a call may run, and the reason when it may not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class DenyReason(StrEnum):
    """Why a call did not run. Stored, counted, asserted in tests."""

    UNKNOWN_TOOL = "unknown_tool"
    BLOCKED = "blocked"
    NOT_IN_MAIN = "not_in_main"
    ONLY_IN_MAIN = "only_in_main"
    NOT_GRANTED = "not_granted"
    """A child's parent did not give it this tool."""
    INVALID_ARGUMENTS = "invalid_arguments"
    CONFIGURED = "configured"
    """The configuration says deny."""
    NOBODY_TO_ASK = "nobody_to_ask"
    TOO_MANY_OPEN = "too_many_open"
    """So many calls of this person wait for a decision in this session that no further one is asked about."""
    TOO_LONG_TO_SHOW = "too_long_to_show"
    SANDBOX_MISSING = "sandbox_missing"
    NOT_INSTALLED = "not_installed"
    """What it needs is not installed here."""
    LOOP = "loop"
    """The same call was made over and over in this turn."""
    POLICY_ERROR = "policy_error"
    """The decision itself failed, so the answer is no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call may run now."""

    because: str
    scoped: bool = False
    """True when a person allowed its scope before: by the settings alone it would be asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The call waits for a button pressed by someone who may press it."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call will not run. Becomes a refused `ToolResult`; never an exception."""

    reason: DenyReason
    hint: str
    """One sentence the model and the person can act on."""


Decision: TypeAlias = Allow | Ask | Deny
