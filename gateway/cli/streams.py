"""What the shell gave a command to read and to write on: closed, full, or of another encoding than ours."""

from __future__ import annotations

import errno
import io
import os
import sys

import click

_OUTPUT_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF})


def use_streams() -> None:
    """Put nothing in the place of an output that is closed; escape what one cannot show, where that would fail."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif isinstance(stream, io.TextIOWrapper):
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
