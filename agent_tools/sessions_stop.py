"""The tool `sessions_stop`: stops a sub-session of the calling session, with everything below it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_tools._sessions import Session, out_of_reach
from gateway.domain.ids import SessionId
from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.errors import Forbidden, NotFound
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="sessions_stop",
    description="Stop a sub-session of this session, and all below it.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    positional="session",
    shows="session",
    of_children=True,
    subjects=frozenset(),
    indexed=True,
)


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session: Session


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Stop the sub-session; no effect on one that has ended."""
    try:
        stopped = await ctx.sessions.stop(SessionId(args.session))
    except (NotFound, Forbidden) as error:
        missing = "This session has no such sub-session; sessions_list names them."
        forbidden = "Somebody else asked for it in this conversation: they can stop it with /stop, or an owner can."
        return out_of_reach(error, missing, forbidden)
    said = "Stopped." if stopped else "It had ended already."
    return ToolResult(status=ResultStatus.OK, text=said)
