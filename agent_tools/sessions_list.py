"""The tool `sessions_list`: lists the sub-sessions of the calling session, and no others."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.domain.views import ChildLine
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="sessions_list",
    description="List the sub-sessions of this session: id, state, tokens, task.",
    risk=Risk.NONE,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    of_children=True,
    subjects=frozenset(),
    indexed=True,
)


class Args(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


async def run(ctx: ToolContext, _args: Args) -> ToolResult:
    """List the sub-sessions, running ones first; at most fifty."""
    lines = [_line(one) for one in await ctx.sessions.members()]
    return ToolResult(status=ResultStatus.OK, text="\n".join(lines) or "There are no sub-sessions.")


def _line(one: ChildLine) -> str:
    waits = f", waits for {one.waiting} decision{'s' if one.waiting > 1 else ''}" if one.waiting else ""
    tokens = one.input_tokens + one.output_tokens
    depth = one.session.lineage.depth if one.session.lineage else 1
    indent = "  " * (depth - 1)
    return f"{indent}{one.session.id} {one.turn.state}{waits}, {tokens} tokens: {one.session.title}"
