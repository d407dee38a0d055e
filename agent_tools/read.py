"""The tool `read`: returns lines of a workspace file, or shows a picture to the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_tools._files.arguments import FilePath, read_scope
from agent_tools._files.text_files import FILE_BYTES, decode, is_picture, media_type, numbered
from gateway.domain.file_changes import content_hash
from gateway.domain.tools import (
    PICTURE_BYTES,
    Availability,
    CallScope,
    Effect,
    ResultStatus,
    Risk,
    ToolResult,
    ToolSpec,
)
from gateway.errors import BadRequest
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="read",
    description="Read a text file of the workspace with line numbers, or look at a picture. Needed before an edit.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    positional="path",
    example="notes.md",
)
LINES = 2000


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    offset: Annotated[int, Field(ge=1, le=10**9, description="First line, from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=LINES, description="Lines at most.")] = LINES


def scope(args: Args, _settings: None) -> CallScope:
    """Return the file as the one thing that is touched."""
    return read_scope(args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Return the chosen lines. The session knows the whole content from then on."""
    data = await ctx.files.read(args.path, FILE_BYTES)
    if is_picture(data) and len(data) <= PICTURE_BYTES:
        kind = media_type(data)
        shown = await ctx.artifacts.picture(data, kind)
        return ToolResult(status=ResultStatus.OK, text=f"{args.path}: {kind}, {len(data):,} bytes.", pictures=(shown,))
    text, count, whole = numbered(decode(data, args.path).text, args.offset, args.limit)
    if args.offset > max(whole, 1):
        raise BadRequest(f"`{args.path}` has {whole} lines.", cure=f"Begin at line {max(whole, 1)} or before.")
    await ctx.changes.saw(args.path, data)
    if not whole:
        return ToolResult(status=ResultStatus.OK, text=f"{args.path} is empty.")
    head = f"{args.path}, lines {args.offset} to {args.offset + count - 1} of {whole}, hash {content_hash(data)[:8]}"
    more = "" if args.offset + count > whole else f"\nGo on with offset={args.offset + count}."
    return ToolResult(status=ResultStatus.OK, text=f"{head}\n{text}{more}", untrusted=True)
