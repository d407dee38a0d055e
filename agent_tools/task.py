"""The tool `task`: gives a task to an agent in a sub-session and waits for its answer, or goes on with an earlier one.

A thin form of `sessions_spawn` and `sessions_send`, with the arguments that models know from other programs.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agent_tools._sessions import out_of_reach
from gateway.domain.children import Delegation
from gateway.domain.ids import SessionId
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, Park, Risk, ToolResult, ToolSpec
from gateway.errors import Forbidden, NotFound
from gateway.ports import SessionMessage, Task, ToolContext

SPEC = ToolSpec(
    name="task",
    description="Give a task to an agent, or go on with an earlier one.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.MAIN,
    approval={"main": ApprovalMode.ALLOW},
    positional="prompt",
    shows="prompt",
    example="find out what fills the disk",
    of_children=True,
    returns_child_text=True,
    subjects=frozenset(),
    indexed=True,
)
PROMPT_CHARS = 16_384
"""Most characters that a card shows whole, however the text is escaped."""
WAITS_S = 86_400
"""Seconds for which the answer is waited for."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=PROMPT_CHARS),
        Field(description="What to do, with all that it must know."),
    ]
    agent: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=64),
        Field(description="general: does all that you can. explore: only looks. Or one of the listed agents."),
    ] = "general"
    description: Annotated[
        Annotated[str, StringConstraints(strip_whitespace=True, max_length=100)] | None,
        Field(description="The task in 3 to 5 words, for lists."),
    ] = None
    task_id: Annotated[
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)] | None,
        Field(description="Id of an earlier task to go on with: its result names it."),
    ] = None


def scope(args: Args, _: None) -> CallScope:
    """Return the sub-session that it begins, whose own calls are decided; else the one that is written to."""
    if args.task_id is None:
        return CallScope(risk=Risk.NONE, delegates=(Delegation(agent=args.agent),))
    return CallScope(risk=Risk.EXECUTE, summary=f"Write to {args.task_id}", scope=args.task_id)


async def run(ctx: ToolContext, args: Args) -> ToolResult | Park:
    """Start the task, or go on with one; the turn waits for its answer. Idempotent for each call's step."""
    if args.task_id is None:
        return await ctx.sessions.spawn(Task(text=args.prompt, agent=args.agent, title=args.description or ""))
    message = SessionMessage(session=SessionId(args.task_id), text=args.prompt, wait_s=WAITS_S)
    try:
        return await ctx.sessions.send(message)
    except (NotFound, Forbidden) as error:
        missing = "This session began no such task. Leave `task_id` out to begin one; sessions_list names those there."
        return out_of_reach(error, missing, "Somebody else asked for it in this conversation: only they can go on.")
