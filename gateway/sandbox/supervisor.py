"""Supervisor: small parent process of one call's program where no process namespace is available. Run as a script.

It makes itself a child subreaper: all descendants of the program stay below it. Sessions and forks do not matter:
orphans are reparented to the nearest subreaper. A daemon that did this itself could not assign an orphan to its call; a
supervisor has one call only, so all its descendants are that call's.

Orders come on its input: a byte means TERM to all, end of file means KILL to all and exit. End of file also comes when
the daemon is killed. Not a security boundary: a program of the same user can kill its supervisor first.

Only light imports: this file's start is paid with each call.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
import termios
from collections.abc import Mapping
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
ORDERS = 0
"""File descriptor on which orders come."""
WITH_TERMINAL, WITHOUT = "terminal", "no-terminal"
"""Second argument: whether the output is a terminal that becomes the program's own."""
MAX_DEPTH = 64
"""Deepest chain of parents that is followed."""


class Stat(NamedTuple):
    """Parent and process group of a process."""

    parent: int
    group: int


def processes() -> dict[int, Stat]:
    """Return all visible processes. Zombies count: their other threads may still run."""
    found = {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: stat for pid, stat in found.items() if stat}


def stat_of(pid: int) -> Stat | None:
    """Return a process' parent and process group; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return Stat(int(fields[1]), int(fields[2]))
    except (OSError, IndexError):
        return None


def dies_first(pid: int) -> None:
    """Make the kernel kill a tool's processes, and all that they start, before the daemon when memory runs out.

    By default it kills the largest process: a tool that fills its /tmp, which is memory, is small itself. Does nothing
    where the kernel refuses the setting.
    """
    try:
        with open(f"/proc/{pid}/oom_score_adj", "wb") as score:
            score.write(b"1000")
    except OSError:
        return


def descendants(pid: int, of: Mapping[int, Stat]) -> list[int]:
    """Return the descendants of a process, each after its parent."""
    below: dict[int, list[int]] = {}
    for child, stat in of.items():
        below.setdefault(stat.parent, []).append(child)
    found: list[int] = []
    todo = [pid]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def is_below(pid: int, root: int) -> bool:
    """Return True if a process descends from `root`, read now, parent by parent; True also beyond `MAX_DEPTH`."""
    for _ in range(MAX_DEPTH):
        stat = stat_of(pid)
        if stat is None or stat.parent <= 1:
            return False
        if stat.parent == root:
            return True
        pid = stat.parent
    return True


def signal_below(pid: int, number: signal.Signals) -> int:
    """Signal the process groups of all descendants of a process and return how many.

    By groups, because the kernel signals a whole group before any member forks again: one by one, a fork bomb wins.
    A descendant's group has no foreign members unless it is ours or the process' own; those two are not signalled.
    """
    of = processes()
    spared = {os.getpgrp(), of[pid].group if pid in of else 0}
    done: set[int] = set()
    for child in descendants(pid, of):
        group = of[child].group
        if group not in done and _signal(child, of[child], pid, number, alone=group in spared):
            done.add(child if group in spared else group)
    return len(done)


def _signal(child: int, seen: Stat, root: int, number: signal.Signals, *, alone: bool) -> bool:
    # Checked again through a pidfd: a pid that was reused meanwhile must not be signalled.
    try:
        pidfd = os.pidfd_open(child)
    except OSError:
        return False
    try:
        now = stat_of(child)
        if now is None or now.group != seen.group or now.parent not in (seen.parent, root):
            return False
        if alone:
            signal.pidfd_send_signal(pidfd, number)
        else:
            os.killpg(now.group, number)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def main(bounds: list[tuple[int, int]], argv: list[str], *, terminal: bool) -> int:
    """Run `argv` to its end under resource limits (number, value), then kill all its descendants.

    `terminal`: the output is one, and becomes the program's controlling terminal. Return its exit code, 128 + signal
    for a signal.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(2, b"dragoman: this kernel has no child subreaper\n")
        return 126
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, _noted)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    program = os.fork()
    if program == 0:
        _become(bounds, argv, terminal=terminal)
    code = _wait(woken, program)
    _sweep()
    return code


def _noted(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor is written only if the signal has a handler."""


def _become(bounds: list[tuple[int, int]], argv: list[str], *, terminal: bool) -> None:
    try:
        os.dup2(1 if terminal else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), ORDERS)
        os.setsid()  # so that `kill 0` does not reach the supervisor
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        for number, value in bounds:
            resource.setrlimit(number, (value, value))
        dies_first(os.getpid())
        os.execvp(argv[0], argv)  # noqa: S606 - becoming the program is what it is for
    except OSError as error:
        os.write(2, f"dragoman: {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait(woken: int, program: int) -> int:
    poll = select.poll()
    poll.register(ORDERS, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == ORDERS:
                if not os.read(ORDERS, 64):
                    return 128 + signal.SIGKILL
                signal_below(os.getpid(), signal.SIGTERM)
                continue
            os.read(woken, 512)
            code = _reap(program)
            if code is not None:
                return code


def _reap(program: int) -> int | None:
    """Reap all ended children; return the program's exit code once it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == program:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _sweep() -> None:
    """Kill until no child is left: processes forked during one pass are killed in the next."""
    while True:
        signal_below(os.getpid(), signal.SIGKILL)
        _reap(0)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        select.select([], [], [], 0.001)


if __name__ == "__main__":
    pairs = [pair.split("=") for pair in sys.argv[1].split(",")]
    limits = [(int(number), int(value)) for number, value in pairs]
    sys.exit(main(limits, sys.argv[3:], terminal=sys.argv[2] == WITH_TERMINAL))
