"""A tool that changes something: asked by default."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="poke",
    description="Poke something.",
    risk=Risk.WRITE,
    effect=Effect.UNSAFE,
    availability=Availability.ALWAYS,
    positional="what",
)


class Args(BaseModel):
    """Arguments: the thing to poke."""

    model_config = ConfigDict(extra="forbid")

    what: str


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Leave a mark in the workspace."""
    with (ctx.files.root / "poked").open("a", encoding="utf-8") as file:
        file.write(f"{args.what}\n")
    return ToolResult(status=ResultStatus.OK, text=f"poked {args.what}")
