"""Terminal of one interactive program: a pseudo-terminal of fixed size that takes input while the program runs.

Made by a caller of `run_contained`, opened by `tree`. The program never sees the daemon's own terminal.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from gateway.errors import BadRequest

ROWS, COLUMNS = 40, 120
INPUT_BYTES = 4_096
"""Bytes of one input; a terminal keeps no longer line."""


class Terminal:
    """Pseudo-terminal, for one program."""

    def __init__(self) -> None:
        """Make it without a program; nothing is opened yet."""
        self._master = -1

    def open(self) -> tuple[int, int]:
        """Open both ends: ours, which does not block and stays the caller's to close, and the program's."""
        ours, theirs = os.openpty()
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
            modes = termios.tcgetattr(theirs)
            modes[1] &= ~termios.ONLCR  # lines end as in any other output
            termios.tcsetattr(theirs, termios.TCSANOW, modes)
            os.set_blocking(ours, False)
        except BaseException:
            os.close(ours)
            os.close(theirs)
            raise
        self._master = ours
        return ours, theirs

    def close(self) -> None:
        """Accept no more input; the descriptors are closed by the tree."""
        self._master = -1

    def write(self, data: bytes) -> None:
        """Type into the terminal. Raises `BadRequest` when no program takes it, or takes no more."""
        if self._master < 0:
            raise BadRequest("The program has ended.", cure="Start it again.")
        if len(data) > INPUT_BYTES:
            raise BadRequest(
                f"The input is longer than {INPUT_BYTES:,} bytes.", cure="Write it into a file, or send it in parts."
            )
        try:
            written = os.write(self._master, data)
        except OSError:  # its buffer is full, or the program has just closed it
            written = 0
        if written < len(data):
            cure = "See what it prints, then send the rest."
            raise BadRequest(f"The program read only {written:,} of {len(data):,} bytes.", cure=cure)
