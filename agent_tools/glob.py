"""The tool `glob`: finds workspace files by a pattern of their path, newest first."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator

from agent_tools._files.arguments import AlsoIgnored, FolderPath, SearchPattern, read_scope
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
    name="glob",
    description="Find workspace files by a pattern such as src/**/*.py, newest first.",
    risk=Risk.READ,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    sandbox=SandboxPolicy.AUTO,
    network=NetworkPolicy.NONE,
    positional="pattern",
    example="**/*.md",
    indexed=True,
)
FILES = 100
"""Files in a result."""


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: SearchPattern
    path: FolderPath = "."
    all: AlsoIgnored = False

    @field_validator("pattern")
    @classmethod
    def _includes(cls, text: str) -> str:
        if text.startswith("!"):
            raise ValueError("it begins with !, which excludes: name what to find")
        return text


def scope(args: Args, _settings: None) -> CallScope:
    """Return the folder as the one thing that is touched."""
    return read_scope(args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Search, and return the newest files."""
    options = ["--files", "--null", "--sortr", "modified", "--glob", args.pattern]
    data, cut = await searched(ctx, options, args.path, ignored=args.all)
    whole = data.split(b"\0")[:-1]  # the last one is empty, or cut
    found = [name.decode(errors="replace").removeprefix("./") for name in whole]
    found = [name for name in found if not is_secret_path(name) and not ctx.files.is_hidden(name)]
    if not found:
        more = "" if args.all else " Files that .gitignore names were left out; `all` includes them."
        return ToolResult(status=ResultStatus.OK, text=f"No file matches.{more}")
    left = len(found) - FILES
    more = f"\n{left}{' or more' if cut else ''} older files are left out; narrow the pattern." if left > 0 else ""
    return ToolResult(status=ResultStatus.OK, text="\n".join(map(path_line, found[:FILES])) + more, untrusted=True)
