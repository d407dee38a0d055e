"""Seconds of a path through several processes, without those in which they waited for a processor.

So other load on the machine does not count: what is slow by itself computes or sleeps, and both count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def waited_s(pid: int) -> float:
    """Return the seconds for which the threads of a process were ready and had no processor; 0 where Linux hides it."""
    found = 0
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # it ended meanwhile
                found += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return found / 1e9


class Stopwatch:
    """A stopwatch of this process and another one, which may begin later."""

    def __init__(self, pid: Callable[[], int | None]) -> None:
        """Start it. `pid`: of the other process; None while there is none."""
        self._pid = pid
        self._began, self._waited = time.monotonic(), self._both_waited()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._began - (self._both_waited() - self._waited)

    def _both_waited(self) -> float:
        return sum(waited_s(pid) for pid in (os.getpid(), self._pid()) if pid is not None)
