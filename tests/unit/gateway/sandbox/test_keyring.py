"""Kernel keyrings: a contained program cannot read the daemon's."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from gateway.sandbox.keyring import own_keyring
from tests.unit.gateway.sandbox.session_rig import WAYS

KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, -1)
ADD_KEY = {"x86_64": 248, "aarch64": 217}.get(os.uname().machine, -1)
SESSION = -3
JOIN, READ, SEARCH = 1, 11, 10
INSIDE = f"""
import ctypes, sys
number, serial = map(int, sys.argv[1:])
libc = ctypes.CDLL(None)
found = libc.syscall(number, {SEARCH}, {SESSION}, b"user", b"canary", 0)
held = ctypes.create_string_buffer(99)
size = libc.syscall(number, {READ}, serial, held, 99)
try:
    listed = "canary" in open("/proc/keys").read()
except OSError:
    listed = False
print("found", found > 0, "read", size > 0, "listed", listed)
"""


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@contextmanager
def key() -> Generator[int]:
    """Add a key to a session keyring of this thread, which another process keeps alive."""
    libc = ctypes.CDLL(None)
    there = libc.syscall(KEYCTL, JOIN, None) > 0
    serial = int(libc.syscall(ADD_KEY, b"user", b"canary", b"secret", 6, SESSION))
    assert not there or serial > 0  # a container may forbid keys, to everybody in it
    with subprocess.Popen(["/bin/sleep", "60"]) as holder:
        try:
            yield serial
        finally:
            holder.kill()
            libc.syscall(KEYCTL, JOIN, None)


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_of_the_daemons_session_is_not_inherited(way: str, tmp_path: Path, machine: Containment) -> None:
    mode, missing = WAYS[way]
    containment = replace(machine, **missing)
    printed = Printed()
    with key() as serial:
        ended = await run_contained(
            ["/usr/bin/python3", "-I", "-c", INSIDE, str(KEYCTL), str(serial)], within=Confinement(mode=mode),
            workspace=tmp_path, cwd=tmp_path, output=printed, containment=containment, limits=ProcessLimits(),
        )  # fmt: skip
    assert ended.exit_code == 0
    assert printed.data.startswith(b"found False read False")
    assert way != "basic" or printed.data.endswith(b"listed False\n")  # `off` may see the names of an account's keys


def test_a_keyring_is_new_for_each_program() -> None:
    libc = ctypes.CDLL(None)

    def serial() -> int:
        return int(libc.syscall(KEYCTL, 0, SESSION, 0))

    found = [serial()]
    with own_keyring():
        found.append(serial())
    found.append(serial())
    assert len(set(found)) == (3 if found[0] > 0 else 1)
