"""Resolution of a call, and the decision about it: the one order that is enforced and explained.

Used by `decide` for calls, and by `explanation` for the question how one would be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway import approvals as asking
from gateway.domain.decisions import Decision, Deny, DenyReason
from gateway.domain.grants import Grant
from gateway.domain.sessions import Session
from gateway.domain.tools import Action, CallScope, SandboxMode
from gateway.errors import DragomanError
from gateway.policy.grants import covering
from gateway.policy.permission import Note, decide, placed, refused, unnoted
from gateway.system.logging_setup import log
from gateway.toolcalls.arguments import check_arguments
from gateway.toolcalls.grants import held_by
from gateway.toolcalls.tool_set import Tool, ToolSet

Workspace = Callable[[], str]
"""Supplier of the session's folder; called only for a call that touches something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCall:
    """Call whose tool exists in the session, with valid arguments and a valid scope. Not decided yet."""

    tool: Tool
    arguments: Any
    call_scope: CallScope


def resolve_call(
    tools: ToolSet,
    session: Session,
    name: str,
    text: Callable[[Tool], str | Deny],
    workspace: Workspace,
    note: Note = unnoted,
    *,
    openly: bool = False,
) -> ResolvedCall | Deny:
    """Return the resolved call, or the refusal of the first step that fails. `text`: JSON arguments for the tool.

    `openly`: as in `ToolSet.resolve`.
    """
    tool = tools.resolve(name, session, openly=openly)
    if isinstance(tool, Deny):
        note(f"available: refused, {tool.reason.value}")
        return tool
    note(f"available: {tool.policy.availability.value}")
    given = text(tool)
    arguments = given if isinstance(given, Deny) else check_arguments(tool.arguments, given, tool.syntax)
    if isinstance(arguments, Deny):
        note("arguments: not valid")
        return arguments
    note("arguments: valid")
    call_scope = resolve_scope(tool, arguments, workspace, note)
    if isinstance(call_scope, Deny):
        return call_scope
    if (refusal := tools.cannot_begin(call_scope.delegates, session)) is not None:
        note(f"sub-sessions: refused, {refusal.reason.value}")
        return refusal
    return ResolvedCall(tool=tool, arguments=arguments, call_scope=call_scope)


def resolve_scope(tool: Tool, arguments: Any, workspace: Workspace, note: Note = unnoted) -> CallScope | Deny:
    """Ask the tool for the scope of a call. Refuse a scope that the owner's settings exclude. Never raises."""
    try:
        call_scope = tool.scope_of(arguments)
        if call_scope.subjects:
            call_scope = placed(call_scope, workspace())
        note(f"scope: {', '.join([call_scope.risk.value, *call_scope.subjects])}")
        never = refused(call_scope)
    except DragomanError as error:
        return Deny(reason=DenyReason.POLICY_ERROR, hint=str(error))
    except Exception:  # noqa: BLE001 - a failed decision is a refusal, and so a result (house rules 3, 9)
        log("resolution").exception("call scope failed", tool=tool.spec.name)
        hint = f"{tool.spec.name} could not determine the scope of this call, so the answer is no."
        return Deny(reason=DenyReason.POLICY_ERROR, hint=hint)
    if never is not None:
        note(f"settings: refused, {never.reason.value}")
        return never
    return call_scope


def decide_action(
    tools: ToolSet,
    session: Session,
    tool: Tool,
    call_scope: CallScope,
    action: Action,
    grants: Sequence[Grant],
    *,
    askable: bool,
    note: Note = unnoted,
) -> Decision:
    """Return the decision about a resolved call with its exact action. `grants`: those that hold here."""
    grants = [*held_by(tool, grants), *grants]  # `decide` refuses and notes the others
    key = asking.action_key(action) if grants else ""
    return decide(
        tool.spec,
        tool.policy,
        session,
        call_scope,
        askable=askable,
        preset=tools.preset_of(session),
        grant=covering(grants, tool.spec.name, key, call_scope) if grants else None,
        contained=action.sandbox is not SandboxMode.OFF,
        note=note,
    )
