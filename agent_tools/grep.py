"""The tool `grep`: searches the contents of workspace files by a regular expression."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from agent_tools._files.arguments import AlsoIgnored, FolderPath, SearchPattern, read_scope, without_nul
from agent_tools._files.ripgrep import searched
from agent_tools._files.text_files import path_line
from gateway.domain.secret_paths import is_secret_path
from gateway.domain.tools import (
    Availability,
    CallScope,
    Effect,
    NetworkPolicy,
    ResultStatus,
    Risk,
    SandboxPolicy,
    ToolResult,
    ToolSpec,
)
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="grep",
    description="Search workspace files by a regular expression. Returns path, line number and line.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    sandbox=SandboxPolicy.AUTO,
    network=NetworkPolicy.NONE,
    positional="pattern",
    example="timeout",
)
HITS = 100
"""Matching lines in a result."""
LINE_CHARS = 2000
"""Characters of a line in a result."""
FILE_BYTES = "10M"
_MATCH = b'{"type":"match"'
"""Beginning of ripgrep's lines with a hit. The others return files and figures."""


def _without_nul_or_none(text: str | None) -> str | None:
    return None if text is None else without_nul(text)


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: SearchPattern
    path: FolderPath = "."
    include: Annotated[
        str | None,
        Field(min_length=1, max_length=200, validation_alias=AliasChoices("include", "glob"), description="As *.py."),
        AfterValidator(_without_nul_or_none),
    ] = None
    all: AlsoIgnored = False


def scope(args: Args, _settings: None) -> CallScope:
    """Return the folder as the one thing that is touched."""
    return read_scope(args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Search, and return the first hits by path."""
    options = ["--json", "--sort", "path", "--max-count", str(HITS), "--max-filesize", FILE_BYTES, "-e", args.pattern]
    options += ["--glob", args.include] if args.include else []
    data, cut = await searched(ctx, options, args.path, ignored=args.all)
    hits: list[str] = []
    for hit in _hits(data, ctx.files.is_hidden):
        if len(hits) == HITS:
            cut = True
            break
        hits.append(hit)
    if not hits:
        more = "" if args.all else " Files that .gitignore names were left out; `all` includes them."
        return ToolResult(status=ResultStatus.OK, text=f"Nothing matches.{more}")
    note = f"\nThese are the first {len(hits)} hits; narrow the pattern or the path for others." if cut else ""
    return ToolResult(status=ResultStatus.OK, text="\n".join(hits) + note, untrusted=True)


def _hits(data: bytes, hidden: Callable[[str], bool]) -> Iterator[str]:
    for line in data.splitlines():
        if not line.startswith(_MATCH):
            continue
        try:
            event: Any = json.loads(line)
        except ValueError:  # the last line may be cut
            return
        found = event["data"]
        path = _text(found["path"]).removeprefix("./")
        if is_secret_path(path) or hidden(path):
            continue
        text = _text(found["lines"]).rstrip("\r\n")
        yield f"{path_line(path)}:{found['line_number']}: {text[:LINE_CHARS]}{'…' if len(text) > LINE_CHARS else ''}"


def _text(found: dict[str, str]) -> str:
    """Return a text of ripgrep's events, which is in Base64 when it is not UTF-8."""
    return found["text"] if "text" in found else base64.b64decode(found["bytes"]).decode(errors="replace")
