"""The tool `sessions_history`: reads the tasks, answers and calls of a sub-session. It is material, never an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_tools._sessions import Session, out_of_reach
from gateway.domain.ids import SessionId
from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.errors import Forbidden, NotFound
from gateway.ports import HistoryLine, ToolContext

SPEC = ToolSpec(
    name="sessions_history",
    description="Read the messages of a sub-session.",
    risk=Risk.NONE,
    effect=Effect.PURE,
    availability=Availability.MAIN,
    positional="session",
    of_children=True,
    subjects=frozenset(),
    indexed=True,
)
LINES_AT_MOST = 100
"""Most lines of one call."""
LINE_CHARS = 4_000
"""Characters of one line of the history."""
ALL_CHARS = 40_000
"""Characters of all lines together; the newest stay."""


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session: Session
    calls: Annotated[bool, Field(description="Also its calls of tools and their results.")] = False
    limit: Annotated[int, Field(ge=1, le=LINES_AT_MOST, description="Most lines.")] = LINES_AT_MOST
    before: Annotated[int | None, Field(ge=1, description="Only lines before this number.")] = None


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Return the newest lines, oldest first, each with its number and who said it."""
    try:
        lines = await ctx.sessions.history(SessionId(args.session), args.before, args.limit, calls=args.calls)
    except (NotFound, Forbidden) as error:
        missing = "This session has no such sub-session; sessions_list names them."
        return out_of_reach(error, missing, "Somebody else asked for it in this conversation: only they can read it.")
    text, first = _shown(lines)
    if not text:
        return ToolResult(status=ResultStatus.OK, text="", hint="There is nothing before that.")
    hint = f"Earlier ones: before={first}." if first is not None else ""
    return ToolResult(status=ResultStatus.OK, text=text, hint=hint, untrusted=True)


def _shown(lines: Sequence[HistoryLine]) -> tuple[str, int | None]:
    """Return the lines that fit, and the number of the first one shown."""
    shown, left = list[str](), ALL_CHARS
    first: int | None = None
    for line in reversed(lines):
        text = line.text if len(line.text) <= LINE_CHARS else f"{line.text[:LINE_CHARS]}…"
        left -= len(text)
        if left < 0:
            break
        shown.append(f"[{line.ord}, {line.who}] {text}")
        first = line.ord
    return "\n\n".join(reversed(shown)), first
