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
"""File descriptor of standard error, the last of the three."""
_OUTPUT_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF})


def use_streams() -> None:
    """Open closed standard streams on /dev/null; escape characters that an output cannot encode.

    All three descriptors are occupied. A file opened later would get a free one, and a library that writes to
    descriptor 2 would write into that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        os.set_inheritable(number, True)  # as open standard streams are
    os.close(number)
    for number, name in ((1, "stdout"), (_LAST, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def read_input() -> str:
    """Return all of standard input, with `\\ufffd` for undecodable bytes. Raises `UsageError` when it is closed."""
    if sys.stdin is None:
        raise click.UsageError("Standard input is closed: there is nothing to read.")
    return sys.stdin.buffer.read().decode(sys.stdin.encoding or "utf-8", "replace")


def is_output_error(error: OSError) -> bool:
    """Return whether the error comes from standard output: an error of a file carries its name."""
    return error.errno in _OUTPUT_ERRORS and error.filename is None


def leave_output(error: OSError) -> None:
    """Print the write error unless the reader closed the pipe; discard what exit would flush to standard output."""
    if error.errno != errno.EPIPE:
        click.echo(f"Error: Standard output cannot be written: {error.strerror}.", err=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- layout ---------------------------------------------------------------------------------------


def plain(value: object) -> str:
    """Return the value as one line, with control characters and line ends escaped."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def block(text: object, indent: str) -> str:
    """Return a text with each line indented and passed through `plain`."""
    return "\n".join(indent + plain(line.expandtabs()) for line in str(text).split("\n"))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows under their columns' names; missing cells are empty."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [[plain(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def approval(row: Mapping[str, Any]) -> str:
    """Return one open approval with its whole action."""
    head = f"{plain(row.get('title'))}, in {plain(row.get('session'))}"
    times = f"asked {plain(row.get('asked_at'))}, until {plain(row.get('expires_at'))}"
    return f"{plain(row.get('id'))}  {head}\n  {times}\n{block(row.get('rendered', ''), '    ')}"
