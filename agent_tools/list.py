"""The tool `list`: lists the files and folders of a workspace folder, upper levels first."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_tools._files.arguments import FolderPath, read_scope
from agent_tools._files.text_files import path_line
from gateway.domain.tools import Availability, CallScope, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="list",
    description="List files and folders of a workspace folder, upper levels first.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    positional="path",
    example=".",
    indexed=True,
)
ENTRIES = 100
"""Entries of a folder in a result."""


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FolderPath = "."


def scope(args: Args, _settings: None) -> CallScope:
    """Return the folder as the one thing that is touched."""
    return read_scope(args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """List the folder."""
    found, left = await ctx.files.entries(args.path, ENTRIES)
    if not found:
        return ToolResult(status=ResultStatus.OK, text=f"{args.path} is empty.")
    lines = [
        f"{path_line(one.path)}/" if one.folder else f"{path_line(one.path)} ({one.size:,} bytes)" for one in found
    ]
    more = f"\n{left:,} more are left out; name a folder to see them." if left else ""
    return ToolResult(status=ResultStatus.OK, text="\n".join(lines) + more, untrusted=True)
