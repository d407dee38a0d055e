"""Rig with an egress proxy on a real socket, and a small server behind it that counts its clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.egress import Egress
from gateway.egress.addresses import Address
from gateway.egress.dial import Ends
from gateway.egress.exchange import ExchangeLimits
from gateway.ports import EgressProxy
from tests.support.patience import PATIENCE_S

PUBLIC = "93.184.215.14"
STAYS_OPEN = ("/stays-open", "/silent")
ANSWERS = {
    "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
    b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n",
    "/until-end": b"HTTP/1.0 200 OK\r\nProxy-Authenticate: x\r\nKeep-Alive: 5\r\n\r\nuntil the end",
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "/garbage": b"SSH-2.0-OpenSSH\r\n\r\n",
    "/switch": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "/early": b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n",
    "/goes-on": b"HTTP/1.1 100 Continue\r\n\r\n" * 60_000,
    "/goes-on-a-little": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 19 + b"HTTP/1.1 204 No Content\r\n\r\n",
    "/none": b"HTTP/1.1 204 No Content\r\n\r\n",
    "/silent": b"",
}
"""Responses by path; for any other path the server echoes the body."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that other connections bring about."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what it waits for is another program, so to speak
            await asyncio.sleep(0.01)


@dataclass
class Inner:
    """HTTP server on loopback, in place of the internet."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list[tuple[str, dict[str, str], bytes]])
    """Request line, headers by lower-case name, body (its first MB)."""
    connections: int = 0
    open: int = 0
    received: int = 0
    """Bytes of bodies."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = first.split()[1]
        if "expect" in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"" if path == "/early" else await self._body(reader, headers)
        self.requests.append((first, headers, body))
        await self._respond(path, body, writer)
        await writer.drain()
        if path not in STAYS_OPEN:
            writer.close()
            await writer.wait_closed()
        await reader.read()

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        kept = bytearray()

        def take(data: bytes) -> None:
            self.received += len(data)
            kept.extend(data[: 1_000_000 - len(kept)])

        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                take(await reader.readexactly(size))
                await reader.readexactly(2)
            await reader.readexactly(2)
        left = int(headers.get("content-length", "0"))
        while left:
            data = await reader.read(min(left, 65_536))
            left -= len(data)
            take(data)
        return bytes(kept)

    async def _respond(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/big":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n")
            for _ in range(200):
                writer.write(b"x" * 100_000)
                await writer.drain()
        elif path in ANSWERS:
            writer.write(ANSWERS[path])
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nSet-Cookie: a=b\r\nContent-Length: ")
            writer.write(b"%d\r\n\r\n%b" % (len(body), body))


@dataclass
class Rig:
    """Open egress proxy, the names resolved and addresses dialled, and its address for a client."""

    proxy: EgressProxy
    inner: Inner
    port: int
    looked_up: list[str]
    dialled: list[str]

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Ends]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Ends(reader, writer)
        finally:
            writer.transport.abort()

    async def ask(self, request: str | bytes, *, wait_s: float = 5) -> bytes:
        """Send bytes to the proxy and return all that it answers."""
        async with self.connected() as ends, asyncio.timeout(wait_s):
            ends.writer.write(request.encode("latin-1") if isinstance(request, str) else request)
            return await ends.reader.read()

    async def get(self, url: str, *headers: str, method: str = "GET") -> bytes:
        return await self.ask("\r\n".join([f"{method} {url} HTTP/1.1", *headers, "", ""]))


@asynccontextmanager
async def opened(
    names: dict[str, list[list[str]]] | None = None, *, hosts: Sequence[str] = (), limits: ExchangeLimits | None = None
) -> AsyncGenerator[Rig]:
    """Open an egress proxy. `names`: the addresses of a name at each look-up, in turn, the last one from then on.

    `inner.example` is public. Whatever is dialled, public or not, the inner server is who answers: that counts.
    """
    known = {"inner.example": [[PUBLIC]], **(names or {})}
    looked_up: list[str] = []
    dialled: list[str] = []
    inner = Inner()

    async def resolve(name: str, _port: int) -> Sequence[str]:
        looked_up.append(name)
        answers = known.get(name)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers[min(looked_up.count(name), len(answers)) - 1]

    async def connect(address: Address, port: int) -> Ends:
        dialled.append(f"{address} {port}")
        return Ends(*await asyncio.open_connection("127.0.0.1", inner.port, limit=65_536))

    server = await asyncio.start_server(inner.serve, "127.0.0.1", 0, backlog=500)
    inner.port = server.sockets[0].getsockname()[1]
    egress = Egress(resolve=resolve, connect=connect, limits=limits)
    with socket.create_server(("127.0.0.1", 0), backlog=500) as sock:
        port = sock.getsockname()[1]
        async with egress.serve(sock, hosts=hosts, address=f"http://127.0.0.1:{port}") as proxy:
            yield Rig(proxy=proxy, inner=inner, port=port, looked_up=looked_up, dialled=dialled)
    server.close()
    await server.wait_closed()
    await until(lambda: not inner.open)  # the proxy closes its connections
