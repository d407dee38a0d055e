"""Memory of all processes of a tree together. Watched by `tree` while a program runs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from gateway.sandbox.supervisor import is_below

LOOK_EVERY_S = 1.0
"""Interval in seconds between two looks at the machine's free memory."""
MEASURED_EVERY = 10
"""Looks after which the tree is measured even when the machine has as much free memory as before."""
_KB = 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True, kw_only=True)
class MemoryWatch:
    """Watch over one tree. The machine's free memory is cheap to read, the tree's own is read when that has shrunk."""

    limit: int
    """Bytes that the tree may take."""
    leader: int
    """Process that all others descend from."""
    _looks: int = 0
    _most_free: int = 0
    """Most free memory since the start, in bytes."""

    async def is_exceeded(self) -> bool:
        """Look once. Return True when the tree takes more than it may."""
        self._looks += 1
        free = free_bytes()
        self._most_free = max(self._most_free, free)
        if self._most_free - free <= self.limit // 2 and self._looks % MEASURED_EVERY:
            return False
        return await asyncio.to_thread(tree_bytes, self.leader) > self.limit


def free_bytes() -> int:
    """Return the memory that the machine can still give; 0 when it cannot be read, so that the tree is measured."""
    try:
        with open("/proc/meminfo", "rb") as figures:
            return _figure(figures.read(), b"MemAvailable:")
    except OSError:
        return 0


def tree_bytes(leader: int) -> int:
    """Return the memory of all processes below one, each shared page divided among those that have it.

    0 when no descriptor is left to list them: the next look counts again.
    """
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return 0
    return sum(_bytes_of(pid) for pid in pids if is_below(pid, leader))


def _bytes_of(pid: int) -> int:
    """Return a process' memory; its private part where more cannot be read, 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return _figure(rollup.read(), b"Pss:")
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            _, resident, shared, *_ = statm.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _figure(text: bytes, name: bytes) -> int:
    """Return a figure in bytes from lines such as `Pss: 12 kB`; 0 without one."""
    words = text.partition(name)[2].split(maxsplit=1)
    return int(words[0]) * _KB if words else 0
