"""Start of a process tree: a program that cannot be watched is not started."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import SandboxMissing
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from tests.unit.gateway.sandbox.session_rig import WAYS


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@contextmanager
def no_descriptors_left() -> Generator[None]:
    """Lower the descriptor limit so that nothing can be opened in the body."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("way", ["basic", "off", "off-unshare"])
async def test_program_is_not_started_when_it_cannot_be_watched(way: str, tmp_path: Path, machine: Containment) -> None:
    mode, missing = WAYS[way]
    printed = Printed()
    given: dict[str, Any] = {"workspace": tmp_path, "cwd": tmp_path, "limits": ProcessLimits()}
    work = asyncio.create_task(
        run_contained(
            ["/bin/touch", "ran"],
            within=Confinement(mode=mode),
            output=printed,
            containment=replace(machine, **missing),
            **given,
        )
    )
    await asyncio.sleep(0)  # it is started now, and its process 1 has said nothing yet
    with no_descriptors_left(), pytest.raises(SandboxMissing, match="could not contain the program"):
        await work
    assert printed.data == b"dragoman: [Errno 24] Too many open files\n"
    assert not (tmp_path / "ran").exists()
