"""The tool `plan_exit`: shows a finished plan to a person, and ends the planning when they allow it.

A card shows the plan whole. Allowed, the session gets the preset from before the plan; denied, it goes on planning.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="plan_exit",
    description="Show the person the finished plan, and end the planning when they agree.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    approval=dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ASK),
    positional="plan",
    shows="plan",
    example="1. Rename the function. 2. Run the tests.",
    leaves_plan=True,
    subjects=frozenset(),
)

PLAN_CHARS = 16_384
"""Most characters that a card shows whole, however the text is escaped."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    plan: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=PLAN_CHARS),
        Field(description="The whole plan, in Markdown."),
    ]


def scope(_args: Args, _: None) -> CallScope:
    """Return the card's text about the effect of a press."""
    return CallScope(risk=Risk.NONE, summary="end the planning, and work by this plan")


async def run(ctx: ToolContext, _: Args) -> ToolResult:
    """End the planning. Safe to repeat."""
    await ctx.sessions.leave_plan()
    text = "The person agreed to the plan. The limits from before the plan hold again: carry it out within them."
    return ToolResult(status=ResultStatus.OK, text=text)
