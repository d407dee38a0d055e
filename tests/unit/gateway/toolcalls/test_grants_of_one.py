"""Grants of one person about tools that need more than one, or somebody else: they allow nothing any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.grants import GrantPlace
from gateway.domain.steps import StepState
from gateway.domain.tools import CallScope, Effect, Risk, ToolResult
from gateway.domain.waits import WaitState
from gateway.toolcalls.decide import Asked, Runnable, SameCalls
from gateway.toolcalls.tool_set import Tool
from tests.support.makers import scope_grant
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import asked, deciding, reaching, step, waiting

ONE = step()
GRANTED = [replace(scope_grant("example.org"), place=GrantPlace.CHAT)]
"""Grants of one person."""
APPROVED = [replace(scope_grant("example.org"), place=GrantPlace.SESSION, quorum=2, by_another=True)]
"""Grants made of the approval of a host."""
MORE_DECIDE = [
    pytest.param(ApproverRules(quorum=2), id="quorum"),
    pytest.param(ApproverRules(requester_may_approve=False), id="not-the-requester"),
]


def opening(rules: ApproverRules, scope: str = "example.org") -> Tool:
    """Return a tool whose calls reach one host, and that these rules decide about."""
    made = reaching(CallScope(risk=Risk.NETWORK, scope=scope))
    spec = replace(made.spec, effect=Effect.IDEMPOTENT)
    return replace(made, spec=spec, policy=replace(made.policy, deciding=rules))


@pytest.mark.parametrize("rules", MORE_DECIDE)
def test_a_new_call_is_asked_about_in_spite_of_a_grant(tmp_path: Path, rules: ApproverRules) -> None:
    view = turn_view(steps=[ONE])
    alone = deciding(tmp_path, opening(OWNERS_DECIDE)).first(view, ONE, SameCalls(), GRANTED, askable=True)
    assert isinstance(alone, Runnable)
    found = deciding(tmp_path, opening(rules)).first(view, ONE, SameCalls(), GRANTED, askable=True)
    assert isinstance(found, Asked)


@pytest.mark.parametrize("rules", MORE_DECIDE)
def test_an_approval_of_one_does_not_stand_for_more_later(tmp_path: Path, rules: ApproverRules) -> None:
    """One person approved the host before the settings asked for more (I04)."""
    alone = [scope_grant("example.org")]
    found = deciding(tmp_path, opening(rules)).first(turn_view(steps=[ONE]), ONE, SameCalls(), alone, askable=True)
    assert isinstance(found, Asked)


def test_an_approval_of_two_does_not_stand_for_three(tmp_path: Path) -> None:
    by = deciding(tmp_path, opening(ApproverRules(quorum=3)))
    assert isinstance(by.first(turn_view(steps=[ONE]), ONE, SameCalls(), APPROVED, askable=True), Asked)


@pytest.mark.parametrize("rules", MORE_DECIDE)
def test_a_host_that_all_approved_is_not_asked_about_again(tmp_path: Path, rules: ApproverRules) -> None:
    by, both = deciding(tmp_path, opening(rules)), [*GRANTED, *APPROVED]
    assert isinstance(by.first(turn_view(steps=[ONE]), ONE, SameCalls(), both, askable=True), Runnable)


@pytest.mark.parametrize("rules", MORE_DECIDE)
def test_an_approved_call_reaches_only_what_all_approved(tmp_path: Path, rules: ApproverRules) -> None:
    by = deciding(tmp_path, opening(rules, "example.net"))
    wait = waiting(WaitState.APPROVED, approval=asked(by, ONE))
    always = replace(scope_grant("example.com"), place=GrantPlace.CHAT)
    found = by.later(turn_view(steps=[ONE]), replace(ONE, state=StepState.ASKED), wait, [*APPROVED, always])
    assert isinstance(found, Runnable)
    assert found.call.scopes.granted == {"example.org", "example.net"}


@pytest.mark.parametrize("rules", MORE_DECIDE)
def test_a_cut_call_does_not_run_again_by_a_grant(tmp_path: Path, rules: ApproverRules) -> None:
    cut = replace(ONE, state=StepState.STARTED)
    view = turn_view(steps=[cut])
    assert isinstance(deciding(tmp_path, opening(OWNERS_DECIDE)).later(view, cut, None, GRANTED), Runnable)
    assert isinstance(deciding(tmp_path, opening(rules)).later(view, cut, None, GRANTED), ToolResult)
