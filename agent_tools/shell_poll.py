"""The tool `shell_poll`: reads a job that `shell` started, and types into its terminal."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from agent_tools._shell import result_of
from gateway.domain.tools import Availability, CallScope, Effect, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="shell_poll",
    description="Return the state and new output of a `shell` job. Once it has ended, also its exit code.",
    risk=Risk.READ,
    effect=Effect.UNSAFE,
    availability=Availability.MAIN,
    timeout_s=30.0,
    positional="job",
    shows="input",
    example="j1a2b3c",
    indexed=True,
)

INPUT_CHARS = 2_000
"""Characters typed into a job at once."""
WAIT_S = 1.0
"""Seconds to wait for output when the call names none."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Annotated[
        str,
        Field(min_length=1, max_length=40, validation_alias=AliasChoices("job", "id", "job_id"), description="Its id."),
    ]
    input: Annotated[
        str | None,
        Field(
            max_length=INPUT_CHARS,
            validation_alias=AliasChoices("input", "text"),
            description="Typed into the terminal of a job with `pty`, as written: end a line with a line break.",
        ),
    ] = None
    wait: Annotated[
        float | None, Field(ge=0, le=25, description="Seconds to wait for output or its end; 1 when not given.")
    ] = None


def scope(args: Args, _settings: None) -> CallScope:
    """Return the scope of the call. To look is to read; typed text may do anything that the job's program can.

    The text is no command of a shell: some other program may read it, so no rule about commands can judge it.
    """
    if not args.input:
        return CallScope(risk=Risk.READ)
    return CallScope(risk=Risk.EXECUTE, summary=f"type into the job {args.job}")


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Type, wait a moment, and return the job's state."""
    wait_s = WAIT_S if args.wait is None else args.wait
    return result_of(await ctx.process.poll(args.job, typed=args.input or "", wait_s=wait_s))
