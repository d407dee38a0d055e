"""The tool `multiedit`: edits several workspace files in one call, after one diff was shown. All are checked first."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent_tools._files import applying
from agent_tools._files.arguments import FilePath, write_scope
from agent_tools._files.replacing import Edit
from agent_tools.edit import OneEdit, planned
from gateway.domain.tools import Availability, CallScope, Effect, Preview, Risk, ToolResult, ToolSpec
from gateway.ports import CheckContext, PrepareContext, ToolContext

SPEC = ToolSpec(
    name="multiedit",
    description="Replace texts in several files of the workspace that were read, all or none.",
    risk=Risk.WRITE,
    effect=Effect.CHECKABLE,
    availability=Availability.ALWAYS,
    in_preview=frozenset({"files"}),
    indexed=True,
)


class FileEdits(BaseModel):
    """Replacements in one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    edits: Annotated[tuple[OneEdit, ...], Field(min_length=1, max_length=50)]


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: Annotated[tuple[FileEdits, ...], Field(min_length=1, max_length=50)]

    @field_validator("files")
    @classmethod
    def _are_different(cls, files: tuple[FileEdits, ...]) -> tuple[FileEdits, ...]:
        if len({one.path for one in files}) < len(files):
            raise ValueError("a file is named twice: put all its edits under one entry")
        return files


def scope(args: Args, _settings: None) -> CallScope:
    """Return the files that are changed."""
    return write_scope(*(one.path for one in args.files))


async def prepare(ctx: PrepareContext, args: Args) -> Preview:
    """Show the diffs."""
    return applying.preview_of(ctx, await _all(ctx, args))


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Edit the files."""
    return await applying.resumed(ctx) or await applying.applied(ctx, await _all(ctx, args))


async def check(ctx: CheckContext, _args: Args) -> ToolResult | None:
    """Find out if the files were changed."""
    return await applying.told(ctx)


async def _all(ctx: PrepareContext | ToolContext, args: Args) -> list[applying.Planned]:
    return [
        await planned(
            ctx, one.path, [Edit(old=edit.old, new=edit.new, everywhere=edit.replace_all) for edit in one.edits]
        )
        for one in args.files
    ]
