"""Sandbox session for a program that outlives a call, such as a browser. Opened by a tool's `open_sandbox_session`.

The program is started by a library that takes only a path. That path, the *launcher*, is a small process that sends
its arguments and descriptors here. The daemon then starts the program as its own child process, in a tree like a
call's (see `gateway.sandbox.tree`): contained and tied to the daemon's life. Its first program is
`gateway.sandbox.inside`, which sends the sockets of the egress proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest, DragomanError, SandboxMissing
from gateway.ports import EgressProxy, SandboxSession
from gateway.sandbox import inside, launch
from gateway.sandbox.folders import above, folder_of_its_own, program_file, short_tmp, visible
from gateway.sandbox.plan import (
    TMP,
    Containment,
    Copies,
    Holder,
    ProcessLimits,
    SandboxPlace,
    command,
    environment,
    holder_for,
)
from gateway.sandbox.public import Serve
from gateway.sandbox.tree import HeldTree

START_S = 20.0
"""Timeout in seconds for the program's start."""
LAUNCHER_S = 2.0
"""Timeout in seconds for the launcher's own exit."""
MAX_PROXIES = 200
"""Number of egress proxies of a session; the kernel passes 253 descriptors in one message."""
MAX_ASKED = 2**18
"""Bytes of the launcher's message, which holds the program's arguments."""
LIMITS = ProcessLimits(open_files=8192, processes=4096, memory_bytes=2**30, tmp_bytes=2 * 2**30, umask=0o077)
"""Limits without settings: a browser has some twenty threads in each process, and threads count as processes."""
FILE_AT_LEAST = 256 * 2**20
"""Least limit of a file in bytes: a browser maps memory and caches as files, and one too large ends its process."""


def session_limits(program: ProcessLimits) -> ProcessLimits:
    """Return the limits of a session where a program has these: a browser gets at least what it needs."""
    memory, least, file = program.memory_bytes, LIMITS.memory_bytes or 0, program.file_bytes
    return replace(
        LIMITS,
        memory_bytes=None if memory is None else max(memory, least),
        file_bytes=None if file is None else max(file, FILE_AT_LEAST),
        tmp_bytes=max(program.tmp_bytes, LIMITS.tmp_bytes),
    )


@asynccontextmanager
async def open_sandbox_session(
    program: Path,
    *,
    mode: SandboxMode,
    parent: Path,
    proxies: int,
    serve: Serve,
    containment: Containment,
    readable: Sequence[Path] = (),
    start_s: float = START_S,
    limits: ProcessLimits = LIMITS,
) -> AsyncGenerator[SandboxSession]:
    """Open a sandbox session for one run of `program`; its exit kills all processes in it and removes its folder.

    The folder is made beneath `parent`, where folders of killed daemons are removed first. `basic` shows the system,
    the program's own folder, `readable` and the session's folder, all but the last read-only. It has no network, only
    `proxies` egress proxies: sockets on 127.0.0.1 inside that `serve` serves outside. In `off` they listen on the
    host's 127.0.0.1, where others can reach them too. `start_s`: timeout in seconds of a proxy for the program's start.
    `limits`: those of each process. Raises `NotFound` (the program), `BadRequest` (a path that cannot be shown),
    `SandboxMissing` without `basic`.
    """
    holder = holder_for(mode, containment)
    if not 0 < proxies <= MAX_PROXIES:
        raise BadRequest(
            f"A sandbox session has 1 to {MAX_PROXIES} egress proxies, not {proxies}.", cure="Ask for fewer."
        )
    file = program_file(program)
    seen = visible(file, readable, parent) if mode != SandboxMode.OFF else ()
    async with folder_of_its_own(parent) as base:
        folder = base / "shared"
        place = SandboxPlace(workspace=folder, cwd=folder, home=folder / "home", readable=seen, of_session=True)
        session = _Session(base, place, proxies, serve, start_s)
        try:
            tmp = TMP if mode != SandboxMode.OFF else str(short_tmp(base))
            session.open(_Start(file, tmp, holder, mode, containment, limits))
            yield session
        finally:
            await session.close()


class _Diagnostics:
    """Output of the containment programs: why the program does not run. The program's own output is not in it."""

    def __init__(self) -> None:
        self._data = b""

    def write(self, data: bytes) -> None:
        """Store the first 2,000 bytes."""
        self._data = (self._data + data)[:2000]

    @property
    def last(self) -> str:
        """Return the last line; empty without output."""
        return (self._data.decode(errors="replace").strip().splitlines() or [""])[-1]


class _Start:
    """Parameters of the program's start, stored until the launcher asks for it."""

    def __init__(
        self,
        program: Path,
        tmp: str,
        holder: Holder,
        mode: SandboxMode,
        containment: Containment,
        limits: ProcessLimits,
    ) -> None:
        self._program = program
        self._tmp = tmp
        self._holder = holder
        self._mode = mode
        self._containment = containment
        self._limits = limits

    def tree(
        self, place: SandboxPlace, output: _Diagnostics, proxies: int, asked: _LaunchRequest
    ) -> tuple[HeldTree, socket.socket]:
        """Start it; return the tree, and the socket on which the proxies' sockets come. Raises as `Tree.start`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handed = above(theirs.fileno())
        tree = HeldTree(self._holder, output, self._limits, self._containment)
        lent = ",".join(f"{target}={source}" for target, source in asked.lent)
        first = [str(Path(sys.executable).resolve()), "-I", "-S", inside.__file__, str(handed), str(proxies), lent]
        first.append(inside.NOT_TOLD)
        argv = [*first, str(self._program), *asked.arguments]
        try:
            with Copies() as copies:
                what = command(self._holder, self._mode, argv, place, limits=self._limits,
                               containment=self._containment, copies=copies)  # fmt: skip
                given = [handed, *(source for _, source in asked.lent), *copies.descriptors]
                tree.start(what, place, self._environment(place), given)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(handed)
        ours.setblocking(False)
        return tree, ours

    def _environment(self, place: SandboxPlace) -> dict[str, str]:
        return environment(place.home, {"TMPDIR": self._tmp})


class _LaunchRequest:
    """Message of the launcher: arguments, and descriptors kept open here, as (number inside, number here)."""

    def __init__(self, asking: socket.socket) -> None:
        """Read it; raises `ValueError` for an incomplete message, as when the launcher was killed."""
        message, received, flags, _ = socket.recv_fds(asking, MAX_ASKED, 5, socket.MSG_CMSG_CLOEXEC)
        targets, *arguments = message.split(b"\0")
        self.arguments = [os.fsdecode(argument) for argument in arguments]
        self.lent = [(int(chr(target)), above(fd)) for target, fd in zip(targets, received, strict=False)]
        for fd in received:
            os.close(fd)
        if not self.lent or len(self.lent) < len(targets) or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            self.__exit__()
            raise ValueError("the launcher's message is incomplete")

    def __enter__(self) -> _LaunchRequest:
        return self

    def __exit__(self, *error: object) -> None:
        """Close our copies of the descriptors; the program keeps its own."""
        for _, fd in self.lent:
            os.close(fd)


class _Session:
    """`ports.SandboxSession`. Its state changes in callbacks of the event loop; none of them waits."""

    def __init__(self, base: Path, place: SandboxPlace, proxies: int, serve: Serve, start_s: float) -> None:
        self._base = base
        self._place = place
        self._proxies = proxies
        self._serve = serve
        self._start_s = start_s
        self._free: deque[socket.socket] = deque()
        self._changed = asyncio.Event()
        """Set when the proxies' sockets are ready, or never will be."""
        self._over = ""
        """Reason why there is no program any more; empty while it may run."""
        self._diagnostics = _Diagnostics()
        self._tree: HeldTree | None = None
        self._sockets: dict[str, socket.socket] = {}
        self._launcher_pidfd = -1

    @property
    def launcher(self) -> Path:
        """Return the path to start in place of the program."""
        return self._base / "launch"

    @property
    def folder(self) -> Path:
        """Return the session's private folder, the same path inside and outside; `home` in it is the program's home."""
        return self._place.workspace

    @asynccontextmanager
    async def egress_proxy(self) -> AsyncGenerator[EgressProxy]:
        """Open an egress proxy, on the socket that has been free the longest."""
        try:
            async with asyncio.timeout(self._start_s):
                await self._changed.wait()
        except TimeoutError:
            cure = f"Start it through {self.launcher.name}, and see its messages in the log."
            raise SandboxMissing(f"The program did not start within {self._start_s:.0f} s.", cure=cure) from None
        if self._over:
            raise SandboxMissing(self._over, cure="Open a new sandbox session; `dragoman check` tests this machine.")
        if not self._free:
            raise DragomanError(f"All {self._proxies} egress proxies are in use.", cure="Close one, then try again.")
        listening = self._free.popleft()
        try:
            _drop_backlog(listening)
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with listening.dup() as lent:
                async with self._serve(lent, address) as proxy:
                    yield proxy
        finally:
            if self._over:
                listening.close()
            else:
                _drop_backlog(listening)
                self._free.append(listening)

    # --- the program's start, in the order in which it happens ------------------------------------

    def open(self, start: _Start) -> None:
        """Make the folder and the launcher, and listen for it."""
        for path in (self.folder, self._place.home):
            path.mkdir(mode=0o700)
        ask = [sys.executable, "-I", "-S", launch.__file__, str(self._base)]
        self.launcher.write_text(f'#!/bin/sh\nexec {shlex.join(ask)} "$@"\n')
        self.launcher.chmod(0o700)
        listener = self._sockets["listener"] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.setblocking(False)
        base = os.open(self._base, os.O_PATH)
        try:
            listener.bind(f"/proc/self/fd/{base}/{launch.SOCKET}")  # a socket address holds 107 bytes
        finally:
            os.close(base)
        listener.listen(1)
        asyncio.get_running_loop().add_reader(listener, self._accept, start)

    def _accept(self, start: _Start) -> None:
        asking, _ = self._sockets["listener"].accept()
        asking.setblocking(False)
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid():
            asking.close()
            return
        self._close("listener")  # one run: a second launcher cannot connect
        (self._base / launch.SOCKET).unlink()
        self._sockets["launcher"] = asking
        with contextlib.suppress(OSError):
            self._launcher_pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(asking, self._launch, start)

    def _launch(self, start: _Start) -> None:
        loop = asyncio.get_running_loop()
        asking = self._sockets["launcher"]
        try:
            with _LaunchRequest(asking) as asked:
                self._tree, self._sockets["proxies"] = start.tree(self._place, self._diagnostics, self._proxies, asked)
        except (DragomanError, OSError, ValueError) as error:
            self._finish(f"The program could not be started: {error}")
            return
        self._tree.when_ended(self._ended)
        loop.add_reader(self._sockets["proxies"], self._handed)
        loop.add_reader(asking, self._left)

    def _handed(self) -> None:
        message, received, _, _ = socket.recv_fds(
            self._sockets["proxies"], 16, self._proxies, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        )
        self._close("proxies")
        listening = [socket.socket(fileno=fd) for fd in received]
        self._free.extend(listening)
        for one in listening:
            one.setblocking(False)
        if self._tree and message and len(listening) == self._proxies:
            self._changed.set()

    # --- its end ----------------------------------------------------------------------------------

    def _left(self) -> None:
        """Kill the program, since its launcher was killed."""
        asyncio.get_running_loop().remove_reader(self._sockets["launcher"])
        if self._tree:
            self._tree.kill()

    def _ended(self, code: int) -> None:
        if "proxies" in self._sockets:  # of two events the loop may deliver the later one first
            with contextlib.suppress(BlockingIOError):
                self._handed()
        started = self._changed.is_set()
        why = self._diagnostics.last or f"exit code {code}"
        self._finish("The program has ended." if started else f"The program did not start: {why}", code)

    def _finish(self, why: str, code: int = launch.CANNOT) -> None:
        """Record that there is no program, now or any more, and end the launcher with the reason."""
        reason = "" if self._changed.is_set() else why
        self._over = self._over or why
        self._changed.set()
        with contextlib.suppress(OSError):
            self._sockets["launcher"].send(f"{code}\0{reason}".encode())
        self._close("launcher")

    async def close(self) -> None:
        """End the session; return when no process is left. A cancellation is raised afterwards."""
        self._over = self._over or "The sandbox session was closed."
        self._changed.set()
        self._close("listener")
        try:
            if self._tree:
                await self._tree.close()
        finally:
            for name in tuple(self._sockets):
                self._close(name)
            while self._free:
                self._free.pop().close()
            await self._launcher_gone()

    async def _launcher_gone(self) -> None:
        """Wait for the launcher, which ends when its connection is closed; kill it after `LAUNCHER_S`."""
        if self._launcher_pidfd < 0:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._launcher_pidfd, ended.set)
        try:
            async with asyncio.timeout(LAUNCHER_S):
                await ended.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._launcher_pidfd, signal.SIGKILL)
        finally:
            loop.remove_reader(self._launcher_pidfd)
            os.close(self._launcher_pidfd)

    def _close(self, name: str) -> None:
        if sock := self._sockets.pop(name, None):
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()


def _drop_backlog(listening: socket.socket) -> None:
    """Close connections left over from the proxy's previous user; bounded, since a program may keep reconnecting."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(4 * inside.BACKLOG):
            listening.accept()[0].close()
