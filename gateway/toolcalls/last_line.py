"""Last line that a running call printed, for the status line of its turn. Used by `execution`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

EVERY_S = 1.0
"""Least seconds between two reports of one call."""
KEPT_CHARS = 500
"""Characters of output from whose end the line is taken."""
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Control sequences of terminals: colours, moves of the cursor, titles."""
_BREAK = re.compile(r"[\r\n\v\f\x85\u2028\u2029]+")

OnLine = Callable[[str], None]
"""Handler of a line: plain, of any length up to `KEPT_CHARS`. Must not raise."""


class LastLine:
    """Follows the redacted output of a call. A line that stays the last one is reported in the end."""

    def __init__(self, on_line: OnLine, every_s: float = EVERY_S) -> None:
        """Report to `on_line` at most once in `every_s` seconds."""
        self._on_line = on_line
        self._every_s = every_s
        self._recent = ""
        self._reported = ""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, text: str) -> None:
        """Take the next part of the output. The first report comes at once. Does nothing once it is closed."""
        if self._closed:
            return
        self._recent = (self._recent + text[-KEPT_CHARS:])[-KEPT_CHARS:]
        if self._timer is None:
            self._report()

    def close(self) -> None:
        """Report no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._recent, self._closed = None, "", True

    def _report(self) -> None:
        self._timer = None
        line = last_line(self._recent)
        if line and line != self._reported:
            self._reported = line
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._report)
            self._on_line(line)


def last_line(text: str) -> str:
    """Return the last line with anything but blanks, without control sequences; empty when there is none.

    A carriage return begins a line too: progress bars are written over and over.
    """
    lines = (line.strip() for line in reversed(_BREAK.split(_CONTROL.sub("", text))))
    return next((line for line in lines if line), "")
