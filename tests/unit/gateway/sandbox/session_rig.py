"""Rig with sandbox sessions for each holder. Used by the session tests."""

from __future__ import annotations

import asyncio
import secrets
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.tools import SandboxMode
from gateway.ports import EgressProxy, SandboxSession, TurnedAway
from gateway.sandbox import Containment, open_sandbox_session

PYTHON = Path("/usr/bin/python3")
ROOT = Path(__file__).parents[4]

# name: mode, and the features of the machine to simulate as missing
WAYS: dict[str, tuple[SandboxMode, dict[str, bool]]] = {
    "basic": (SandboxMode.BASIC, {}),
    "off": (SandboxMode.OFF, {}),
    "off-unshare": (SandboxMode.OFF, {"can_bwrap": False}),
    "off-supervisor": (SandboxMode.OFF, {"can_bwrap": False, "can_pid_namespace": False}),
}

ASKS = """
import socket, sys
for line in sys.stdin:
    kind, host, port = line.split()
    try:
        with socket.create_connection((host, int(port)), 3) as there:
            print(there.makefile().readline().strip() if kind == "read" else "connected", flush=True)
            if kind == "leave":
                kept = globals().setdefault("kept", [])
                kept.append(there.dup())
    except OSError as error:
        print("no:", error.strerror or error, flush=True)
"""
"""Script: reads `read|leave HOST PORT` and prints the result; `leave` keeps the connection open."""

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(float(sys.argv[1]))
time.sleep(float(sys.argv[1]))
"""


class Way:
    """`EgressProxy` that sends its number to each client."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.met = 0

    def let(self, scopes: Container[str]) -> None:
        """Everything is."""

    def turned_away(self) -> Sequence[TurnedAway]:
        return ()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        writer.write(f"{self.name}\n".encode())
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class Bench:
    """Sandbox sessions with one holder, beneath a state folder that contains a secret."""

    def __init__(self, folder: Path, mode: SandboxMode, containment: Containment) -> None:
        self.state = folder / "state"
        self.parent = self.state / "tools" / "browser"
        self.parent.mkdir(parents=True)
        (self.state / "secret").write_text("token-of-the-daemon")
        self.mode = mode
        self.containment = containment
        self.ways: list[Way] = []
        self.mark = f"3{secrets.randbelow(10**9):09d}"
        """A number of seconds that only this test sleeps."""

    @asynccontextmanager
    async def serve(self, sock: socket.socket, address: str) -> AsyncGenerator[EgressProxy]:
        way = Way(address, f"way-{len(self.ways)}")
        self.ways.append(way)
        server = await asyncio.start_server(way.meet, sock=sock)
        try:
            yield way
        finally:
            server.close()

    @asynccontextmanager
    async def session(self, program: Path = PYTHON, *, proxies: int = 2, **more: Any) -> AsyncGenerator[SandboxSession]:
        given: dict[str, Any] = {"mode": self.mode, "containment": self.containment, "serve": self.serve, **more}
        async with open_sandbox_session(program, parent=self.parent, proxies=proxies, **given) as session:
            yield session


def living(mark: str) -> list[int]:
    """Return the processes with `mark` in an argument."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that in 10 s")


@asynccontextmanager
async def started(session: SandboxSession, script: str, *arguments: str) -> AsyncGenerator[Process]:
    """Start Python with a script as a library starts a browser: by the launcher's path."""
    argv = [session.launcher, "-I", "-c", script, *arguments]
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def printed(session: SandboxSession, script: str, *arguments: str) -> str:
    async with started(session, script, *arguments) as process:
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


async def ask(process: Process, kind: str, address: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    host, _, port = address.removeprefix("http://").partition(":")
    process.stdin.write(f"{kind} {host} {port}\n".encode())
    return (await process.stdout.readline()).decode().strip()
