"""Programs in a terminal of their own, with each holder."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest
from gateway.sandbox import Confinement, Containment, ProcessLimits, Terminal, run_contained
from gateway.sandbox.terminal import COLUMNS, INPUT_BYTES, ROWS
from tests.unit.gateway.sandbox.session_rig import WAYS


class Screen:
    """`Output` that waits for words."""

    def __init__(self) -> None:
        self.data = b""
        self._more = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data
        self._more.set()

    async def until(self, words: str) -> None:
        async with asyncio.timeout(20):
            while words.encode() not in self.data:
                self._more.clear()
                await self._more.wait()


class Interactive:
    """One program in a terminal."""

    def __init__(self, folder: Path, way: str, machine: Containment) -> None:
        mode, missing = ({**WAYS, "full": (SandboxMode.FULL, {})})[way]
        self.within = Confinement(mode=mode)
        self.containment = replace(machine, **missing)
        self.folder = folder
        self.screen, self.terminal = Screen(), Terminal()

    async def run(self, script: str) -> int:
        ended = await run_contained(
            ["/bin/bash", "--noprofile", "--norc", "-c", script], within=self.within, workspace=self.folder,
            cwd=self.folder, output=self.screen, containment=self.containment, limits=ProcessLimits(),
            terminal=self.terminal,
        )  # fmt: skip
        return ended.exit_code

    def fill(self) -> None:
        for _ in range(100):
            self.terminal.write(b"x" * INPUT_BYTES)

    @asynccontextmanager
    async def at_work(self, script: str) -> AsyncGenerator[asyncio.Task[int]]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(self.run(script))
            yield task


@pytest.fixture(params=[*WAYS, "full"])
def program(request: pytest.FixtureRequest, tmp_path: Path, machine: Containment) -> Interactive:
    return Interactive(tmp_path, request.param, machine)


@pytest.fixture
def basic(tmp_path: Path, machine: Containment) -> Interactive:
    return Interactive(tmp_path, "basic", machine)


async def test_a_program_has_a_terminal_of_fixed_size(program: Interactive) -> None:
    script = "test -t 0 -a -t 1 -a -t 2 && : </dev/tty && stty size && exit 3"
    assert await program.run(script) == 3
    assert program.screen.data == f"{ROWS} {COLUMNS}\n".encode()


async def test_typed_input_is_read_and_answered(program: Interactive) -> None:
    async with program.at_work("read -p 'name? ' name; echo \"hello $name\"") as task:
        await program.screen.until("name? ")
        program.terminal.write(b"ann\n")
    assert task.result() == 0
    assert program.screen.data == b"name? ann\nhello ann\n"


@pytest.fixture
def heeded() -> Iterator[None]:
    """SIGINT as the daemon has it: a shell starts its background jobs with it ignored, and a program inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
async def test_control_c_interrupts_the_program(program: Interactive) -> None:
    async with program.at_work("trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done") as task:
        await program.screen.until("ready")
        program.terminal.write(b"\x03")
    assert task.result() == 4
    assert b"caught" in program.screen.data


async def test_a_stop_leaves_nothing(program: Interactive) -> None:
    work: asyncio.Task[int] = asyncio.create_task(program.run("echo ready; cat"))
    await program.screen.until("ready")
    work.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await work
    with pytest.raises(BadRequest, match="has ended"):
        program.terminal.write(b"x")


async def test_a_terminal_takes_only_so_much(basic: Interactive) -> None:
    with pytest.raises(BadRequest, match="has ended"):
        basic.terminal.write(b"x")  # not started yet
    async with basic.at_work("stty raw -echo; echo ready; sleep 0.5") as task:
        await basic.screen.until("ready")
        with pytest.raises(BadRequest, match="longer than 4,096 bytes"):
            basic.terminal.write(b"x" * (INPUT_BYTES + 1))
        with pytest.raises(BadRequest, match=r"read only [0-9,]+ of 4,096 bytes"):
            basic.fill()
    assert task.result() == 0


async def test_the_daemons_terminals_are_not_there(basic: Interactive) -> None:
    assert await basic.run("ls /dev/pts; tty") == 0
    assert basic.screen.data == b"ptmx\n/dev/console\n"  # the program's own is all there is
