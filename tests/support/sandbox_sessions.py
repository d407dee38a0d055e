"""A `ports.ToolHost` without containment: programs run on the host, and egress proxies refuse nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.ports import Clock, TurnedAway


class OpenEgressProxy:
    """A `ports.EgressProxy` that refuses nothing and remembers its scopes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[str] = []

    def let(self, scopes: Container[str]) -> None:
        """Everything is."""

    def turned_away(self) -> Sequence[TurnedAway]:
        return ()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a tunnel, or one plain request."""
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            self.asked.append(parts.netloc)
            there = await asyncio.open_connection(parts.hostname, parts.port or 80)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                there[1].write(_as_its_host_reads_it(method, parts, head))
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, there[1]))
                group.create_task(_pass_on(there[0], writer))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # whoever connected sees the end of it
        finally:
            writer.close()
            if there is not None:
                there[1].close()


def _as_its_host_reads_it(method: str, parts: SplitResult, head: str) -> bytes:
    kept = [line for line in head.split("\r\n")[1:] if not line.lower().startswith(("proxy-", "connection:"))]
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Connection: close", *kept]).encode("latin-1")


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class OpenSandboxSession:
    """A `ports.SandboxSession` without a sandbox."""

    def __init__(self, folder: Path, program: Path, proxies: int) -> None:
        self.folder = folder
        self.proxies: list[OpenEgressProxy] = []
        self.most = proxies
        self.open = 0
        self._pid = folder / "pid"
        self.launcher = folder / "launcher"
        self.launcher.write_text(
            f"#!/bin/sh\nexport HOME={shlex.quote(str(folder))} TMPDIR={shlex.quote(str(folder))}\n"
            f'echo $$ >"$HOME/pid"\nexec {shlex.quote(str(program))} "$@"\n'
        )
        self.launcher.chmod(0o700)

    @property
    def pid(self) -> int:
        """The program's process."""
        return int(self._pid.read_text())

    @asynccontextmanager
    async def egress_proxy(self) -> AsyncGenerator[OpenEgressProxy]:
        if self.open == self.most:
            raise DragomanError("All proxies are in use.")
        self.open += 1
        proxy = OpenEgressProxy("")
        connections: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.proxies.append(proxy)
        try:
            yield proxy
        finally:
            self.open -= 1
            server.close()
            for task in tuple(connections):
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            await server.wait_closed()

    def crash(self) -> None:
        """Kill the program. Debian's command `chromium-headless-shell` is a shell, with the browser as its child."""
        os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kill what is left of the program, in its own process group, and wait for its end."""
        with suppress(OSError, ValueError):
            for _ in range(100):
                os.killpg(self.pid, signal.SIGKILL)
                await asyncio.sleep(0.01)
        shutil.rmtree(self.folder, ignore_errors=True)


class OpenPlace:
    """A `ports.ToolHost` in a test's folder."""

    def __init__(self, folder: Path, settings: Any, clock: Clock) -> None:
        self.folder = folder
        self.settings = settings
        self.clock = clock
        self.sessions: list[OpenSandboxSession] = []
        """All that were made, the last one last."""

    @asynccontextmanager
    async def open_sandbox_session(
        self,
        program: Path,
        *,
        sandbox: SandboxMode | None,
        hosts: Sequence[str],
        proxies: int,
        readable: Sequence[Path] = (),
    ) -> AsyncGenerator[OpenSandboxSession]:
        folder = Path(tempfile.mkdtemp(prefix="open-"))  # short: Chromium's sockets lie in it
        session = OpenSandboxSession(folder, program, proxies)
        self.sessions.append(session)
        try:
            yield session
        finally:
            await session.close()
