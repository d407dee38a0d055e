"""A small HTTP proxy on loopback: it forwards requests, opens tunnels for CONNECT, and may want a password."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PIECE = 65_536


@dataclass(slots=True)
class ProxyServer:
    """Requests that the proxy received, and the password that it demands."""

    user: str = ""
    """`user:password` that it wants; empty for none."""
    status: int = 0
    """With which it refuses everything; 0: it does not."""
    port: int = 0
    asked: list[str] = field(default_factory=list[str])
    """The first line of each request that was let through."""
    refused: int = 0

    @property
    def url(self) -> str:
        """Return its address, without a password."""
        return f"http://127.0.0.1:{self.port}"

    def url_with(self, user: str) -> str:
        """Return its address with a user and a password."""
        return f"http://{user}@127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[ProxyServer]:
        """Serve; in the end everything is closed."""
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer), name="proxy")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            while tasks:
                await asyncio.wait(set(tasks))
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._relay(reader, writer)
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        if status := self._judged(headers):
            self.refused += 1
            writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            return
        self.asked.append(first)
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there_reader, there = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                own = [one for one in headers if not one.lower().startswith("proxy-")]
                if not any(one.lower().startswith("upgrade:") for one in own):  # one request a connection
                    own = ["Connection: close", *(one for one in own if not one.lower().startswith("connection:"))]
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                there.write("\r\n".join([f"{method} {path} {version}", *own]).encode("latin-1"))
            async with asyncio.TaskGroup() as group:
                group.create_task(_copied(reader, there), name="proxy there")
                group.create_task(_copied(there_reader, writer), name="proxy back")
        finally:
            there.close()

    def _judged(self, headers: list[str]) -> int:
        wanted = f"proxy-authorization: basic {base64.b64encode(self.user.encode()).decode()}".lower()
        if self.user and wanted not in [one.lower() for one in headers]:
            return 407
        return self.status


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends; the other is told of that."""
    with suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    writer.close()
