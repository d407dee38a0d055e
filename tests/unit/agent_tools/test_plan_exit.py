"""The tools that begin and end a plan, over a fake that records the preset."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from agent_tools import plan_enter, plan_exit
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk
from tests.unit.agent_tools.test_sessions import Call


def test_plan_is_shown_whole_and_always_asked_about() -> None:
    spec = plan_exit.SPEC

    assert (spec.risk, spec.effect, spec.leaves_plan) == (Risk.NONE, Effect.IDEMPOTENT, True)
    assert spec.approval == dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ASK)
    assert (spec.positional, spec.shows) == ("plan", "plan")
    assert plan_exit.scope(plan_exit.Args(plan="x"), None).summary == "end the planning, and work by this plan"


async def test_agreed_plan_is_left(tmp_path: Path) -> None:
    call = Call(tmp_path)

    result = await plan_exit.run(call, plan_exit.Args(plan=" 1. Do it. "))

    assert result.status is ResultStatus.OK
    assert call.family.plans_left == 1


@pytest.mark.parametrize("plan", ["", "  \n", "x" * (plan_exit.PLAN_CHARS + 1)])
def test_plan_has_a_length(plan: str) -> None:
    with pytest.raises(ValidationError):
        plan_exit.Args(plan=plan)


async def test_planning_is_proposed_and_begun(tmp_path: Path) -> None:
    call, args = Call(tmp_path), plan_enter.Args(why=" Forty files. ")

    assert plan_enter.SPEC.approval == dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ASK)
    assert (await plan_enter.run(call, args)).status is ResultStatus.OK
    assert call.family.plans_begun == 1
    call.family.plans_left = 1
    found = await plan_enter.run(call, args)
    assert (found.code, found.hint) == ("no_plan", "there is no preset plan say it")
