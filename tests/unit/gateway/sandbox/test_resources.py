"""Memory and disk limits of a program: it is stopped, and the result names the limit."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sandbox import Containment, ProcessLimits, run_contained
from tests.unit.gateway.sandbox.session_rig import WAYS

MB = 1024 * 1024
EATS = "data = []\nwhile len(data) < 800: data.append(bytearray(1024 * 1024))\nprint('ate it all')"
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
        argv, mode=mode, workspace=folder, cwd=folder, output=printed, containment=containment, limits=limits
    )
    return ended.exit_code, printed.data.decode()


@pytest.mark.parametrize("way", WAYS)
async def test_a_program_that_eats_memory_is_stopped(way: str, tmp_path: Path, machine: Containment) -> None:
    code, text = await _run(way, tmp_path, machine, "/usr/bin/python3", "-I", "-c", EATS)
    assert code == 1
    assert "MemoryError" in text
    assert text.endswith("\n[a process came near the memory limit of 256 MB: [sandbox] memory_mb]\n")


async def test_a_program_within_its_memory_ends_without_a_word(tmp_path: Path, machine: Containment) -> None:
    limits = replace(LIMITS, memory_bytes=2048 * MB)
    found = await _run("basic", tmp_path, machine, "/usr/bin/python3", "-I", "-c", EATS, limits=limits)
    assert found == (0, "ate it all\n")


@pytest.mark.parametrize("way", WAYS)
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
