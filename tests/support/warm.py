"""Daemons forked from a process that has imported everything already. Used by tests that kill many times.

A start costs 0.5 s of CPU, of which nine tenths are imports; tests start the daemon by the hundred to kill it in the
midst of its work. Such a life runs the usual code from reading the configuration on, in a process of
its own. Tests of starting, of memory and of a first day start the program as people do (`Daemon.warm` is false).
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import agent_tools
from config.key_index import key_index
from gateway.cli.imports import NOT_USED, hidden, importing
from tests.support.stems import PLACE, STEMS, introduce, stem_of

IMPORTED = (
    "gateway.app.run",
    "config.load",
    "config.plugins",
    "gateway.server.page.adapter",
    "channels.telegram.adapter",
    "channels.slack.adapter",
    "config.schema",
    "encodings.idna",
    "encodings.utf_8_sig",
    "gateway.llm.attempts",
    "gateway.llm.openai_chat",
    "gateway.store.kernel_store",
    "gateway.store.redis",
    "gateway.store.sqlite",
    "gateway.store.sqlite.opening",
    "tests.support.channel",
    "tests.support.tools.peek",
    "tests.support.tools.poke",
    "tree_sitter",
    "tree_sitter_bash",
)
"""Modules that most daemons of tests import, beside all tools. A daemon imports any other module itself."""
REQUEST_BYTES = 1 << 18


@dataclass(slots=True, kw_only=True)
class Life:
    """A forked process, with what tests use of `asyncio.subprocess.Process`."""

    pid: int = 0
    returncode: int | None = None
    _told: bytes = b""
    _whole: bool = False
    """True if the output is complete."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As by `kill -9`."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end; return its exit code (negative: the signal)."""
        while self.returncode is None:
            await self._news()
        return self.returncode

    async def begun(self) -> None:
        """Wait until it has a pid."""
        while not self.pid:
            await self._news()

    async def _news(self) -> None:
        assert not self._whole, "the process that daemons are forked from is gone; what it printed says why"
        self._changed.clear()
        await self._changed.wait()

    def listen(self, pipe: int) -> None:
        """Take what the stem says of it: its pid and later its exit code, a line each. Then the pipe is closed."""
        asyncio.get_running_loop().add_reader(pipe, self._read, pipe)

    def _read(self, pipe: int) -> None:
        read = os.read(pipe, 64)
        self._told += read
        pid, _, code = self._told.decode().partition("\n")
        self.pid = int(pid or 0)
        if not read:
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)
            self._whole, self.returncode = True, int(code) if code else None
        self._changed.set()


class Stem:
    """The process that has everything imported, one for each process that runs tests; started when first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        """None where the stem is no child of this process."""
        self._asking: socket.socket | None = None
        self.pid: int | None = None
        """None before the first use."""

    async def fork(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: int,
        out: int | None = None,
        given: int | None = None,
    ) -> Life:
        """Begin `dragoman WORDS` with that environment, PYTHONPATH in it; what it prints goes to the file `log`.

        `out`: the file for standard output alone. `given`: the file to be read as standard input; none is empty.
        """
        if self._asking is None:
            self._asking = self._started(cwd, env["PYTHONPATH"])
        told, telling = os.pipe()
        life = Life()
        life.listen(told)
        request = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
        assert len(request) < REQUEST_BYTES
        streams = [log, log if out is None else out, *([] if given is None else [given])]
        socket.send_fds(self._asking, [request], [telling, *streams])
        os.close(telling)
        await life.begun()
        return life

    def _started(self, cwd: Path, path: str) -> socket.socket:
        if (place := os.environ.get(PLACE)) and (given := stem_of(place)) is not None:
            self.pid, asking = given
            return asking
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.pid = self._process.pid
        return ours

    def close(self) -> None:
        """End it; daemons that live go on. Twice is safe."""
        if self._asking is not None:
            self._asking.close()
            if self._process is not None:
                self._process.wait()
            self._process = self._asking = self.pid = None


STEM = Stem()


# --- in the process that is forked from -------------------------------------------------------------


class QuickEnd:
    """The very end of a process: with an exit code it does not take all modules apart, 0.05 s of CPU.

    Registered before all else, it comes last: threads were waited for, and whatever is to be done at exit was done.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def main(number: str, *options: str) -> None:
    """Be a stem for who holds the other end of a socket; or, with `--stems`, give away stems to who connects to it."""
    end, given = QuickEnd(), socket.socket(fileno=int(number))
    import_all()
    if STEMS in options:
        fork_stems(given, end)
    else:
        fork_lives(given, end)


def fork_stems(listening: socket.socket, end: QuickEnd) -> None:
    """Fork a stem for each who connects, until standard input ends. Wait for their ends: so their CPU is counted."""
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        control, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            introduce(control)
            fork_lives(control, end)
            end.code = 0
            return
        control.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def import_all() -> None:
    """Import what daemons import, and make what they make once."""
    with importing(), hidden(NOT_USED):  # as the command `run` has it
        for name in (*IMPORTED, *all_tools()):
            import_module(name)
        from gateway.app.node_entry import own_version  # as late as all others
        from gateway.server.page.assets import page_assets

        key_index()  # with which a daemon compares variables such as that of failpoints
        own_version()
        page_assets()


def fork_lives(control: socket.socket, end: QuickEnd) -> None:
    """Fork for each request until nobody can ask any more."""
    living: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, lambda number, frame: tell_of_the_dead(living))
    while True:
        asked, handles, _, _ = socket.recv_fds(control, REQUEST_BYTES, 4)
        if not asked:
            return
        telling, *streams = handles
        if (pid := os.fork()) == 0:
            for mine in (*living.values(), telling, control.detach()):
                os.close(mine)
            become(json.loads(asked), streams, end)
        for stream in streams:
            os.close(stream)
        os.write(telling, b"%d\n" % pid)
        living[pid] = telling
        tell_of_the_dead(living)  # one that ended before it was known


def all_tools() -> list[str]:
    """Return the modules of all tools. Each daemon looks at each of them: 0.1 s of CPU where none is imported yet."""
    return [found.name for found in pkgutil.iter_modules(agent_tools.__path__, f"{agent_tools.__name__}.")]


def tell_of_the_dead(living: dict[int, int]) -> None:
    """Write the exit codes of those that ended."""
    for pid in list(living):
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # the signal came while this looked already
            continue
        if ended:
            telling = living.pop(pid)
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(telling, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(telling)


def become(request: Mapping[str, Any], streams: Sequence[int], end: QuickEnd) -> NoReturn:
    """Be the command, as if it had been started so. Its streams: standard error, output, and input where it has any."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard, stream in zip((2, 1, 0), streams, strict=False):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["gateway", *request["words"]]
    command = import_module("gateway.cli")
    try:
        sys.exit(command.main())
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            end.code = leaving.code or 0
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
