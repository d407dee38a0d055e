"""Copies of system files in a sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.domain.tools import SandboxMode
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from gateway.sandbox.plan import COPY_BYTES, Copies

KNOWN = Path("/etc/passwd").read_bytes() + Path("/etc/nsswitch.conf").read_bytes()


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_small_file_is_copied_and_closed_afterwards(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"h" * COPY_BYTES)
    with Copies() as copies:
        fd = copies.open(str(tmp_path / "hosts"))
        assert fd is not None
        assert copies.descriptors == [fd]
        assert os.read(fd, 3) == b"hhh"
        assert not os.get_inheritable(fd)
    assert copies.descriptors == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_anything_but_a_small_file_is_not_copied(tmp_path: Path, pipe: Path) -> None:
    (tmp_path / "large").write_bytes(b"h" * (COPY_BYTES + 1))
    with Copies() as copies:
        assert [copies.open(str(path)) for path in (tmp_path / "gone", tmp_path, tmp_path / "large", pipe)] == [
            None
        ] * 4
        assert copies.descriptors == []


async def test_basic_shows_system_files_read_only(tmp_path: Path, machine: Containment) -> None:
    printed = Printed()
    script = (
        "cat /etc/passwd /etc/nsswitch.conf; (echo evil >> /etc/passwd; rm /etc/passwd; chmod 666 /etc/passwd) 2>&1"
    )
    await run_contained(
        ["/bin/bash", "-c", script], within=Confinement(mode=SandboxMode.BASIC), workspace=tmp_path, cwd=tmp_path,
        output=printed, containment=machine, limits=ProcessLimits(),
    )  # fmt: skip
    assert printed.data.startswith(KNOWN)
    assert printed.data.count(b"Read-only file system") == 3
