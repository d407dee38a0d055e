"""The tool `shell_kill`: ends a job that `shell` started, with all its processes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from agent_tools._shell import result_of
from gateway.domain.jobs import JobEnd
from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="shell_kill",
    description="End a job of `shell` with all its processes. Returns its last output.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.MAIN,
    timeout_s=30.0,
    positional="job",
    example="j1a2b3c",
    indexed=True,
)


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Annotated[
        str,
        Field(min_length=1, max_length=40, validation_alias=AliasChoices("job", "id", "job_id"), description="Its id."),
    ]


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """End the job. To end one that has ended already is no failure."""
    job = await ctx.process.kill(args.job)
    result = result_of(job)
    if job.end is JobEnd.STOPPED:
        return ToolResult(status=ResultStatus.OK, text=result.text, hint=result.hint)
    return result
