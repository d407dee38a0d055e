"""Contained workers: processes that run the functions of own tools' files. Used by `processes` and `app.own_tools`.

A worker is a child process in the sandbox of the call that started it: its workspace, its network, no secrets. It is
kept for the next calls of the same history in the same sandbox. It runs one call at a time, so that a call is ended by
killing its worker. Nothing runs without a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from gateway.domain.text import cut, plain
from gateway.domain.tools import SandboxMode
from gateway.domain.workers import WorkerCall, WorkerFile
from gateway.errors import BadRequest, DragomanError, SandboxMissing
from gateway.ports import Output, ProcessEnd
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from gateway.toolcalls import worker_program

IMPORT_S = 5.0
"""Timeout in seconds for the import of a file."""
START_S = 10.0
"""Timeout in seconds for the start of a worker besides that."""
IDLE_S = 120.0
"""Seconds without a call after which a worker is ended."""
AT_MOST = 8
"""Workers at once."""
ANSWER_BYTES = 8 * 2**20
"""Bytes of the longest answer."""
MEMORY_BYTES = 2**30
"""Private memory of each process of a worker, where the settings do not say less."""
CANCEL_S = 2.0
"""Timeout in seconds for a cancelled call with a context to end itself."""
PROGRESS_BYTES = 2_000
"""Bytes of the longest message about progress."""
ERROR_CHARS = 1_500
"""Characters of an own tool's error in a result."""
HELPERS_AT_MOST = 200
"""Other files of the folder that a worker can import."""
_PROGRAM = Path(worker_program.__file__)
_ANSWER = TypeAdapter(dict[str, Any])

RunWorker = Callable[[list[str], Output, list[Path], int], Awaitable[ProcessEnd]]
"""Run a program to its end, with this output, these readable paths, and one descriptor."""


class _Forwarder:
    """`ports.Output` of a worker: passes its output on to the call that it works for, and drops all else."""

    def __init__(self) -> None:
        self.to: Output | None = None

    def write(self, data: bytes) -> None:
        """Append some output."""
        if self.to is not None:
            self.to.write(data)


@dataclass(slots=True, kw_only=True)
class _Worker:
    """One worker process and the connection to it."""

    file: WorkerFile
    package: Path
    """File of the package with the decorator."""
    run: RunWorker
    key: Hashable = None
    busy: bool = True
    used_at: float = 0.0
    why: str = ""
    """Why it did not run; empty while it may."""
    output: _Forwarder = field(default_factory=_Forwarder)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def begin(self, group: asyncio.TaskGroup) -> str:
        """Start the process and let it import the file. Return why that failed; empty when it works."""
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=ANSWER_BYTES)
            self.task = group.create_task(self._live(fd, theirs), name=f"worker of {self.file.name}")
        except BaseException:
            theirs.close()
            raise
        first = {
            "source": self.file.source, "file": str(self.file.folder / self.file.name), "name": "dragoman_own_tool",
            "folder": str(self.file.folder),
        }  # fmt: skip
        try:
            async with asyncio.timeout(IMPORT_S + START_S):
                self._writer.write(json.dumps(first).encode() + b"\n")
                async with asyncio.timeout(IMPORT_S):
                    answer = _ANSWER.validate_json(await self._reader.readline())
            await asyncio.sleep(0)  # what the import printed came before its answer, and is no call's
        except TimeoutError:
            return f"its import takes more than {IMPORT_S:g} s. Do no work when it is imported"
        except (ValueError, OSError):
            return self.why or "it ends the process when it is imported. Do no work when it is imported"
        # The file's own code may have written the answer, with values of any type.
        if not isinstance(functions := answer.get("functions"), list):
            return f"{cut(plain(str(answer.get('error'))), ERROR_CHARS)}. Correct its code"
        if not self.file.functions <= set(map(str, cast("list[object]", functions))):
            return "it has other tools when it runs than its text says. Decorate each function once, at the top level"
        return ""

    async def _live(self, fd: int, theirs: socket.socket) -> None:
        argv = [sys.executable, "-I", str(_PROGRAM), str(fd), str(self.package.parent.parent)]
        # The files one by one: secrets may stand beside them.
        helpers = sorted(self.file.folder.glob("*.py"))[:HELPERS_AT_MOST]
        shown = [Path(sys.base_prefix), Path(sys.prefix), _PROGRAM, self.package, *helpers]
        try:
            with theirs:
                await self.run(argv, self.output, shown, fd)
        except DragomanError as error:
            self.why = str(error).removesuffix(".")
        finally:
            self.ended.set()
            if self._writer is not None:
                self._writer.transport.abort()

    async def ask(self, call: WorkerCall, output: Output, progress: Callable[[str], None]) -> dict[str, Any]:
        """Return the answer to a call. Raises `ValueError` for none.

        On cancellation a call with a context is notified, and has a moment to end.
        """
        assert self._writer is not None
        id = secrets.token_hex(8)
        first = {"id": id, "function": call.function, "arguments": dict(call.arguments)}
        if call.context:
            first |= {"context": call.context, "session": call.session}
        self.output.to = output
        try:
            self._writer.write(json.dumps(first).encode() + b"\n")
            await self._writer.drain()
            return await self._answer(id, progress if call.context else None)
        except asyncio.CancelledError:
            if call.context:
                with suppress(TimeoutError, ValueError, OSError):
                    async with asyncio.timeout(CANCEL_S):
                        self._writer.write(b'{"cancel": true}\n')
                        await self._answer(id, progress)
            raise
        finally:
            self.output.to = None

    async def _answer(self, id: str, progress: Callable[[str], None] | None) -> dict[str, Any]:
        """Return the answer with this id, after lines of progress where such may come. Raises `ValueError`."""
        assert self._reader is not None
        while True:
            line = await self._reader.readline()
            answer = _ANSWER.validate_json(line)
            await asyncio.sleep(0)  # what it printed came before its answer, and a flood of lines stops nothing else
            if progress is None or not isinstance(text := answer.get("progress"), str):
                break
            if len(line) > PROGRESS_BYTES:
                raise ValueError("a line of progress is too long")
            progress(text)
        if answer.get("id") != id:
            raise ValueError("no answer to this call")
        return answer

    async def end(self) -> None:
        """End it with all its processes. A cancellation is raised afterwards."""
        cancelled = False
        while self.task is not None and not self.ended.is_set():
            self.task.cancel()
            try:
                await self.ended.wait()
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


class Workers:
    """All workers of this daemon. They run in the task group of `run`."""

    def __init__(
        self, *, containment: Containment, limits: ProcessLimits, package: Path, idle_s: float = IDLE_S
    ) -> None:
        """Take the means of containment, and the file of the package with the decorator."""
        self._containment = containment
        self._limits = worker_limits(limits)
        self._package = package
        self._idle_s = idle_s
        self._workers: list[_Worker] = []
        self._group: asyncio.TaskGroup | None = None

    @property
    def limits(self) -> ProcessLimits:
        """Limits of each worker."""
        return self._limits

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self._workers)

    async def run(self) -> None:
        """Run workers until cancelled; then all of them are killed."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                while True:
                    await asyncio.sleep(self._idle_s / 4)
                    await self._end_idle()
            finally:
                self._group = None
                for worker in self._workers:
                    if worker.task is not None:
                        worker.task.cancel()

    async def try_file(self, file: WorkerFile) -> str:
        """Import a file in a worker of its own, without a workspace or a network. Return why that fails, else empty.

        Never raises `DragomanError`.
        """
        with tempfile.TemporaryDirectory(prefix="dragoman-try-") as name:
            folder = Path(name)

            async def run(argv: list[str], output: Output, shown: list[Path], fd: int) -> ProcessEnd:
                return await run_contained(
                    argv,
                    within=Confinement(mode=SandboxMode.BASIC),
                    workspace=folder,
                    cwd=folder,
                    output=output,
                    containment=self._containment,
                    limits=self._limits,
                    readable=shown,
                    lent=[fd],
                )

            async with asyncio.TaskGroup() as group:
                worker = _Worker(file=file, package=self._package, run=run)
                try:
                    return await worker.begin(group)
                finally:
                    await worker.end()

    async def call(
        self,
        file: WorkerFile,
        call: WorkerCall,
        *,
        within: Confinement,
        of: Hashable,
        run: RunWorker,
        output: Output,
        progress: Callable[[str], None],
    ) -> str:
        """Call a function in a worker, and return its text. `of`: calls with another value never share a worker.

        `progress` gets the lines that a function reports through its context.

        Raises `SandboxMissing` for a call without a sandbox, and `BadRequest` when the call gives no text.
        """
        if within.mode is SandboxMode.OFF:
            raise SandboxMissing(f"{file.name} is not trusted, so it runs in a sandbox only.")
        worker = await self._ready((file.name, file.sha, within, of), file, run)
        keep = False
        try:
            answer = await worker.ask(call, output, progress)
            # `full` hides the secret files that are there at the start: a later one would not be hidden.
            keep = answer.get("leaves") is False and within.mode is not SandboxMode.FULL
        except (ValidationError, ValueError, OSError):
            why = f" {worker.why}." if worker.why else ""
            message = f"The worker of {file.name} ended in the call, or gave no usable answer.{why}"
            cure = "See its output. It may have done a part of its work."
            raise BadRequest(message, cure=cure) from None
        finally:
            if keep:
                worker.busy, worker.used_at = False, asyncio.get_running_loop().time()
            else:
                await self._drop(worker)
        if isinstance(text := answer.get("text"), str):
            return text
        raise BadRequest(cut(str(answer.get("error")), ERROR_CHARS), cure="Correct the arguments, or the tool's file.")

    async def _ready(self, key: Hashable, file: WorkerFile, run: RunWorker) -> _Worker:
        """Return a worker for one call: an idle one of this kind, or a new one."""
        for worker in self._workers:
            if worker.key == key and not worker.busy and not worker.ended.is_set():
                worker.busy = True
                return worker
        await self._make_room()
        if self._group is None:
            raise BadRequest("No worker can be started: the daemon is stopping.", cure="Run it again later.")
        worker = _Worker(file=file, package=self._package, run=run, key=key)
        self._workers.append(worker)
        try:
            why = await worker.begin(self._group)
        except BaseException:
            await self._drop(worker)
            raise
        if why:
            await self._drop(worker)
            raise BadRequest(f"{file.name} cannot be used: {why}.", cure="Nothing was called.")
        return worker

    async def _make_room(self) -> None:
        for worker in [one for one in self._workers if one.ended.is_set() and not one.busy]:
            self._workers.remove(worker)
        while len(self._workers) >= AT_MOST:
            idle = [one for one in self._workers if not one.busy]
            if not idle:
                raise BadRequest(f"{AT_MOST} workers are busy, and no more may run.", cure="Try again in a moment.")
            await self._drop(min(idle, key=lambda one: one.used_at))

    async def _end_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for worker in [*self._workers]:
            if not worker.busy and (worker.ended.is_set() or now - worker.used_at > self._idle_s):
                await self._drop(worker)

    async def _drop(self, worker: _Worker) -> None:
        worker.busy = True
        with suppress(ValueError):
            self._workers.remove(worker)
        await worker.end()


def worker_limits(limits: ProcessLimits) -> ProcessLimits:
    """Return the limits of a worker: those of a program, and always one for memory."""
    return replace(limits, memory_bytes=min(limits.memory_bytes or MEMORY_BYTES, MEMORY_BYTES))
