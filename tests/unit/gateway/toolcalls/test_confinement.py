"""Network and sandbox of a call: what a card states, and what a call gets that nobody was asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.approvals import action_key
from gateway.domain.decisions import Allow
from gateway.domain.ids import GrantId
from gateway.domain.presets import Ceiling, Preset, Presets
from gateway.domain.rules import Rule, Verdict
from gateway.domain.steps import StepState
from gateway.domain.tools import (
    Action,
    ApprovalMode,
    CallScope,
    NetworkMode,
    NetworkPolicy,
    ResultStatus,
    Risk,
    SandboxFloor,
    SandboxMode,
    SandboxPolicy,
    SubjectKind,
    ToolResult,
)
from gateway.domain.waits import WaitState
from gateway.errors import SandboxMissing
from gateway.sandbox import Containment
from gateway.toolcalls.confinement import action_of, as_allowed, floor_of, is_contained, sha_of
from gateway.toolcalls.decide import Asked, CallDecider, Runnable
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.support.fakes import Text
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import asked, deciding, first, reaching, step, tool, waiting

WORKS = Containment(can_bwrap=True, can_pid_namespace=True)
ALLOWED = {"main": ApprovalMode.ALLOW}


def shell(network: NetworkPolicy = NetworkPolicy.AUTO, **given: Any) -> Tool:
    settings: dict[str, Any] = {"sandbox": SandboxPolicy.BASIC, **given}
    made = tool(Risk.EXECUTE, **settings)
    return replace(made, policy=replace(made.policy, network=network))


def by(folder: Path, one: Tool, containment: Containment = WORKS) -> CallDecider:
    return replace(deciding(folder, one), containment=containment)


@pytest.mark.parametrize(
    ("network", "shown"),
    [
        (NetworkPolicy.AUTO, NetworkMode.HOST),
        (NetworkPolicy.NONE, NetworkMode.NONE),
        (NetworkPolicy.PUBLIC, NetworkMode.PUBLIC),
        (NetworkPolicy.HOST, NetworkMode.HOST),
    ],
)
def test_a_card_states_the_network_that_a_press_gives(
    tmp_path: Path, network: NetworkPolicy, shown: NetworkMode
) -> None:
    found = first(by(tmp_path, shell(network)), step())

    assert isinstance(found, Asked)
    assert (found.request.action.sandbox, found.request.action.network) == (SandboxMode.BASIC, shown)


@pytest.mark.parametrize(
    ("network", "given"),
    [
        (NetworkPolicy.AUTO, NetworkMode.NONE),
        (NetworkPolicy.NONE, NetworkMode.NONE),
        (NetworkPolicy.PUBLIC, NetworkMode.PUBLIC),
        (NetworkPolicy.HOST, NetworkMode.HOST),
    ],
)
def test_network_is_closed_for_calls_that_run_unasked(
    tmp_path: Path, network: NetworkPolicy, given: NetworkMode
) -> None:
    found = first(by(tmp_path, shell(network, approval=ALLOWED)), step())

    assert isinstance(found, Runnable)
    assert found.call.action.network is given


@pytest.mark.parametrize(
    ("allow", "network"),
    [
        (Allow(because="a rule"), NetworkMode.NONE),
        (Allow(because="a grant", grant=GrantId("g1")), NetworkMode.HOST),
        (Allow(because="a grant", grant=GrantId("g1"), no_network=True), NetworkMode.NONE),
    ],
)
def test_a_grant_stands_for_the_press_that_made_it(tmp_path: Path, allow: Allow, network: NetworkMode) -> None:
    found = first(by(tmp_path, shell(approval=ALLOWED)), step())
    assert isinstance(found, Runnable)
    action = replace(found.call.action, network=NetworkMode.HOST)
    asked = replace(found.call, action=action, action_sha=sha_of(action, found.call))
    call = as_allowed(asked, allow)

    assert call.action.network is network
    assert call.action.read_only is allow.no_network
    assert (call.action_sha == asked.action_sha) == (network is NetworkMode.HOST)
    assert (action_key(call.action) == action_key(asked.action)) == (network is NetworkMode.HOST)


@pytest.mark.parametrize("sandbox", [SandboxPolicy.BASIC, SandboxPolicy.AUTO, SandboxPolicy.FULL])
def test_a_reading_call_sees_no_secret_file(tmp_path: Path, sandbox: SandboxPolicy) -> None:
    """It runs unasked, and a program may read more than its command names: a mask keeps `.env` out of its reach."""
    found = first(by(tmp_path, shell(approval=ALLOWED, sandbox=sandbox)), step())
    assert isinstance(found, Runnable)
    call = as_allowed(found.call, Allow(because="it only reads", no_network=True))

    assert (call.action.sandbox, call.action.network, call.action.read_only) == (
        SandboxMode.FULL, NetworkMode.NONE, True
    )  # fmt: skip
    assert call.action_sha == sha_of(call.action, call)


def test_network_cannot_be_closed_on_the_host(tmp_path: Path) -> None:
    """A decision that allows a call only without a network does not allow it on the host."""
    here = by(tmp_path, shell(sandbox=SandboxPolicy.OFF, approval=ALLOWED))
    found = first(here, step())
    assert isinstance(found, Runnable)
    with pytest.raises(SandboxMissing, match="its decision excludes"):
        as_allowed(found.call, Allow(because="it only reads", no_network=True))


def test_without_a_sandbox_a_closed_network_is_a_refusal(tmp_path: Path) -> None:
    nothing = Containment(can_bwrap=False, can_pid_namespace=True, why_no_bwrap="bubblewrap is not installed")
    here = by(tmp_path, shell(NetworkPolicy.NONE, sandbox=SandboxPolicy.AUTO, approval=ALLOWED), nothing)
    found = first(here, step())

    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == (ResultStatus.DENIED, "sandbox_missing")
    assert "network = none" in found.hint


def test_a_tool_that_starts_nothing_has_no_network(tmp_path: Path) -> None:
    found = first(by(tmp_path, tool(Risk.READ)), step())

    assert isinstance(found, Runnable)
    assert (found.call.action.sandbox, found.call.action.network, found.call.action.read_only) == (None, None, False)


@pytest.mark.parametrize(
    ("preset", "least"),
    [
        (Preset(name="build"), SandboxFloor()),
        (Preset(name="mine", sandbox=SandboxPolicy.BASIC), SandboxFloor(mode=SandboxMode.BASIC)),
        (
            Preset(
                name="plan",
                sandbox=SandboxPolicy.FULL,
                ceilings=(Ceiling(preset="plan", risks=frozenset({Risk.NONE, Risk.READ})),),
            ),
            SandboxFloor(mode=SandboxMode.FULL, read_only=True),
        ),
    ],
)
def test_a_preset_sets_the_least_containment(tmp_path: Path, preset: Preset, least: SandboxFloor) -> None:
    assert floor_of(preset) == least
    one = shell(NetworkPolicy.HOST, sandbox=SandboxPolicy.OFF)
    session = first(by(tmp_path, shell(approval=ALLOWED)), step())
    assert isinstance(session, Runnable)
    action = action_of(one, Text(text="ls"), "/w", session.call.view.session, WORKS, least)

    assert action.read_only is least.read_only
    assert action.sandbox is least.mode
    assert action.network is (NetworkMode.NONE if least.mode is SandboxMode.FULL else NetworkMode.HOST)


@pytest.mark.parametrize(
    ("sandbox", "read_only", "least", "contained"),
    [
        (SandboxMode.FULL, True, SandboxFloor(mode=SandboxMode.FULL, read_only=True), True),
        (SandboxMode.FULL, False, SandboxFloor(mode=SandboxMode.FULL, read_only=True), False),
        (SandboxMode.BASIC, True, SandboxFloor(mode=SandboxMode.FULL, read_only=True), False),
        (SandboxMode.BASIC, False, SandboxFloor(mode=SandboxMode.BASIC), True),
        (SandboxMode.OFF, False, SandboxFloor(mode=SandboxMode.BASIC), False),
        (SandboxMode.OFF, False, SandboxFloor(), True),
        (None, False, SandboxFloor(mode=SandboxMode.FULL, read_only=True), True),
    ],
)
def test_action_of_a_card_satisfies_the_floor_or_not(
    sandbox: SandboxMode | None, read_only: bool, least: SandboxFloor, contained: bool
) -> None:
    action = Action(tool="shell", arguments={}, cwd="/", sandbox=sandbox, read_only=read_only)

    assert is_contained(action, least) is contained


def test_approval_of_a_weaker_sandbox_does_not_outlive_a_plan(tmp_path: Path) -> None:
    """The command only reads, so that the plan permits it; but what was allowed has a network and may write."""
    plan = Preset(
        name="plan", ceilings=(Ceiling(preset="plan", risks=frozenset({Risk.READ})),), sandbox=SandboxPolicy.FULL
    )
    presets = Presets(by_name={"build": Preset(name="build"), "plan": plan})
    made = reaching(CallScope(risk=Risk.EXECUTE, subjects=("command:date",)))
    rule = Rule(tool="*", pattern="*", decision=Verdict.ASK, kinds=frozenset({"main"}))
    made = replace(
        made,
        spec=replace(made.spec, subjects=frozenset({SubjectKind.COMMAND})),
        policy=replace(made.policy, sandbox=SandboxPolicy.BASIC, rules=(rule,)),
    )
    decider = replace(by(tmp_path, made), tools=ToolSet([made], sandboxed=True, presets=presets))
    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(decider, one))
    asked_step = replace(one, state=StepState.ASKED)
    view = turn_view(steps=[asked_step])

    allowed = decider.later(view, asked_step, wait)
    planning = replace(view, session=replace(view.session, preset="plan"))
    refused = decider.later(planning, asked_step, wait)

    assert isinstance(allowed, Runnable)
    assert isinstance(refused, ToolResult)
    assert "stricter sandbox" in refused.hint


@pytest.mark.parametrize(
    ("sandbox", "network", "runs"),
    [
        (SandboxPolicy.BASIC, NetworkPolicy.HOST, True),
        (SandboxPolicy.OFF, NetworkPolicy.HOST, True),
        (SandboxPolicy.FULL, NetworkPolicy.HOST, False),
        (SandboxPolicy.BASIC, NetworkPolicy.PUBLIC, False),
        (SandboxPolicy.BASIC, NetworkPolicy.NONE, False),
    ],
)
def test_approval_of_a_weaker_sandbox_than_configured_now(
    tmp_path: Path, sandbox: SandboxPolicy, network: NetworkPolicy, runs: bool
) -> None:
    """The settings of the tool changed while its card was open (I05, I10)."""
    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(by(tmp_path, shell(NetworkPolicy.HOST)), one))
    asked_step = replace(one, state=StepState.ASKED)

    found = by(tmp_path, shell(network, sandbox=sandbox)).later(turn_view(steps=[asked_step]), asked_step, wait)

    assert isinstance(found, Runnable if runs else ToolResult)
    if isinstance(found, ToolResult):
        assert "more strictly than the card showed" in found.hint


def test_approval_does_not_run_where_its_sandbox_is_gone(tmp_path: Path) -> None:
    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(by(tmp_path, shell()), one))
    asked_step = replace(one, state=StepState.ASKED)
    gone = Containment(can_bwrap=False, can_pid_namespace=True)

    found = by(tmp_path, shell(), gone).later(turn_view(steps=[asked_step]), asked_step, wait)

    assert isinstance(found, ToolResult)
    assert found.code == "sandbox_missing"
