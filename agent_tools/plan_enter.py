"""The tool `plan_enter`: proposes to plan first, and begins planning when a person agrees.

While a session plans nothing can be changed. The person ends it by agreeing to the plan (`plan_exit`), or with /build.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.domain.tools import ApprovalMode, Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.errors import NotFound
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="plan_enter",
    description="Propose to plan before anything is changed.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    approval=dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ASK),
    positional="why",
    shows="why",
    example="The rename touches forty files.",
    enters_plan=True,
    subjects=frozenset(),
    indexed=True,
)


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000),
        Field(description="What is to be planned, and why first."),
    ]


async def run(ctx: ToolContext, _: Args) -> ToolResult:
    """Begin planning. Safe to repeat."""
    try:
        await ctx.sessions.enter_plan()
    except NotFound as error:
        return ToolResult(
            status=ResultStatus.ERROR, text="", code="no_plan", hint=f"{error.message} {error.cure}".strip()
        )
    text = "This session plans now: look, and change nothing. Show the whole plan with plan_exit when it is finished."
    return ToolResult(status=ResultStatus.OK, text=text)
