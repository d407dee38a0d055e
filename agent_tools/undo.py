"""The tool `undo`: takes back the file changes of the last turn that made some, after the diff was shown."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_tools._files import applying
from agent_tools._files.text_files import is_binary
from gateway.domain.file_changes import FileChange, Undo
from gateway.domain.tools import Availability, CallScope, Effect, Preview, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import CheckContext, PrepareContext, ToolContext

SPEC = ToolSpec(
    name="undo",
    description="Take back the file changes of the last turn that changed files with write, edit or apply_patch.",
    risk=Risk.WRITE,
    effect=Effect.CHECKABLE,
    availability=Availability.ALWAYS,
    indexed=True,
)


class Args(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def scope(_args: Args, _settings: None) -> CallScope:
    """Return a scope without names: the card shows the files."""
    return CallScope(risk=Risk.WRITE, summary="take back the last turn's changes of files")


async def prepare(ctx: PrepareContext, _args: Args) -> Preview | ToolResult:
    """Show the diff that would be applied."""
    undo = await ctx.changes.undo()
    if undo is None:
        return _nothing()
    return applying.preview_of(ctx, [await _planned(ctx, change) for change in undo.changes])


async def run(ctx: ToolContext, _args: Args) -> ToolResult:
    """Restore the old contents."""
    if (done := await applying.resumed(ctx)) is not None:
        return done
    undo: Undo | None = await ctx.changes.undo()
    if undo is None:
        return _nothing()
    return await applying.applied(ctx, [await _planned(ctx, change) for change in undo.changes], undoes=undo.turn)


async def check(ctx: CheckContext, _args: Args) -> ToolResult | None:
    """Find out if the changes were undone."""
    return await applying.told(ctx)


def _nothing() -> ToolResult:
    text = "There is nothing to take back: no turn that is kept of this session changed a file."
    return ToolResult(status=ResultStatus.ERROR, text=text, code="nothing")


async def _planned(ctx: PrepareContext | ToolContext, change: FileChange) -> applying.Planned:
    now = await applying.content_or_none(ctx, change.path)
    return applying.Planned(path=change.path, before=_text(now), after=_text(change.data), change=change)


def _text(data: bytes | None) -> str:
    if data is None:
        return ""
    return f"(binary, {len(data):,} bytes)" if is_binary(data) else data.decode(errors="replace")
