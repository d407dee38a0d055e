"""Rig of the fault tests of memory: a command line with a memory limit, and a daemon started by it.

A control group limits a program and all its children together, as a small machine does: the kernel then kills one.
Without a control group each process has its own limit, and its allocations fail.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
GONE_WITHIN_S = 5.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A memory limit in force."""

    prefix: tuple[str, ...]
    """Prefix of the command line of the limited process."""
    together: bool
    """True if the process and its descendants share one limit."""


@contextmanager
def held_to(together_bytes: int, alone_bytes: int) -> Generator[Held]:
    """Limit memory: of all together where a control group can be made, else of the addresses of each process."""
    group = _made(together_bytes)
    if group is None:
        yield Held(prefix=("prlimit", f"--as={alone_bytes}"), together=False)
        return
    try:
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        yield Held(prefix=("sh", "-c", enter, "sh"), together=True)
    finally:
        _removed(group)


def _made(most: int) -> Path | None:
    for parent, limit in _places():
        group = parent / f"dragoman-{os.getpid()}-{next(_numbers)}"
        with suppress(OSError):
            group.mkdir()
            with suppress(OSError):
                (group / limit).read_text()  # not there where the parent does not pass memory on
                (group / limit).write_text(str(most))
                _without_swap(group, most)
                return group
            group.rmdir()
    return None


def _without_swap(group: Path, most: int) -> None:
    """Set no swap, where the kernel counts it: a full limit is full, without a disk in place of memory."""
    for name, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", most)):
        with suppress(OSError):
            (group / name).read_text()
            (group / name).write_text(str(value))


def _places() -> Iterator[tuple[Path, str]]:
    """Yield possible groups with the name of their limit: below our own, or beside it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            own = GROUPS / path.lstrip("/")
            yield from ((own, "memory.max"), (own.parent, "memory.max"))
        elif "memory" in controllers.split(","):
            yield GROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"


def _removed(group: Path) -> None:
    """Take a group away once its last process is gone."""
    end = time.monotonic() + GONE_WITHIN_S
    while (group / "cgroup.procs").read_text() and time.monotonic() < end:
        time.sleep(0.02)
    group.rmdir()


def no_more_than_now(pid: int, room: int) -> None:
    """Let a process have this much memory besides what it has now, and no more until `as_much_as_it_likes`."""
    has = int(re.findall(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024
    resource.prlimit(pid, resource.RLIMIT_AS, (has + room, resource.RLIM_INFINITY))


def as_much_as_it_likes(pid: int) -> None:
    """Lift the limit."""
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
