"""The tool `send_file`: sends a workspace file into the chat at hand. A picture is shown, anything else is attached."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_tools._files.arguments import FilePath, read_scope
from agent_tools._files.text_files import media_type
from gateway.domain.tools import (
    KEPT_BYTES,
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
    name="send_file",
    description="Send a file of the workspace to the person in this chat, for instance a chart or a report.",
    risk=Risk.READ,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    timeout_s=60.0,
    positional="path",
    command="send",
    example="chart.png",
    indexed=True,
)


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    name: Annotated[str | None, Field(min_length=1, max_length=100, description="Name shown, if another.")] = None


def scope(args: Args, _settings: None) -> CallScope:
    """Return the file as the one thing that is touched."""
    return read_scope(args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Keep the file as an artifact of the call: it leaves as a message of its own."""
    data = await ctx.files.read(args.path, KEPT_BYTES)
    if not data:
        raise BadRequest(f"`{args.path}` is empty.", cure="Write something into it first.")
    name = args.name or PurePosixPath(args.path).name
    kind = media_type(data) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    kept = await ctx.artifacts.file(ctx.files.root.joinpath(*ctx.files.parts(args.path)), name, kind)
    text = f"Sent {args.path}: {kind}, {len(data):,} bytes."
    return ToolResult(status=ResultStatus.OK, text=text, files=(kept,))
