"""The tool `todo_read`: returns the session's task list."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="todo_read",
    description="Return the task list of this session.",
    risk=Risk.NONE,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    indexed=True,
    subjects=frozenset(),
)


class Args(BaseModel):
    """The arguments of one call: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


async def run(ctx: ToolContext, _: Args) -> ToolResult:
    """Return each item with its state."""
    items = await ctx.people.read_list()
    text = "\n".join(f"{one.state}: {one.text}" for one in items)
    return ToolResult(status=ResultStatus.OK, text=text or "There is no task list. todo_write makes one.")
