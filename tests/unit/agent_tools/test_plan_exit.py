"""The tool that ends a plan, over a fake that records the preset."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from agent_tools import plan_exit
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk
from tests.unit.agent_tools.test_sessions import Call


def test_plan_is_shown_whole_and_always_asked_about() -> None:
    spec = plan_exit.SPEC

    assert (spec.risk, spec.effect, spec.leaves_plan) == (Risk.NONE, Effect.IDEMPOTENT, True)
    assert spec.approval == dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ASK)
    assert (spec.positional, spec.shows) == ("plan", "plan")


async def test_agreed_plan_is_left(tmp_path: Path) -> None:
    call = Call(tmp_path)

    result = await plan_exit.run(call, plan_exit.Args(plan=" 1. Do it. "))

    assert result.status is ResultStatus.OK
    assert call.family.plans_left == 1


@pytest.mark.parametrize("plan", ["", "  \n", "x" * (plan_exit.PLAN_CHARS + 1)])
def test_plan_has_a_length(plan: str) -> None:
    with pytest.raises(ValidationError):
        plan_exit.Args(plan=plan)
