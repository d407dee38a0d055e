"""Memory and disk limits of a program: it is stopped, and the result names the limit."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from tests.unit.gateway.sandbox.session_rig import WAYS

MB = 1024 * 1024
EATS = "data = []\nwhile len(data) < {mb}: data.append(bytearray(1024 * 1024))\nprint('ate it all')"
LARGE_PARENT = """
import asyncio, sys
from pathlib import Path
from gateway.domain.tools import SandboxMode
from gateway.sandbox import Confinement, ProcessLimits, probe, run_contained

class Printed:
    def write(self, data):
        sys.stdout.buffer.write(data)

async def run():
    data = bytearray(300 * 2**20)
    limits = ProcessLimits(memory_bytes=256 * 2**20)
    given = {"workspace": Path.cwd(), "cwd": Path.cwd(), "output": Printed(), "containment": await probe()}
    within = Confinement(mode=SandboxMode(sys.argv[1]))
    ended = await run_contained(["/bin/false"], within=within, limits=limits, **given)
    print("ended with", ended.exit_code)

asyncio.run(run())
"""
"""Program that is larger than the limit of the program which it contains."""
LIMITS = ProcessLimits(memory_bytes=256 * MB, file_bytes=4 * MB, tmp_bytes=8 * MB)


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


async def _run(
    way: str, folder: Path, machine: Containment, *argv: str, limits: ProcessLimits = LIMITS
) -> tuple[int, str]:
    mode, missing = WAYS[way]
    printed, containment = Printed(), replace(machine, **missing)
    ended = await run_contained(
        argv,
        within=Confinement(mode=mode),
        workspace=folder,
        cwd=folder,
        output=printed,
        containment=containment,
        limits=limits,
    )
    return ended.exit_code, printed.data.decode()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sampled(1)
async def test_a_program_that_eats_memory_is_stopped(way: str, tmp_path: Path, machine: Containment) -> None:
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    limit = max(256, 2 * own_mb)  # the peak of a smaller program cannot be told from that of this process
    limits = replace(LIMITS, memory_bytes=limit * MB)
    eats = EATS.format(mb=2 * limit)
    code, text = await _run(way, tmp_path, machine, "/usr/bin/python3", "-I", "-c", eats, limits=limits)
    assert code == 1
    assert "MemoryError" in text
    assert text.endswith(f"\n[a process came near the memory limit of {limit} MB: [sandbox] memory_mb]\n")


@pytest.mark.parametrize("mode", ["basic", "off"])
@pytest.mark.sampled(1)
def test_the_daemons_own_memory_is_not_the_programs(mode: str, tmp_path: Path) -> None:
    """A child process begins with the peak of its parent."""
    argv = [sys.executable, "-c", LARGE_PARENT, mode]
    run = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "ended with 1\n"


async def test_a_program_within_its_memory_ends_without_a_word(tmp_path: Path, machine: Containment) -> None:
    limits = replace(LIMITS, memory_bytes=2048 * MB)
    found = await _run("basic", tmp_path, machine, "/usr/bin/python3", "-I", "-c", EATS.format(mb=800), limits=limits)
    assert found == (0, "ate it all\n")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sampled(1)
async def test_processes_that_eat_memory_together_are_stopped(way: str, tmp_path: Path, machine: Containment) -> None:
    """Each of them stays below the limit of one process."""
    limits = replace(LIMITS, tree_bytes=250 * MB)
    eats = "import os, time\nfor _ in range(2): os.fork()\ndata = os.urandom(1) * (100 * 1024 * 1024)\ntime.sleep(15)"
    code, text = await _run(way, tmp_path, machine, "/usr/bin/python3", "-I", "-c", eats, limits=limits)
    assert code == 128 + signal.SIGKILL
    assert text == "\n[killed: its processes took more than 250 MB together: [sandbox] tree_mb]\n"


@pytest.mark.whole("two seconds by the clock; the limit itself stays")
async def test_processes_that_share_memory_take_it_once(tmp_path: Path, machine: Containment) -> None:
    limits = replace(LIMITS, tree_bytes=250 * MB)
    shares = "import os, time\ndata = b'x' * (100 * 1024 * 1024)\nfor _ in range(2): os.fork()\ntime.sleep(1.5)"
    assert await _run("basic", tmp_path, machine, "/usr/bin/python3", "-I", "-c", shares, limits=limits) == (0, "")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sampled(2)
async def test_a_program_that_writes_a_huge_file_is_stopped(way: str, tmp_path: Path, machine: Containment) -> None:
    code, text = await _run(way, tmp_path, machine, "/bin/sh", "-c", "exec head -c 9000000 /dev/zero > huge")
    assert code == 128 + signal.SIGXFSZ
    assert text.endswith("\n[a file reached the limit of 4 MB: [sandbox] file_mb]\n")
    assert (tmp_path / "huge").stat().st_size == 4 * MB


async def test_a_full_tmp_says_so(tmp_path: Path, machine: Containment) -> None:
    """Older bubblewraps cannot limit it: the kernel's default is half of the machine's memory."""
    fill = "for n in 1 2 3; do head -c 3500000 /dev/zero > /tmp/$n || exit 3; done"
    code, text = await _run("basic", tmp_path, machine, "/bin/sh", "-c", fill)
    assert (code == 3 and "No space left" in text) is machine.hardened
