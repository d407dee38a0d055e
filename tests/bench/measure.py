"""Measurements of a running process from outside (CPU, memory, commits), and percentiles of durations."""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MEGABYTE_KB = 1024
TICKS_A_S = os.sysconf("SC_CLK_TCK")
NS = 1_000_000_000


def cpu_s(pid: int) -> float:
    """Seconds of CPU that the process's living threads used, to the nanosecond where the kernel tells it."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / NS
    except FileNotFoundError:
        return cpu_with_children_s(pid)


def cpu_with_children_s(pid: int) -> float:
    """Seconds of CPU of the process since its exec, ended threads and ended children too; in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_A_S


def pss_mb(pid: int) -> float:
    """Memory of the process in MB: what it shares with others counts in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / MEGABYTE_KB
    raise LookupError(f"the kernel does not tell the PSS of {pid}")


def tree(pid: int) -> set[int]:
    """All processes that a process started, and those that these started."""
    found: set[int] = set()
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = {int(child) for child in listing.read_text().split()}
        except OSError:  # the thread ended meanwhile
            continue
        found |= below.union(*map(tree, below))
    return found


def tree_pss_mb(pid: int) -> float:
    """Memory of the process and of all that it started, in MB; what they share counts once.

    A process that was just forked and has not begun its program is left out: it has the very memory of its parent.
    """
    total = pss_mb(pid)
    for one in tree(pid):
        with suppress(OSError, LookupError):  # it ended meanwhile
            total += 0 if _command_line(one) == _command_line(pid) else pss_mb(one)
    return total


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def commits(database: Path) -> int:
    """Return the number of transactions of an open WAL database: the change counter of its index in shared memory."""
    with Path(f"{database}-shm").open("rb") as index:
        (count,) = struct.unpack_from("=I", index.read(12), 8)
    return int(count)


def child_cpu_s(command: Sequence[str], folder: Path) -> float:
    """Run a command to its end; return the CPU seconds that it used. Raises `AssertionError` when it fails."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (command, child.returncode)
    return usage.ru_utime + usage.ru_stime


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """The value that one in twenty passes."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]
