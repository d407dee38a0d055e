"""The tool `apply_patch`: adds, changes, moves and removes workspace files by one patch, after its diff was shown."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from agent_tools._files import applying
from agent_tools._files.arguments import write_scope
from agent_tools._files.patches import FilePatch, parse_patch, patched
from agent_tools._files.text_files import Text
from gateway.domain.file_changes import NEW_FILE_MODE, FileChange
from gateway.domain.tools import Availability, CallScope, Effect, Preview, Risk, ToolResult, ToolSpec
from gateway.errors import BadRequest
from gateway.ports import CheckContext, PrepareContext, ToolContext

SPEC = ToolSpec(
    name="apply_patch",
    description="Change files by a patch: *** Begin Patch, *** Add, Update or Delete File: PATH, … *** End Patch.",
    risk=Risk.WRITE,
    effect=Effect.CHECKABLE,
    availability=Availability.ALWAYS,
    positional="patch",
    in_preview=frozenset({"patch"}),
    indexed=True,
)


def _well_formed(text: str) -> str:
    """Return a readable patch. Raises `ValueError` with its fault, regardless of rules for its files."""
    try:
        parse_patch(text)
    except BadRequest as error:
        raise ValueError(str(error).rstrip(".")) from error
    return text


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    patch: Annotated[
        str,
        Field(min_length=1, max_length=1_000_000, validation_alias=AliasChoices("patch", "patchText", "patch_text")),
        AfterValidator(_well_formed),
    ]


def scope(args: Args, _settings: None) -> CallScope:
    """Return all files that the patch names."""
    return write_scope(*(path for one in parse_patch(args.patch) for path in (one.path, one.move_to) if path))


async def prepare(ctx: PrepareContext, args: Args) -> Preview:
    """Show the diff of all files."""
    return applying.preview_of(ctx, await _planned(ctx, args))


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Apply the patch."""
    return await applying.resumed(ctx) or await applying.applied(ctx, await _planned(ctx, args))


async def check(ctx: CheckContext, _args: Args) -> ToolResult | None:
    """Find out if the patch was applied."""
    return await applying.told(ctx)


async def _planned(ctx: PrepareContext | ToolContext, args: Args) -> list[applying.Planned]:
    """Return the changes of all files; every hunk is verified first."""
    return [change for one in parse_patch(args.patch) for change in await _of(ctx, one)]


async def _of(ctx: PrepareContext | ToolContext, one: FilePatch) -> list[applying.Planned]:
    if one.content is not None:
        return [await _new(ctx, one.path, one.content, Text(text=""), NEW_FILE_MODE)]
    old, sha = await applying.known_text(ctx, one.path)
    gone = FileChange(path=one.path, before=sha, data=None)
    if one.remove:
        return [applying.Planned(path=one.path, before=old.text, after="", change=gone)]
    text = await asyncio.to_thread(patched, one.path, old.text, one.hunks)
    if one.move_to:
        moved = await _new(ctx, one.move_to, text, old, await ctx.files.mode(one.path))
        return [moved, applying.Planned(path=one.path, before=old.text, after="", change=gone)]
    change = FileChange(path=one.path, before=sha, data=old.encode(text))
    return [applying.Planned(path=one.path, before=old.text, after=text, change=change)]


async def _new(ctx: PrepareContext | ToolContext, path: str, text: str, shape: Text, mode: int) -> applying.Planned:
    if await applying.content_or_none(ctx, path) is not None:
        raise BadRequest(f"`{path}` exists already.", cure="Update it, or name another path.")
    change = FileChange(path=path, before="", data=shape.encode(text), mode=mode)
    return applying.Planned(path=path, before="", after=text, change=change)
