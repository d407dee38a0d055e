"""Process tree of one contained program: starts, watches, reads and kills it. Used by `run` and `session`.

A tree has a *leader*, our own child process (bubblewrap, unshare or the supervisor), watched through a pidfd. Once a
supervisor has ended nothing of its tree is left. The leader of a namespace may be killed alone, so a pidfd of the
namespace's process 1 is kept too. When that process ends, the kernel has already killed all others.

A tree's input is the *control*, a socket to the daemon. The supervisor takes orders there. In a namespace process 1
reports there that it is ready: contained and tied to its parent's life. It starts the program only after an answer, so
a daemon that dies at any moment of a start leaves nothing.

The program is started synchronously, for two reasons. PDEATHSIG, which ties a tree to the daemon, fires when the
*thread* that made the child ends. A start that cannot be interrupted cannot leave half a tree behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence

from gateway.errors import BadRequest
from gateway.ports import Output
from gateway.sandbox.keyring import own_keyring
from gateway.sandbox.memory import LOOK_EVERY_S, MemoryWatch
from gateway.sandbox.plan import Containment, Holder, ProcessLimits, SandboxPlace, bounds
from gateway.sandbox.supervisor import dies_first, is_below, signal_below, stat_of
from gateway.sandbox.terminal import Terminal

CHUNK = 65_536
WATCH_S = 0.1
"""Interval in seconds between two process counts."""
KILL_AGAIN_S = 0.05
"""Seconds between two attempts to kill a tree."""
GIVE_UP_S = 5.0
"""Timeout in seconds for a killed tree to end; a process that lasts longer hangs in the kernel."""
SAMPLE = 200
"""Number of processes to read for a count."""
_MB = 1024 * 1024
_NEARLY = 0.8
"""Least share of the memory limit that a process has reached when an allocation fails."""
_ROUGHLY_KB = 4096
"""Inaccuracy of a peak in KiB: the kernel counts pages for each processor."""
CREDENTIALS = struct.Struct("3i")
"""Process, user and group id of a message's sender, filled in by the kernel."""


class Tree:
    """Process tree: one program and all it starts."""

    def __init__(
        self,
        holder: Holder,
        output: Output,
        limits: ProcessLimits,
        containment: Containment,
        *,
        watched: bool,
        terminal: Terminal | None = None,
    ) -> None:
        """Prepare a tree. `watched`: count its processes where the kernel does not. `terminal`: for input, output."""
        self._holder = holder
        self._output = output
        self._limits = limits
        self._terminal = terminal
        self._bounds = bounds(holder, limits, containment)
        self._watched = watched and resource.RLIMIT_NPROC not in self._bounds
        self._fds: dict[str, int] = {}
        self._control: socket.socket | None = None
        """Our end of the control socket; None once the tree is to end."""
        self._init: int | None = None
        self._largest = 0
        """Peak memory in bytes of its largest ended process; 0 when the daemon's own hides it."""

    @property
    def program_ran(self) -> bool:
        """Return True if the program was contained and started."""
        return self._init is not None or self._holder is Holder.SUPERVISOR

    def start(
        self, argv: Sequence[str], place: SandboxPlace, env: Mapping[str, str], given: Sequence[int] = ()
    ) -> None:
        """Start `argv`, the command that contains the program, with the descriptors `given` besides 0 to 2.

        Raises `BadRequest` when the system refuses.
        """
        out, out_end = _pipe() if self._terminal is None else self._terminal.open()
        self._fds = {"output": out}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._control.setblocking(False)
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._leader = self._spawn(argv, place, env, (theirs.fileno(), out_end), given)
            self._fds["leader"] = self._open_leader()
        except BaseException:
            self._close_fds()
            raise
        finally:
            os.close(out_end)
            theirs.close()
        loop = asyncio.get_running_loop()
        loop.add_reader(out, self._read)
        if self._holder is not Holder.SUPERVISOR:
            loop.add_reader(self._control, self._is_ready)

    def _spawn(
        self,
        argv: Sequence[str],
        place: SandboxPlace,
        env: Mapping[str, str],
        ends: tuple[int, int],
        given: Sequence[int],
    ) -> subprocess.Popen[bytes]:
        try:
            with own_keyring():
                return subprocess.Popen(
                    argv,
                    stdin=ends[0],
                    stdout=ends[1],
                    stderr=subprocess.STDOUT,
                    cwd="/" if self._holder is Holder.BWRAP else place.cwd,
                    env=dict(env),
                    pass_fds=given,
                    start_new_session=True,
                    umask=self._limits.umask,
                )
        except (OSError, ValueError) as error:
            raise BadRequest(
                f"The program could not be started: {error}.", cure="Shorten its arguments; they take no NUL character."
            ) from error

    def _open_leader(self) -> int:
        try:
            return os.pidfd_open(self._leader.pid)
        except OSError:  # no descriptors left: a process that cannot be watched must not run
            self._leader.kill()
            self._leader.wait()
            raise

    def _is_ready(self) -> None:
        """Open a pidfd of process 1, which is ready, set its limits and let it start the program."""
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        try:
            message, credentials, _, _ = self._control.recvmsg(16, socket.CMSG_SPACE(CREDENTIALS.size))
            if not message:  # the containment failed; the leader's end reports it
                return
            pid, _, _ = CREDENTIALS.unpack(credentials[0][2])
            self._fds["init"] = os.pidfd_open(pid)
            stat = stat_of(pid)
            if stat is None or stat.parent != self._leader.pid:  # it was killed, and its pid was reused
                os.close(self._fds.pop("init"))
                raise ProcessLookupError(f"process {pid} is not the leader's child")
            for number, value in self._bounds.items():
                resource.prlimit(pid, number, (value, value))
            dies_first(pid)
            self._control.send(b"\n")
            self._init = pid
        except OSError as error:  # a process that cannot be watched or limited must not run: it ends without an answer
            self._output.write(f"dragoman: {error}\n".encode())
            self._close_control()

    async def ended(self) -> int:
        """Wait for the leader's end and return its exit code; kill the tree when it grows too large."""
        most, normal, loop = self._limits.tree_bytes, _threads(), asyncio.get_running_loop()
        memory = None if most is None else MemoryWatch(limit=most, leader=self._leader.pid)
        every = WATCH_S if self._watched else None if memory is None else LOOK_EVERY_S
        looked_at = loop.time()
        while not await _readable(self._fds["leader"], every):
            why = ""
            if self._watched:
                # The machine's thread count is cheap to read; the tree's own count is taken only when that has grown.
                normal = min(normal, _threads())
                why = self._too_many(normal)
            if memory is not None and loop.time() - looked_at >= LOOK_EVERY_S / 2:
                looked_at = loop.time()
                if await memory.is_exceeded():
                    why = f"its processes took more than {memory.limit // _MB} MB together: [sandbox] tree_mb"
            if why:
                self._output.write(f"\n[killed: {why}]\n".encode())
                if await self._until_gone():
                    raise asyncio.CancelledError
        return self._reaped()

    def _too_many(self, normal: int) -> str:
        """Return why the tree has too many processes; empty when it has not. `normal`: the machine's least threads."""
        most = self._limits.processes
        return f"more than {most} processes" if _threads() - normal > most and self._size() > most else ""

    def _reaped(self) -> int:
        """Reap the ended leader; return its exit code, and store the peak memory of its largest process."""
        if (code := self._leader.returncode) is not None:  # a kill looks first, and reaped one that had ended
            return code if code >= 0 else 128 - code
        _, status, used = os.wait4(self._leader.pid, 0)
        self._leader.returncode = code = os.waitstatus_to_exitcode(status)
        # A child process begins with the peak of its parent.
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._largest = used.ru_maxrss * 1024 if used.ru_maxrss > ours + _ROUGHLY_KB else 0
        return code if code >= 0 else 128 - code

    def why(self, code: int) -> str:
        """Return a sentence about the limit that a program with this exit code reached; empty when none is known.

        For memory it is a guess: a program whose allocation fails may end in any way. A limit below the daemon's own
        peak is never named.
        """
        most = self._limits.memory_bytes
        if code == 128 + signal.SIGXFSZ and self._limits.file_bytes:
            return f"a file reached the limit of {self._limits.file_bytes // _MB} MB: [sandbox] file_mb"
        if code and most and self._largest >= most * _NEARLY:
            return f"a process came near the memory limit of {most // _MB} MB: [sandbox] memory_mb"
        return ""

    async def close(self) -> None:
        """End the tree; return when no process is left and all output was read.

        A second cancellation ends the grace period, not the waiting, and is raised afterwards. Call once.
        """
        cancelled = False
        try:
            if self._leader.poll() is None and self._terminate():
                await _readable(self._fds["leader"], self._limits.grace_s)
        except asyncio.CancelledError:
            cancelled = True
        try:
            cancelled |= await self._until_gone()
        finally:
            self._leader.poll()
            self._drain()
            self._close_fds()
        if cancelled:
            raise asyncio.CancelledError

    async def _until_gone(self) -> bool:
        """Kill, and wait until leader and process 1 have ended. Return True when a cancellation came meanwhile."""
        cancelled = False
        loop = asyncio.get_running_loop()
        until = loop.time() + GIVE_UP_S
        while loop.time() < until:  # longer only when a process hangs in the kernel
            self._kill()
            try:
                if await self._gone(KILL_AGAIN_S):
                    break
            except asyncio.CancelledError:
                cancelled = True
        else:
            if self._holder is not Holder.SUPERVISOR:  # a supervisor continues on its own; killed, it could not
                self._leader.kill()
        return cancelled

    async def _gone(self, within: float) -> bool:
        for who in ("leader", "init"):
            if who in self._fds and not await _readable(self._fds[who], within):
                return False
        return True

    def _terminate(self) -> bool:
        """Send TERM to all programs. Return False when none of them could need a grace period."""
        if self._holder is not Holder.SUPERVISOR:
            return self._init is not None and signal_below(self._init, signal.SIGTERM) > 0
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"T")
        return self._control is not None

    def _kill(self) -> None:
        """Kill the tree; idempotent. A program not yet started ends on its own, and the leader ends after it."""
        self._close_control()
        if "init" in self._fds:
            if self._holder is Holder.UNSHARE:
                self._leader.kill()  # first, because unshare 2.38 complains into the output when its child is killed
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fds["init"], signal.SIGKILL)

    def _close_control(self) -> None:
        """Close the control: a supervisor then kills its tree, and a program not yet started ends."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None

    def _size(self) -> int:
        """Return about how many processes the tree has, from a sample.

        Under a fork bomb a full count takes seconds and misses processes whose parents ended meanwhile.
        """
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        step = len(pids) // SAMPLE + 1
        return step * sum(is_below(pid, self._leader.pid) for pid in pids[::step])

    def _read(self) -> bool:
        """Read available output once; return False when there is none now, or at the end of file."""
        try:
            data = os.read(self._fds["output"], CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no program has open any more
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fds["output"])
            return False
        self._output.write(data)
        return True

    def _drain(self) -> None:
        # Not to the pipe's end: a program outside the tree may have inherited it and keep it open for ever.
        asyncio.get_running_loop().remove_reader(self._fds["output"])
        for _ in range(64):
            if not self._read():
                break
        if self._init is not None:
            # As process 1 of a container the daemon inherits a dead holder's child, and must reap it.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._init, os.WNOHANG)

    def _close_fds(self) -> None:
        self._close_control()
        if self._terminal is not None:
            self._terminal.close()
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}


class HeldTree(Tree):
    """`Tree` of a sandbox session, which lives until it is closed and reports its end to a callback.

    Its processes are not counted: that would wake the daemon ten times a second for days.
    """

    def __init__(self, holder: Holder, output: Output, limits: ProcessLimits, containment: Containment) -> None:
        super().__init__(holder, output, limits, containment, watched=False)

    def when_ended(self, callback: Callable[[int], None]) -> None:
        """Kill the rest once the program has ended, then call `callback` with its exit code (128 + signal)."""
        leader = self._fds["leader"]
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(leader)
            code = self._leader.wait()
            self._kill()
            for _ in range(64):
                if not self._read():
                    break
            callback(code if code >= 0 else 128 - code)

        loop.add_reader(leader, ended)

    def kill(self) -> None:
        """Kill the tree, or prevent its start. Does not wait; idempotent."""
        self._kill()

    async def close(self) -> None:
        """End the tree; return when no process is left. Call once."""
        asyncio.get_running_loop().remove_reader(self._fds["leader"])
        await super().close()


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe; only ours does not block."""
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(theirs, True)
    return ours, theirs


async def _readable(fd: int, within: float | None) -> bool:
    """Wait until `fd` is readable (a pidfd: until the process ended). Return False after `within` seconds."""
    now = select.poll()
    now.register(fd, select.POLLIN)
    if now.poll(0):
        return True
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: future.done() or future.set_result(None))
    try:
        async with asyncio.timeout(within):
            await future
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
    return True


def _threads() -> int:
    """Return the machine's thread count; 0 when no descriptor is left to read it, so that later counts look grown."""
    try:
        with open("/proc/loadavg", "rb") as load:
            return int(load.read().split()[3].partition(b"/")[2])
    except OSError:
        return 0
