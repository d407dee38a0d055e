"""Terminal input and output of commands: the standard streams, and the layout of a daemon's answers.

Streams may be closed, full, or of another encoding than ours. Text that others wrote cannot steer the terminal.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

_LAST = 2
"""The number of standard error, the last of the three."""
_OUTPUT_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF})


def use_streams() -> None:
    """Put nothing in the place of what is closed; escape what an output cannot show, where that would fail.

    The three numbers are taken whatever Python has of them: what is opened next would be given one, and a library or a
    tool that writes to standard error by its number would write into that.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        os.set_inheritable(number, True)  # as those that are not closed
    os.close(number)
    for number, name in ((1, "stdout"), (_LAST, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def read_input() -> str:
    """Return all of standard input, `\\ufffd` for what is no text. Raises `UsageError` when it is closed."""
    if sys.stdin is None:
        raise click.UsageError("Standard input is closed: there is nothing to read.")
    return sys.stdin.buffer.read().decode(sys.stdin.encoding or "utf-8", "replace")


def is_of_output(error: OSError) -> bool:
    """Whether this is what a write to standard output fails with: of a file its name would be told."""
    return error.errno in _OUTPUT_ERRORS and error.filename is None


def leave_output(error: OSError) -> None:
    """Say why nothing more is printed, but to whoever has read enough; nothing is flushed there at the exit."""
    if error.errno != errno.EPIPE:
        click.echo(f"Error: Standard output cannot be written: {error.strerror}.", err=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- layout ---------------------------------------------------------------------------------------


def plain(value: object) -> str:
    """Return the value as one line: control characters, line ends and the like are escaped, not sent."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def block(text: object, indent: str) -> str:
    """Return text of several lines, each indented and made plain."""
    return "\n".join(indent + plain(line.expandtabs()) for line in str(text).split("\n"))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows under their columns' names; what a row does not have is empty."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [[plain(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def approval(row: Mapping[str, Any]) -> str:
    """Return one open approval with the whole action that it asks about."""
    head = f"{plain(row.get('title'))}, in {plain(row.get('session'))}"
    times = f"asked {plain(row.get('asked_at'))}, until {plain(row.get('expires_at'))}"
    return f"{plain(row.get('id'))}  {head}\n  {times}\n{block(row.get('rendered', ''), '    ')}"
