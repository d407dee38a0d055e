"""The tool `shell`: runs one bash script, after the call was decided, or starts it as a job.

It has no timer of its own: the call is cancelled at its timeout, which stops the whole process tree. `shell_poll` and
`shell_kill` are about its jobs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from agent_tools._files.arguments import without_nul
from agent_tools._shell import result_of
from gateway.domain.tools import (
    Availability,
    CallScope,
    Effect,
    ResultStatus,
    Risk,
    SandboxPolicy,
    SubjectKind,
    ToolResult,
    ToolSpec,
)
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="shell",
    description=(
        "Run a command with bash in the session's workspace and return what it printed and its exit code. "
        "There is no input, and what it leaves behind ends with it; `background` starts a job instead."
    ),
    risk=Risk.EXECUTE,
    effect=Effect.UNSAFE,
    availability=Availability.MAIN,
    timeout_s=120.0,
    max_timeout_s=600.0,
    sandbox=SandboxPolicy.AUTO,
    positional="command",
    shows="command",
    example="uptime",
    subjects=frozenset({SubjectKind.COMMAND}),
)

BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
MAX_COMMAND = 65_536
"""Most characters, and also bytes, of a command: the kernel takes at most 128 KiB in one argument."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[
        str, Field(min_length=1, max_length=MAX_COMMAND, description="A bash script of one or more lines.")
    ]
    timeout: Annotated[
        float | None,
        Field(
            ge=1,
            le=600,
            validation_alias=AliasChoices("timeout", "timeout_s", "timeout_seconds"),
            description="Seconds (not milliseconds) after which it is stopped, 1 to 600; 120 when not given.",
        ),
    ] = None
    workdir: Annotated[
        str | None,
        Field(
            max_length=4096,
            validation_alias=AliasChoices("workdir", "directory"),
            description="The folder to run in, relative to the workspace; the workspace itself when not given.",
        ),
    ] = None
    pty: Annotated[
        bool | None,
        Field(validation_alias=AliasChoices("pty", "tty", "terminal"), description="Run it in a terminal."),
    ] = None
    background: Annotated[
        bool | None,
        Field(
            validation_alias=AliasChoices("background", "run_in_background"),
            description="Start it as a job and return its id; `timeout` is then 600 when not given.",
        ),
    ] = None
    description: Annotated[
        str | None, Field(max_length=500, description="What the command is for, in five to ten words.")
    ] = None

    @field_validator("command")
    @classmethod
    def _can_run(cls, command: str) -> str:
        if not command.strip():
            raise ValueError("the command is empty: give at least one word")
        if len(command.encode()) > MAX_COMMAND:
            raise ValueError(f"the command is longer than {MAX_COMMAND} bytes: put it into a file and run that")
        return without_nul(command)

    @field_validator("pty", "background")
    @classmethod
    def _is_set(cls, value: bool | None) -> bool | None:
        return value or None  # what is not asked for is not on the card

    @field_validator("workdir")
    @classmethod
    def _can_be_a_path(cls, workdir: str | None) -> str | None:
        return workdir and without_nul(workdir)


def scope(args: Args, _settings: None) -> CallScope:
    """Return the command as what the call touches: programs of a shell may do anything in its sandbox."""
    return CallScope(risk=Risk.EXECUTE, subjects=(f"command:{args.command}",), folder=args.workdir or "")


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Run the command to its end. The result has no text: the output is in `ctx.output`."""
    folder = _folder(ctx.files.root, args.workdir)
    if isinstance(folder, ToolResult):
        return folder
    argv, terminal = [*BASH, args.command], bool(args.pty)
    if args.background:
        job = await ctx.process.start(argv, cwd=folder, terminal=terminal, timeout_s=args.timeout)
        return result_of(job)
    ended = await ctx.process.run(argv, cwd=folder, terminal=terminal)
    if ended.exit_code == 0:
        return ToolResult(status=ResultStatus.OK, text="", exit_code=0)
    return ToolResult(status=ResultStatus.ERROR, text="", code="exit", exit_code=ended.exit_code)


def _folder(workspace: Path, workdir: str | None) -> Path | ToolResult:
    """Return the folder to run in, with links resolved, or a result with the refusal."""
    if not workdir:
        return workspace
    root = workspace.resolve()
    try:
        folder = (root / workdir).resolve()
        if not folder.is_relative_to(root):
            return _refused(
                f"`{workdir}` is outside the workspace.", "Name a folder beneath the workspace, or leave `workdir` out."
            )
        if not folder.is_dir():
            return _refused(f"`{workdir}` is not a folder of the workspace.", "Create it first, or name another one.")
    except (OSError, RuntimeError) as error:  # a loop of links, a name that is too long
        return _refused(f"`{workdir}` cannot be used: {error}.", "Name another folder beneath the workspace.")
    return folder


def _refused(text: str, hint: str) -> ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text=text, code="workdir", hint=hint)
