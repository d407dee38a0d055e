"""The tool `read`: returns lines of a workspace file or of a document's text, or shows a picture to the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_tools._files.arguments import FilePath, read_scope
from agent_tools._files.text_files import FILE_BYTES, decode, document_kind, is_picture, media_type, numbered, path_line
from agent_tools._web.reading_room import ReadingRoom
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
from gateway.ports import StatefulTool, ToolContext, ToolHost

SPEC = ToolSpec(
    name="read",
    description="Read a text, PDF or office file with line numbers, or look at a picture. Needed before an edit.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    positional="path",
    example="notes.md",
)
LINES = 2000
"""Lines of one read."""
DOCUMENT_BYTES = 25_000_000
"""Largest document that is read, as large as an attachment may be."""
DOCUMENTS = (".pdf", ".docx", ".docm", ".xlsx", ".xlsm", ".pptx", ".pptm", ".odt", ".ods", ".odp")


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: FilePath
    offset: Annotated[int, Field(ge=1, le=10**9, description="First line, from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=LINES, description="Lines at most.")] = LINES


def scope(args: Args, _settings: None) -> CallScope:
    """Return the file as the one thing that is touched."""
    return read_scope(args.path)


def create(host: ToolHost) -> StatefulTool:
    """Make the tool. Nothing is started before its first document."""
    return Read(host)


class Read:
    """The stateful tool (`ports.StatefulTool`): documents are read in a reading room."""

    def __init__(self, host: ToolHost) -> None:
        """Create the reading room without starting it."""
        self._room = ReadingRoom(host)

    async def serve(self) -> None:
        """Keep the reading room until cancelled."""
        await self._room.serve()

    async def run(self, ctx: ToolContext, args: Args) -> ToolResult:
        """Return the chosen lines. The session knows the whole content of a text file from then on."""
        is_named = args.path.lower().endswith(DOCUMENTS)
        data = await ctx.files.read(args.path, DOCUMENT_BYTES if is_named else FILE_BYTES)
        if is_picture(data) and len(data) <= PICTURE_BYTES:
            kind = media_type(data)
            shown = await ctx.artifacts.picture(data, kind)
            told = f"{path_line(args.path)}: {kind}, {len(data):,} bytes."
            return ToolResult(status=ResultStatus.OK, text=told, pictures=(shown,))
        if kind := document_kind(data):
            return await self._document(ctx, args, kind, data)
        found = _lines(decode(data, args.path).text, args, f", hash {content_hash(data)[:8]}")
        await ctx.changes.saw(args.path, data)
        return found

    async def _document(self, ctx: ToolContext, args: Args, kind: str, data: bytes) -> ToolResult:
        """Return lines of a document's text. It is not known for edits: what is shown is not its content."""
        made = await self._room.read(ctx, kind, data, form="text", url="")
        title, note = str(made.get("title", "")), str(made.get("note", ""))
        text = "\n\n".join(filter(None, [title and f"# {title}", str(made.get("text", ""))]))
        return _lines(text, args, f" of its text. {note}".rstrip())


def _lines(text: str, args: Args, more_of_head: str) -> ToolResult:
    shown, count, whole = numbered(text, args.offset, args.limit)
    if args.offset > max(whole, 1):
        raise BadRequest(f"`{args.path}` has {whole} lines.", cure=f"Begin at line {max(whole, 1)} or before.")
    if not whole:
        return ToolResult(status=ResultStatus.OK, text=f"{path_line(args.path)} is empty.")
    head = f"{path_line(args.path)}, lines {args.offset} to {args.offset + count - 1} of {whole}{more_of_head}"
    more = "" if args.offset + count > whole else f"\nGo on with offset={args.offset + count}."
    return ToolResult(status=ResultStatus.OK, text=f"{head}\n{shown}{more}", untrusted=True)
