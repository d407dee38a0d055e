"""A tool that only reads: allowed by default."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="peek",
    description="Look at something.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    positional="what",
)


class Args(BaseModel):
    """Arguments: the thing to look at."""

    model_config = ConfigDict(extra="forbid")

    what: str


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Say what was looked at."""
    return ToolResult(status=ResultStatus.OK, text=f"peeked at {args.what}")
