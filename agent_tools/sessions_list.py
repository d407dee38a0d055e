"""The tool `sessions_list`: lists the sub-sessions of the calling session, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.domain.views import ChildLine
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="sessions_list",
    description="List your sub-sessions by state or name: id, state, tokens.",
    risk=Risk.NONE,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    of_children=True,
    subjects=frozenset(),
    indexed=True,
)


LISTED_AT_MOST = 50
"""Most sub-sessions in one list; filters choose among these."""

State = Literal["queued", "running", "parked", "stopping", "done", "stopped", "failed"]


class Args(BaseModel):
    """The arguments of one call: all filters must match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Annotated[State | None, Field(description="Only those in this state.")] = None
    name: Annotated[
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)] | None,
        Field(description="Only those whose id or task has this text, in any case."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=LISTED_AT_MOST, description="Most lines.")] = LISTED_AT_MOST


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """List the sub-sessions that match, running ones first; say how many the limit leaves out."""
    family = await ctx.sessions.members()
    text = _listed([one for one in family if _matches(one, args)], args.limit)
    none = "No sub-session matches; leave filters out to see all." if family else "There are no sub-sessions."
    return ToolResult(status=ResultStatus.OK, text=text or none)


def _matches(one: ChildLine, args: Args) -> bool:
    if args.state is not None and one.turn.state != args.state:
        return False
    named = (args.name or "").casefold()
    return named in one.session.id.casefold() or named in one.session.title.casefold()


def _listed(found: Sequence[ChildLine], limit: int) -> str:
    lines = [_line(one) for one in found[:limit]]
    if len(found) > limit:
        lines.append(f"{len(found) - limit} more match; raise limit to see them.")
    return "\n".join(lines)


def _line(one: ChildLine) -> str:
    waits = f", waits for {one.waiting} decision{'s' if one.waiting > 1 else ''}" if one.waiting else ""
    tokens = one.input_tokens + one.output_tokens
    depth = one.session.lineage.depth if one.session.lineage else 1
    indent = "  " * (depth - 1)
    return f"{indent}{one.session.id} {one.turn.state}{waits}, {tokens} tokens: {one.session.title}"
