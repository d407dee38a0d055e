"""The tool `edit`: replaces text in a workspace file, after its diff was shown. Several edits are one atomic write."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent_tools._files import applying
from agent_tools._files.arguments import (
    FilePath,
    NewText,
    NewTextOrNone,
    OldText,
    OldTextOrNone,
    ReplaceAll,
    write_scope,
)
from agent_tools._files.replacing import Edit, apply_edits
from agent_tools._files.text_files import path_line
from gateway.domain.file_changes import FileChange
from gateway.domain.tools import Availability, CallScope, Effect, Preview, Risk, ToolResult, ToolSpec
from gateway.errors import BadRequest
from gateway.ports import CheckContext, PrepareContext, ToolContext

SPEC = ToolSpec(
    name="edit",
    description="Replace text in a file of the workspace that was read. `old` must be unique, with its spaces.",
    risk=Risk.WRITE,
    effect=Effect.CHECKABLE,
    availability=Availability.ALWAYS,
    shows="path",
    in_preview=frozenset({"old", "new", "edits", "replace_all"}),
)


class OneEdit(BaseModel):
    """One replacement."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    old: OldText
    new: NewText
    replace_all: ReplaceAll = False


class Args(BaseModel):
    """Arguments of one call: one replacement, or several in `edits`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    old: OldTextOrNone = None
    new: NewTextOrNone = None
    replace_all: ReplaceAll = False
    edits: Annotated[
        tuple[OneEdit, ...] | None, Field(min_length=1, max_length=50, description="Several, in order.")
    ] = None

    @model_validator(mode="after")
    def _is_one_form(self) -> Args:
        if self.edits is None and (self.old is None or self.new is None):
            raise ValueError("give `old` and `new`, or `edits`")
        if self.edits is not None and (self.old is not None or self.new is not None):
            raise ValueError("give either `old` and `new`, or `edits`, not both")
        return self

    def all(self) -> list[Edit]:
        """Return the replacements in order."""
        if self.edits is not None:
            return [Edit(old=one.old, new=one.new, everywhere=one.replace_all) for one in self.edits]
        return [Edit(old=self.old or "", new=self.new or "", everywhere=self.replace_all)]


def scope(args: Args, _settings: None) -> CallScope:
    """Return the file as the one thing that is changed."""
    return write_scope(args.path)


async def prepare(ctx: PrepareContext, args: Args) -> Preview:
    """Show the diff."""
    return applying.preview_of(ctx, [await planned(ctx, args.path, args.all())])


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Edit the file."""
    return await applying.resumed(ctx) or await applying.applied(ctx, [await planned(ctx, args.path, args.all())])


async def check(ctx: CheckContext, _args: Args) -> ToolResult | None:
    """Find out if the file was changed."""
    return await applying.told(ctx)


async def planned(ctx: PrepareContext | ToolContext, path: str, edits: list[Edit]) -> applying.Planned:
    """Return the change of one file by edits. Raises `BadRequest` when one does not fit."""
    old, sha = await applying.known_text(ctx, path)
    edited = await asyncio.to_thread(apply_edits, old.text, edits)
    note = f"{path_line(path)}: `old` was found by {', '.join(edited.loose)}, not exactly." if edited.loose else ""
    change = FileChange(path=path, before=sha, data=old.encode(edited.text))
    if old.encode(edited.text) == old.encode(old.text):
        raise BadRequest(f"The edits of `{path}` undo each other.", cure="Say what is to change.")
    return applying.Planned(path=path, before=old.text, after=edited.text, change=change, note=note)
