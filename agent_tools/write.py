"""The tool `write`: writes a whole file of the workspace, after its diff was shown."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_tools._files import applying
from agent_tools._files.arguments import TEXT_CHARS, FilePath, write_scope
from agent_tools._files.text_files import Text, decode
from gateway.domain.file_changes import FileChange, content_hash
from gateway.domain.tools import Availability, CallScope, Effect, Preview, Risk, ToolResult, ToolSpec
from gateway.errors import BadRequest
from gateway.ports import CheckContext, PrepareContext, ToolContext

SPEC = ToolSpec(
    name="write",
    description="Create a text file in the workspace, or replace a file that was read. Makes missing folders.",
    risk=Risk.WRITE,
    effect=Effect.CHECKABLE,
    availability=Availability.ALWAYS,
    shows="path",
    in_preview=frozenset({"content"}),
)


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    content: Annotated[str, Field(max_length=TEXT_CHARS)]


def scope(args: Args, _settings: None) -> CallScope:
    """Return the file as the one thing that is changed."""
    return write_scope(args.path)


async def prepare(ctx: PrepareContext, args: Args) -> Preview:
    """Show the diff."""
    return applying.preview_of(ctx, [await _planned(ctx, args)])


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Write the file."""
    return await applying.resumed(ctx) or await applying.applied(ctx, [await _planned(ctx, args)])


async def check(ctx: CheckContext, _args: Args) -> ToolResult | None:
    """Find out if the file was written."""
    return await applying.told(ctx)


async def _planned(ctx: PrepareContext | ToolContext, args: Args) -> applying.Planned:
    data = await applying.content_or_none(ctx, args.path)
    if data is None:
        new = Text(text="").encode(args.content)
        return applying.Planned(
            path=args.path,
            before="",
            after=args.content,
            change=FileChange(path=args.path, before="", data=new),
        )
    await applying.must_be_known(ctx.changes, args.path, data)
    old = decode(data, args.path)
    new = old.encode(args.content)
    if new == data:
        raise BadRequest(f"`{args.path}` has this content already.", cure="Say what is to change.")
    return applying.Planned(
        path=args.path,
        before=old.text,
        after=args.content,
        change=FileChange(path=args.path, before=content_hash(data), data=new),
    )
