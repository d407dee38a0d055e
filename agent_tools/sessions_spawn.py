"""The tool `sessions_spawn`: gives a task to a new sub-session, whose rights are at most those of its parent.

`ToolContext.sessions` checks every right; this module only reads the arguments.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agent_tools._sessions import Name, WorkSeconds
from gateway.domain.children import Delegation, SpawnMode
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, Park, Risk, ToolResult, ToolSpec
from gateway.ports import Task, ToolContext

SPEC = ToolSpec(
    name="sessions_spawn",
    description="Give a task to a sub-session; it sees nothing else. Calls of one answer work side by side.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    approval={"main": ApprovalMode.ALLOW, "dm": ApprovalMode.ASK, "non-main": ApprovalMode.ASK},
    positional="task",
    shows="task",
    command="spawn",
    example="list the largest files here",
    of_children=True,
    returns_child_text=True,
    subjects=frozenset(),
)

TASK_CHARS = 16_384
"""Most characters that a card shows whole, however the text is escaped."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=TASK_CHARS),
        Field(description="All that it must know."),
    ]
    agent: Annotated[Name | None, Field(description="One of the agents.")] = None
    model: Annotated[Name | None, Field(description="Another model.")] = None
    preset: Annotated[Name | None, Field(description="Limits it: explore.")] = None
    tools: Annotated[list[Name] | None, Field(max_length=100, description="Only these; else all.")] = None
    mode: Annotated[
        Literal["run", "session"],
        Field(description="run: wait for its answer. session: it comes later."),
    ] = "run"
    timeout_s: WorkSeconds = None


def scope(args: Args, _: None) -> CallScope:
    """Return the sub-session that it begins. What that touches is decided at its own calls."""
    tools = None if args.tools is None else tuple(args.tools)
    begins = Delegation(agent=args.agent or "", model=args.model or "", preset=args.preset or "", tools=tools)
    return CallScope(risk=Risk.NONE, delegates=(begins,))


async def run(ctx: ToolContext, args: Args) -> ToolResult | Park:
    """Start the sub-session; in mode `run` the turn then waits for its end. Idempotent for each step."""
    return await ctx.sessions.spawn(
        Task(
            text=args.task,
            agent=args.agent or "",
            model=args.model or "",
            preset=args.preset or "",
            tools=args.tools,
            mode=SpawnMode(args.mode),
            timeout_s=args.timeout_s,
        )
    )
