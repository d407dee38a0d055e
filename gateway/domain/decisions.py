"""Decision types: allow, ask or deny a call, each with its reason. Returned by `gateway.policy.permission`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from gateway.domain.ids import GrantId
from gateway.domain.rules import Rule


class DenyReason(StrEnum):
    """Reason why a call did not run. Stored, counted, asserted in tests."""

    UNKNOWN_TOOL = "unknown_tool"
    BLOCKED = "blocked"
    NOT_IN_MAIN = "not_in_main"
    ONLY_IN_MAIN = "only_in_main"
    NOT_GRANTED = "not_granted"
    """A child's parent did not grant this tool."""
    INVALID_ARGUMENTS = "invalid_arguments"
    CONFIGURED = "configured"
    """The configuration denies it."""
    NOBODY_TO_ASK = "nobody_to_ask"
    TOO_MANY_OPEN = "too_many_open"
    """This person has the maximum number of open approvals in this session."""
    TOO_LONG_TO_SHOW = "too_long_to_show"
    SANDBOX_MISSING = "sandbox_missing"
    NOT_INSTALLED = "not_installed"
    """A package that it needs is not installed here."""
    HOOK = "hook"
    """A hook of the owner refused it, or failed."""
    LOOP = "loop"
    """The same call was repeated too often in this turn."""
    POLICY_ERROR = "policy_error"
    """The decision itself failed, so the call is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call may run now."""

    because: str
    no_network: bool = False
    """True when it may run only while its programs reach no network and see the workspace read-only, as a reading
    command that nobody was asked about."""
    masked: bool = False
    """True when a part of its command was allowed because it only reads: then secret files are hidden from all."""
    rule: Rule | None = field(default=None, compare=False)
    """Rule or grant that decided; None: the default of the risk, or a scope."""
    grant: GrantId | None = None
    """Grant that allows it; by the settings and rules alone it would be `Ask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The call waits for a button press by an authorised person."""

    because: str
    warning: str = ""
    """Sentence for the card about what the action as shown does not say; empty when there is none."""
    rule: Rule | None = field(default=None, compare=False)
    """As in `Allow`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call does not run. Becomes a refused `ToolResult`; never an exception."""

    reason: DenyReason
    hint: str
    """One sentence that the model and the person can act on."""
    rule: Rule | None = field(default=None, compare=False)
    """As in `Allow`."""


Decision: TypeAlias = Allow | Ask | Deny


def place_of(decision: Decision) -> str:
    """Return the place of the rule that decided, for people; empty when none did."""
    return "" if decision.rule is None else decision.rule.where
