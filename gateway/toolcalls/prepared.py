"""Decided call with the exact action to run. Made by `decide`, run by `execution`, seen by hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.domain.scopes import NO_SCOPES, Scopes
from gateway.domain.steps import Step
from gateway.domain.tools import Action, CallScope
from gateway.domain.views import TurnView
from gateway.toolcalls.tool_set import Tool


def nothing(_: str) -> bool:
    """Return False: no path is hidden."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Decided call, with the exact action to run."""

    view: TurnView
    """The turn at the decision."""
    step: Step
    tool: Tool
    arguments: Any
    action: Action
    action_sha: str
    call_scope: CallScope
    """Scope that its tool determined."""
    scopes: Scopes = NO_SCOPES
    """Scopes that the call may reach, its own included."""
    prepared: Mapping[str, Any] | None = None
    """`Preview.state` that the call depends on; None for a tool that does not prepare."""
    preview: str = ""
    """Text of the preview."""
    exact: bool = True
    """As in `Preview`."""
    hidden: Callable[[str], bool] = nothing
    """Return whether a rule denies the tool a path that it finds beneath a folder."""
