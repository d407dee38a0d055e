"""Bench tool that sleeps for `DOZE_S`. `[tools.doze] module = "tests.bench.doze"`."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict

from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

DOZE_S = 0.1
SPEC = ToolSpec(
    name="doze",
    description="Take a short while.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    positional="number",
)


class Args(BaseModel):
    """Arguments that make the calls of one answer differ, as they do in life."""

    model_config = ConfigDict(extra="forbid")

    number: int


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Wait."""
    await asyncio.sleep(DOZE_S)
    return ToolResult(status=ResultStatus.OK, text=f"dozed {args.number}")
