"""Sandbox and network of a call's programs, as parts of its exact action. Used by `decide`.

A card shows what a press would give. A call that nobody was asked about may get less: its action is built again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway import approvals as asking
from gateway.domain.decisions import Allow, Decision
from gateway.domain.presets import Preset
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import Action, NetworkMode, NetworkPolicy, SandboxFloor, SandboxMode, SandboxPolicy
from gateway.errors import SandboxMissing
from gateway.sandbox import Containment, choose, network_for
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.tool_set import Tool

_LEAST: Mapping[SandboxPolicy | None, SandboxMode] = {
    SandboxPolicy.BASIC: SandboxMode.BASIC,
    SandboxPolicy.FULL: SandboxMode.FULL,
}


def floor_of(preset: Preset) -> SandboxFloor:
    """Return the least containment that a preset demands."""
    return SandboxFloor(mode=_LEAST.get(preset.sandbox, SandboxMode.OFF), read_only=preset.read_only)


def is_contained(action: Action, least: SandboxFloor) -> bool:
    """Return whether an action, as a card showed it, still satisfies what the session demands."""
    if action.sandbox is None:
        return True
    order = list(SandboxMode)
    return order.index(action.sandbox) >= order.index(least.mode) and (action.read_only or not least.read_only)


def is_tightened(shown: Action, now: Action) -> bool:
    """Return whether an action, as a card showed it, is contained less than the same one would be now.

    A card that showed no sandbox or network promised no more than none and the host's.
    """
    if now.sandbox is None:
        return False
    modes, networks = list(SandboxMode), [NetworkMode.HOST, NetworkMode.PUBLIC, NetworkMode.NONE]
    if modes.index(shown.sandbox or SandboxMode.OFF) < modes.index(now.sandbox):
        return True
    if now.network is None:
        return False
    return networks.index(shown.network or NetworkMode.HOST) < networks.index(now.network)


def action_of(
    tool: Tool,
    arguments: Any,
    cwd: str,
    session: Session,
    containment: Containment,
    least: SandboxFloor,
    *,
    home: str = "",
) -> Action:
    """Return the exact action of a call, as a person would be asked about it. Raises `SandboxMissing`.

    A child is contained at least in `basic`, for any root.
    """
    policy, is_main = tool.policy, session.kind is SessionKind.MAIN
    sandbox, network = None, None
    if policy.sandbox is not None:
        sandbox = choose(policy.sandbox, is_main, containment, least)
    if sandbox is not None and policy.network is not None:
        network = network_for(policy.network, sandbox, kind_is_main=is_main, pressed=True)
    return Action(
        tool=tool.spec.name,
        arguments=tool.arguments.dump(arguments),
        cwd=cwd,
        home=home,
        sandbox=sandbox,
        network=network,
        read_only=sandbox is not None and least.read_only,
    )


def as_allowed(call: Prepared, allow: Allow) -> Prepared:
    """Return the call with what this decision gives it. Raises `SandboxMissing` where it cannot be given.

    A grant stands for the press that made it. A call without network runs unasked, since its command only reads. Its
    program may do more than the command says, so it sees its workspace read-only and without secret files.
    """
    action = call.action
    if action.sandbox is None or action.network is None:
        return call
    network = network_for(
        call.tool.policy.network or NetworkPolicy.NONE,
        action.sandbox,
        kind_is_main=call.view.session.kind is SessionKind.MAIN,
        pressed=allow.grant is not None,
        no_network=allow.no_network,
    )
    read_only = action.read_only or allow.no_network
    hides_secrets = allow.no_network or (allow.masked and network is not NetworkMode.HOST)
    masked = hides_secrets and action.sandbox is SandboxMode.BASIC
    if network is action.network and read_only is action.read_only and not masked:
        return call
    sandbox = SandboxMode.FULL if masked else action.sandbox
    action = replace(action, sandbox=sandbox, network=network, read_only=read_only)
    return replace(call, action=action, action_sha=sha_of(action, call))


def allowed_again(call: Prepared, decided: Decision) -> Prepared | None:
    """Return an interrupted call as the present decision allows it; None when it does not."""
    try:
        return as_allowed(call, decided) if isinstance(decided, Allow) else None
    except SandboxMissing:
        return None


def sha_of(action: Action, call: Prepared) -> str:
    """Return the hash that an approval binds, for this action in place of the call's own."""
    view, step = call.view, call.step
    key = asking.action_key(action)
    return asking.action_sha(key, view.session.id, step.turn, step.n, view.turn.principal, call.prepared)
