"""Shared steps of tools that change files: check, show, apply, and find the outcome after a crash.

Used by `write`, `edit`, `multiedit`, `apply_patch` and `undo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_tools._files.text_files import FILE_BYTES, Text, decode, diff, path_line
from gateway.domain.file_changes import ChangeOutcome, FileChange, content_hash
from gateway.domain.tools import Preview, ResultStatus, ToolResult
from gateway.errors import BadRequest, NotFound
from gateway.ports import CheckContext, KnownFiles, PrepareContext, ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Change of one file, with its text before and after."""

    path: str
    before: str
    """Text; empty for a new file."""
    after: str
    """Text; empty for a removed file."""
    change: FileChange
    note: str = ""
    """Kind of match, when the text was not found exactly."""


async def known_text(ctx: PrepareContext | ToolContext, path: str) -> tuple[Text, str]:
    """Return a file's text and hash. Raises `BadRequest` when the session has not read this content."""
    data = await ctx.files.read(path, FILE_BYTES)
    await must_be_known(ctx.changes, path, data)
    return decode(data, path), content_hash(data)


async def must_be_known(known: KnownFiles, path: str, data: bytes) -> None:
    """Raise `BadRequest` when the session has not read this content of a file."""
    seen = await known.seen(path)
    if not seen:
        raise BadRequest(f"`{path}` was not read in this session.", cure="Read it first, then change it.")
    if seen != content_hash(data):
        raise BadRequest(
            f"`{path}` changed since it was read: its hash is {content_hash(data)[:8]} now, and was {seen[:8]}.",
            cure="Read it again, then change it.",
        )


async def content_or_none(ctx: PrepareContext | ToolContext, path: str) -> bytes | None:
    """Return a file's content, or None when there is no such file."""
    try:
        return await ctx.files.read(path, FILE_BYTES)
    except NotFound:
        return None


def _must_be_distinct(ctx: PrepareContext | ToolContext, planned: Sequence[Planned]) -> None:
    """Raise `BadRequest` when two changes are of one file, however each names it: the last would undo the others."""
    found = set[tuple[str, ...]]()
    for one in planned:
        if (parts := ctx.files.parts(one.path)) in found:
            raise BadRequest(f"`{one.path}` is named twice.", cure="Put all its changes under one entry.")
        found.add(parts)


def preview_of(ctx: PrepareContext, planned: Sequence[Planned]) -> Preview:
    """Return the diff of all changes for the card, with the hash that each file must still have.

    Raises `BadRequest` when two changes are of one file.
    """
    _must_be_distinct(ctx, planned)
    texts = [one.note for one in planned if one.note]
    texts += [
        diff(one.path, one.before, one.after) or f"{path_line(one.path)}: only white space at line ends"
        for one in planned
    ]
    state = {one.path: one.change.before for one in planned}
    return Preview(text="\n".join(texts), state=state, exact=not any(one.note for one in planned))


async def applied(ctx: ToolContext, planned: Sequence[Planned], *, undoes: str = "") -> ToolResult:
    """Apply changes, and return what was done.

    Raises `BadRequest` when a file is not as the approver saw it, and when two changes are of one file.
    """
    _must_be_distinct(ctx, planned)
    for one in planned:
        approved = ctx.prepared.get(one.path)
        if ctx.prepared and approved != one.change.before:
            raise BadRequest(f"`{one.path}` is not as it was shown.", cure="Read it again, then change it.")
    await ctx.changes.apply([one.change for one in planned], undoes=undoes)
    lines = [_line(one) for one in planned]
    return ToolResult(status=ResultStatus.OK, text="\n".join(lines))


def _line(one: Planned) -> str:
    changed = diff(one.path, one.before, one.after).split("\n")
    added = sum(line.startswith("+") and not line.startswith("+++") for line in changed)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in changed)
    if one.change.data is None:
        what = "removed"
    else:
        what = f"{'changed' if one.change.before else 'created'}, hash {content_hash(one.change.data)[:8]}"
    return f"{path_line(one.path)}: {what}, +{added} -{removed} lines.{f' {one.note}' if one.note else ''}"


async def resumed(ctx: ToolContext) -> ToolResult | None:
    """Complete the changes of a call that a crash cut. None: this call has changed nothing yet."""
    if await ctx.changes.outcome() is ChangeOutcome.NONE:
        return None
    await ctx.changes.resume()
    return _done()


async def told(ctx: CheckContext) -> ToolResult | None:
    """Return the result of an interrupted call whose changes are all made; None when it can run again.

    Raises `BadRequest` when something else changed its files: then nobody knows.
    """
    match await ctx.changes.outcome():
        case ChangeOutcome.DONE:
            return _done()
        case ChangeOutcome.NONE | ChangeOutcome.PART:
            return None
        case ChangeOutcome.UNKNOWN:
            raise BadRequest("The files changed since.", cure="Read them.")


def _done() -> ToolResult:
    return ToolResult(status=ResultStatus.OK, text="Done. The daemon ended meanwhile, and the changes are complete.")
