"""A closed place for a program that outlives a call, such as a browser: below a tool's `enclose`, above the kernel.

Somebody else starts the program: a library that takes only a path. That path, the *launcher*, is a small process
that sends its arguments and descriptors here, and the daemon starts the program as its own child, in a tree as a call's
(see `gateway.sandbox.tree`): contained, held, tied to the daemon's life. First inside is `gateway.sandbox.inside`,
which hands out the sockets of the gates.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest, DragomanError, SandboxMissing
from gateway.ports import EgressProxy, SandboxSession
from gateway.sandbox import inside, launch
from gateway.sandbox.copies import Copies
from gateway.sandbox.folders import folder_of_its_own, program_file, short_tmp, visible
from gateway.sandbox.held import HeldTree
from gateway.sandbox.plan import TMP, Containment, Holder, ProcessLimits, SandboxPlace, command, environment, holder_for

Serve: TypeAlias = Callable[[socket.socket, str], AbstractAsyncContextManager[EgressProxy]]
"""Serves what connects to a listening socket, given with the address it has inside; the socket is its to close."""

START_S = 20.0
LAUNCHER_S = 2.0
MAX_GATES = 200
"""The kernel passes 253 descriptors in one message."""
MAX_ASKED = 2**18
LIMITS = ProcessLimits(open_files=8192, processes=4096, tmp_bytes=2 * 2**30, umask=0o077)
"""A browser has some twenty threads in each process, and the kernel counts threads as processes."""


@asynccontextmanager
async def enclosed(
    program: Path,
    *,
    mode: SandboxMode,
    parent: Path,
    gates: int,
    serve: Serve,
    containment: Containment,
    readable: Sequence[Path] = (),
    start_s: float = START_S,
) -> AsyncGenerator[SandboxSession]:
    """Make a place for one run of `program`; leaving it ends all that runs there and removes its folder.

    The folder lies beneath `parent`, from which those of an earlier life are removed first. `basic` shows the system,
    the program's own folder, `readable` and the enclosure's folder, all but the last read-only, and has no network:
    only the gates, sockets on 127.0.0.1 inside that `serve` serves outside. In `off` the gates are on the host's
    127.0.0.1, where others can reach them too. `start_s`: seconds that a gate waits for the program's start.
    Raises `NotFound` (the program), `BadRequest` (what cannot be shown), `SandboxMissing` when `basic` cannot be had.
    """
    holder = holder_for(mode, containment)
    if not 0 < gates <= MAX_GATES:
        raise BadRequest(f"An enclosure has 1 to {MAX_GATES} gates, not {gates}.", cure="Ask for as many as are used.")
    file = program_file(program)
    seen = visible(file, readable, parent) if mode == SandboxMode.BASIC else ()
    async with folder_of_its_own(parent) as base:
        folder = base / "shared"
        place = SandboxPlace(workspace=folder, cwd=folder, home=folder / "home", readable=seen, enclosed=True)
        enclosure = _Enclosure(base, place, gates, serve, start_s)
        try:
            tmp = TMP if mode == SandboxMode.BASIC else str(short_tmp(base))
            enclosure.open(_Start(file, tmp, holder, mode, containment))
            yield enclosure
        finally:
            await enclosure.close()


class _Words:
    """What those that contain the program say: why it does not run. The program's own output is not here."""

    def __init__(self) -> None:
        self._data = b""

    def write(self, data: bytes) -> None:
        """Keep the first of it."""
        self._data = (self._data + data)[:2000]

    @property
    def last(self) -> str:
        """The last line; empty when nothing was said."""
        return (self._data.decode(errors="replace").strip().splitlines() or [""])[-1]


class _Start:
    """How the program is started, whenever somebody asks for it."""

    def __init__(self, program: Path, tmp: str, holder: Holder, mode: SandboxMode, containment: Containment) -> None:
        self._program = program
        self._tmp = tmp
        self._holder = holder
        self._mode = mode
        self._containment = containment

    def tree(self, place: SandboxPlace, words: _Words, gates: int, asked: _Asked) -> tuple[HeldTree, socket.socket]:
        """Start it; return the tree, and the socket on which the gates' sockets come. Raises as `Tree.start`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handed = _above(theirs.fileno())
        tree = HeldTree(self._holder, words, LIMITS, self._containment)
        lent = ",".join(f"{target}={source}" for target, source in asked.lent)
        first = [str(Path(sys.executable).resolve()), "-I", "-S", inside.__file__, str(handed), str(gates), lent]
        argv = [*first, str(self._program), *asked.arguments]
        try:
            with Copies() as copies:
                what = command(self._holder, self._mode, argv, place, limits=LIMITS,
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


class _Asked:
    """What the launcher asks for: arguments, and descriptors that are held here, as (number inside, number here)."""

    def __init__(self, asking: socket.socket) -> None:
        """Read it; raises `ValueError` for what is no whole question, as when the launcher was killed."""
        message, received, flags, _ = socket.recv_fds(asking, MAX_ASKED, 5, socket.MSG_CMSG_CLOEXEC)
        targets, *arguments = message.split(b"\0")
        self.arguments = [os.fsdecode(argument) for argument in arguments]
        self.lent = [(int(chr(target)), _above(fd)) for target, fd in zip(targets, received, strict=False)]
        for fd in received:
            os.close(fd)
        if not self.lent or len(self.lent) < len(targets) or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            self.__exit__()
            raise ValueError("the launcher did not say how")

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *error: object) -> None:
        """Give the descriptors up here; whoever has them by now keeps them."""
        for _, fd in self.lent:
            os.close(fd)


class _Enclosure:
    """An `SandboxSession`. All that happens to it comes as a callback of the event loop; none of them waits."""

    def __init__(self, base: Path, place: SandboxPlace, gates: int, serve: Serve, start_s: float) -> None:
        self._base = base
        self._place = place
        self._gates = gates
        self._serve = serve
        self._start_s = start_s
        self._free: deque[socket.socket] = deque()
        self._changed = asyncio.Event()
        """Set when the gates are there, or never will be."""
        self._over = ""
        """Why there is no program any more."""
        self._words = _Words()
        self._tree: HeldTree | None = None
        self._sockets: dict[str, socket.socket] = {}
        self._launcher_held = -1

    @property
    def launcher(self) -> Path:
        """Start this in place of the program."""
        return self._base / "launch"

    @property
    def folder(self) -> Path:
        """Private, and the same on both sides; `home` in it is the program's home."""
        return self._place.workspace

    @asynccontextmanager
    async def gate(self) -> AsyncGenerator[EgressProxy]:
        """Open a way out; the one that has been free the longest."""
        try:
            async with asyncio.timeout(self._start_s):
                await self._changed.wait()
        except TimeoutError:
            cure = f"Start it through {self.launcher.name}, and see in the log what it said."
            raise SandboxMissing(f"The program did not start within {self._start_s:.0f} s.", cure=cure) from None
        if self._over:
            raise SandboxMissing(self._over, cure="Make a new enclosure; `dragoman check` tells what this machine has.")
        if not self._free:
            raise DragomanError(f"All {self._gates} ways out are in use.", cure="Close what uses one, then try again.")
        listening = self._free.popleft()
        try:
            _forget(listening)
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with listening.dup() as lent:
                async with self._serve(lent, address) as gate:
                    yield gate
        finally:
            if self._over:
                listening.close()
            else:
                _forget(listening)
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
            listener.bind(f"/proc/self/fd/{base}/{launch.SOCKET}")  # as short as an address must be
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
        self._close("listener")  # one run: a second launcher finds nobody
        (self._base / launch.SOCKET).unlink()
        self._sockets["launcher"] = asking
        with contextlib.suppress(OSError):
            self._launcher_held = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(asking, self._asked, start)

    def _asked(self, start: _Start) -> None:
        loop = asyncio.get_running_loop()
        asking = self._sockets["launcher"]
        try:
            with _Asked(asking) as asked:
                self._tree, self._sockets["gates"] = start.tree(self._place, self._words, self._gates, asked)
        except (DragomanError, OSError, ValueError) as error:
            self._finish(f"The program could not be started: {error}")
            return
        self._tree.when_ended(self._ended)
        loop.add_reader(self._sockets["gates"], self._handed)
        loop.add_reader(asking, self._left)

    def _handed(self) -> None:
        message, received, _, _ = socket.recv_fds(
            self._sockets["gates"], 16, self._gates, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        )
        self._close("gates")
        listening = [socket.socket(fileno=fd) for fd in received]
        self._free.extend(listening)
        for one in listening:
            one.setblocking(False)
        if self._tree and message and len(listening) == self._gates:
            self._changed.set()

    # --- its end ----------------------------------------------------------------------------------

    def _left(self) -> None:
        """The launcher was killed, and with it the program is meant."""
        asyncio.get_running_loop().remove_reader(self._sockets["launcher"])
        if self._tree:
            self._tree.kill()

    def _ended(self, code: int) -> None:
        if "gates" in self._sockets:  # of two things that happened, the loop may tell the later one first
            with contextlib.suppress(BlockingIOError):
                self._handed()
        started = self._changed.is_set()
        words = self._words.last or f"exit code {code}"
        self._finish("The program has ended." if started else f"The program did not start: {words}", code)

    def _finish(self, why: str, code: int = launch.CANNOT) -> None:
        """There is no program, now or any more: the launcher ends too, saying why where that is known."""
        reason = "" if self._changed.is_set() else why
        self._over = self._over or why
        self._changed.set()
        with contextlib.suppress(OSError):
            self._sockets["launcher"].send(f"{code}\0{reason}".encode())
        self._close("launcher")

    async def close(self) -> None:
        """Return when nothing that runs here is left. A cancellation goes on afterwards."""
        self._over = self._over or "The enclosure was closed."
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
        """It ends by itself when its connection is closed."""
        if self._launcher_held < 0:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._launcher_held, ended.set)
        try:
            async with asyncio.timeout(LAUNCHER_S):
                await ended.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._launcher_held, signal.SIGKILL)
        finally:
            loop.remove_reader(self._launcher_held)
            os.close(self._launcher_held)

    def _close(self, name: str) -> None:
        if sock := self._sockets.pop(name, None):
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()


def _above(fd: int) -> int:
    """A copy with a number that no program takes for one of its standard ones; those on the way use the low numbers."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def _forget(listening: socket.socket) -> None:
    """Drop who waits: they came for whom this gate was before. Not without end: a program may come ever again."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(4 * inside.BACKLOG):
            listening.accept()[0].close()
