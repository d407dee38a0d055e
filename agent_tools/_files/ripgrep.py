"""Searches of the workspace with ripgrep, in the sandbox and without any configuration. Used by `grep` and `glob`."""

from __future__ import annotations

import posixpath
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_tools._files.text_files import FILE_BYTES
from gateway.domain.secret_paths import SECRET_GLOBS
from gateway.errors import BadRequest, NotFound
from gateway.ports import ToolContext

OUTPUT_BYTES = 4_000_000
"""Bytes of ripgrep's output that are read."""
_FAILED = 2
"""Exit code of ripgrep for an error; 1 says that nothing was found."""


def program() -> str:
    """Return ripgrep's path: that of this environment, else the system's. Raises `NotFound`.

    The system's may be old: ripgrep 13, in Debian 12, sorts by time within each folder only.
    """
    beside = Path(sys.executable).parent / "rg"
    found = str(beside) if beside.is_file() else shutil.which("rg", path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise NotFound("ripgrep is not installed.", cure="Install it: apt install ripgrep, or ./run again.")
    return found


async def searched(ctx: ToolContext, options: Sequence[str], folder: str, *, ignored: bool) -> tuple[bytes, bool]:
    """Return ripgrep's output and whether it was cut. `ignored`: search files that .gitignore names, too.

    Raises `BadRequest` for a folder elsewhere and for a malformed pattern, with ripgrep's own words.
    """
    await _must_be_beneath(ctx, folder)
    common = ["--no-config", "--hidden", "--no-messages", "--iglob", "!.git", "--iglob", "!.dragoman"]
    common += [part for glob in SECRET_GLOBS for part in ("--iglob", f"!{glob}")]
    common += ["--no-ignore"] if ignored else ["--no-require-git"]
    found = await ctx.process.read([program(), *common, *options, "--", _named(folder)], OUTPUT_BYTES)
    if found.exit_code == _FAILED and not found.data.startswith(b"{"):
        why = found.data.decode(errors="replace").strip()[:500]
        raise BadRequest(f"The search failed: {why or 'no reason was given'}", cure="Correct the pattern.")
    return found.data, found.cut


async def _must_be_beneath(ctx: ToolContext, path: str) -> None:
    """Raise `BadRequest` or `NotFound` for a path elsewhere: ripgrep follows a link that is named."""
    try:
        await ctx.files.entries(path, 0)
    except BadRequest as error:
        try:
            await ctx.files.read(path, FILE_BYTES)
        except BadRequest:
            raise error from None


def _named(folder: str) -> str:
    """Return the folder as an argument that is no option, relative to the workspace where it was."""
    whole = posixpath.normpath(folder)
    return whole if whole.startswith("/") else f"./{whole}".removesuffix(".")
