"""May this tool run here? Pure decisions that return a reason; what is unset, unknown or fails is a refusal.

The order is fixed: availability, arguments, locked denies, rules, the default of the risk. Rules and grants have
their place between `availability` and `default_approval`, in `decide`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.model.sessions import Session, SessionKind
from gateway.model.tools import (
    Allow,
    Approval,
    Ask,
    Decision,
    Deny,
    DenyReason,
    Permission,
    Risk,
    ToolPolicy,
    ToolSpec,
)

DEFAULT_APPROVAL: Mapping[Risk, Approval] = MappingProxyType(
    {
        Risk.NONE: Approval.ALLOW,
        Risk.READ: Approval.ALLOW,
        Risk.WRITE: Approval.ASK,
        Risk.EXECUTE: Approval.ASK,
        Risk.NETWORK: Approval.ASK,
    }
)


def available(tool: str, permission: Permission, session: Session) -> Deny | None:
    """Say why a tool does not exist in this session, or None when it does.

    The table of kinds is for roots: a child's root is asked as the configuration is now, then what it was given.
    """
    refused = _refused_at_root(tool, permission, session.root_kind)
    if refused is None and session.tools is not None and tool not in session.tools:
        return Deny(reason=DenyReason.NOT_GRANTED, hint=f"This sub-session was not given {tool}.")
    return refused


def _refused_at_root(tool: str, permission: Permission, kind: SessionKind) -> Deny | None:
    match permission:
        case Permission.BLOCKED:
            return Deny(reason=DenyReason.BLOCKED, hint=f"The owner has blocked {tool}.")
        case Permission.ALWAYS:
            return None
        case Permission.MAIN if kind is SessionKind.MAIN:
            return None
        case Permission.NON_MAIN if kind is not SessionKind.MAIN:
            return None
        case Permission.MAIN:
            where = "Direct chats of others are" if kind is SessionKind.DM else "This conversation is"
            return Deny(
                reason=DenyReason.ONLY_IN_MAIN,
                hint=f"{tool} runs only where an owner speaks directly. {where} not main.",
            )
        case Permission.NON_MAIN:
            return Deny(reason=DenyReason.NOT_IN_MAIN, hint=f"{tool} is configured for every session but main ones.")
        case _:  # closed by default: what is none of these is no permission
            return Deny(reason=DenyReason.POLICY_ERROR, hint=f"The permission of {tool} is not one; correct it.")


def decide(spec: ToolSpec, policy: ToolPolicy, session: Session, *, askable: bool) -> Decision:
    """Say whether a valid call of an available tool may run now, must be asked about, or is refused.

    `askable` is whether an approver of this session can be reached at all.
    """
    match default_approval(spec, policy, session):
        case Approval.ALLOW:
            return Allow(because=f"{spec.risk} is allowed here")
        case Approval.DENY:
            return Deny(reason=DenyReason.CONFIGURED, hint=f"The configuration denies {spec.name} here.")
        case Approval.ASK if askable:
            return Ask(because=f"{spec.risk} needs an approval")
        case Approval.ASK:
            who = "nobody can be asked: let an owner open the page or a direct chat."
            return Deny(reason=DenyReason.NOBODY_TO_ASK, hint=f"{spec.name} needs an approval and {who}")
        case _:  # closed by default: what is none of these is no approval
            return Deny(reason=DenyReason.POLICY_ERROR, hint=f"The approval of {spec.name} is not one; correct it.")


def default_approval(spec: ToolSpec, policy: ToolPolicy, session: Session) -> Approval:
    """What holds before any rule, for the root's kind: the configuration's word, else the tool's, else its risk's."""
    kind = session.root_kind.value
    return policy.approval.get(kind, spec.approval.get(kind, DEFAULT_APPROVAL[spec.risk]))


def describe_permission(permission: Permission) -> str:
    """Say in words where a tool exists."""
    return {
        Permission.ALWAYS: "everywhere",
        Permission.MAIN: "main sessions only",
        Permission.NON_MAIN: "everywhere but main sessions",
        Permission.BLOCKED: "blocked",
    }[permission]
