"""The tool `sessions_send`: writes to a sub-session that this session spawned; one that has ended begins again.

A sub-session at work also writes to its parent, under that word. Nobody is asked about that, nor about its end.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from agent_tools._sessions import Session, out_of_reach
from gateway.domain.children import PARENT
from gateway.domain.ids import SessionId
from gateway.domain.tools import Availability, CallScope, Effect, Park, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.errors import Forbidden, NotFound
from gateway.ports import SessionMessage, ToolContext

SPEC = ToolSpec(
    name="sessions_send",
    description="Write to your sub-session, an ended one goes on; or to your `parent`.",
    risk=Risk.EXECUTE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.MAIN,
    shows="message",
    of_children=True,
    returns_child_text=True,
    subjects=frozenset(),
    indexed=True,
)
MESSAGE_CHARS = 16_384
"""Most characters that a card shows whole, however the text is escaped."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session: Annotated[Session, Field(description=f"Its id, as sessions_list says; or {PARENT}.")]
    message: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=MESSAGE_CHARS),
        Field(description="Its next task, or more for the one at work. It knows what it did before."),
    ]
    wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            validation_alias=AliasChoices("wait_s", "timeout_s", "timeout"),
            description="Seconds to wait for its answer; 0: the answer is a message later.",
        ),
    ] = 0


def scope(args: Args, _: None) -> CallScope:
    """Return the session that is written to: one approval is good for all messages to it."""
    if args.session == PARENT:
        return CallScope(risk=Risk.NONE, summary="Write to its parent")
    return CallScope(risk=Risk.EXECUTE, summary=f"Write to {args.session}", scope=args.session)


async def run(ctx: ToolContext, args: Args) -> ToolResult | Park:
    """Send the message, once for each call's step; the turn waits for the answer if the call requests that."""
    if args.session == PARENT:
        return await _tell(ctx, args)
    message = SessionMessage(session=SessionId(args.session), text=args.message, wait_s=args.wait_s)
    try:
        return await ctx.sessions.send(message)
    except (NotFound, Forbidden) as error:
        missing = "You can write to sub-sessions that this session spawned itself, and to no others: see sessions_list."
        forbidden = "Somebody else asked for it in this conversation: only they can write to it."
        return out_of_reach(error, missing, forbidden)


async def _tell(ctx: ToolContext, args: Args) -> ToolResult:
    if args.wait_s:
        hint = "What your parent answers comes as a message of its own: leave wait_s out."
        return ToolResult(status=ResultStatus.ERROR, text="", code="cannot_wait", hint=hint)
    try:
        return await ctx.sessions.tell(args.message)
    except NotFound:
        hint = "This session has no parent: say it in the answer."
        return ToolResult(status=ResultStatus.ERROR, text="", code="not_found", hint=hint)
