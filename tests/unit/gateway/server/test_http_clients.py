"""Connections by address: one client cannot use up all, directly or through a trusted proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.ports import Auth, Endpoint
from gateway.server.http import HttpServer
from gateway.server.http_clients import ClientCounts, client_of
from gateway.server.request_guard import Address
from tests.support.engine import Engine

OF_ONE = 3
PROXY = "127.0.0.9"
"""Linux answers on all of 127.0.0.0/8, so each test client has an address of its own."""


async def socket(request: web.Request) -> web.WebSocketResponse:
    found = web.WebSocketResponse()
    await found.prepare(request)
    async for message in found:
        await found.send_str(message.data)
    return found


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[HttpServer]:
    """Serve twelve connections, three of one address; a proxy is trusted."""
    engine, release = Engine(folder), asyncio.Event()

    async def held(_request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async def let_go(_request: web.Request) -> web.Response:
        release.set()
        return web.Response()

    handlers = {"/socket": socket, "/held": held, "/let-go": let_go}
    http = HttpServer(
        address=Address(host="127.0.0.1", port=0, trusted_proxies=(PROXY,)),
        endpoints=[Endpoint(method="GET", path=p, handler=h, auth=Auth.PUBLIC) for p, h in handlers.items()],
        sign_ins=engine.web_access(),
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
        connections=12,
        connections_of_one=OF_ONE,
    )
    await http.start()
    try:
        yield http
    finally:
        release.set()
        await http.stop()


@asynccontextmanager
async def client(http: HttpServer, address: str, speaks_for: str = "") -> AsyncGenerator[aiohttp.ClientSession]:
    """Connect from an address, on behalf of another one where it is a proxy."""
    headers = {"X-Forwarded-For": speaks_for} if speaks_for else {}
    connector = aiohttp.TCPConnector(local_addr=(address, 0), limit=0)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{http.port}", connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(5)
    ) as found:
        yield found


async def silent(http: HttpServer, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", http.port, local_addr=(address, 0))


async def is_refused(reader: asyncio.StreamReader) -> bool:
    """Return whether a connection was refused at once."""
    try:
        async with asyncio.timeout(0.3):
            return (await reader.read()).startswith(b"HTTP/1.1 503")
    except TimeoutError:
        return False


async def status(of: aiohttp.ClientSession, path: str = "/healthz") -> int:
    async with of.get(path) as response:
        return response.status


async def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as http:
        opened = [await silent(http, "127.0.0.2") for _ in range(15)]
        refused = [await is_refused(reader) for reader, _ in opened]
        assert refused == [False] * OF_ONE + [True] * 12
        async with client(http, "127.0.0.3") as other:
            assert await status(other) == 200

        for _, writer in opened:
            writer.close()
        await asyncio.sleep(0.1)
        async with client(http, "127.0.0.2") as again:
            assert await status(again) == 200


async def test_one_address_cannot_take_all_sockets(tmp_path: Path) -> None:
    async with serving(tmp_path) as http, AsyncExitStack() as stack:
        one = await stack.enter_async_context(client(http, "127.0.0.2"))
        for _ in range(OF_ONE):
            await stack.enter_async_context(one.ws_connect("/socket"))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await one.ws_connect("/socket")
        assert refused.value.status == 503
        other = await stack.enter_async_context(client(http, "127.0.0.3"))
        await stack.enter_async_context(other.ws_connect("/socket"))


async def test_the_address_behind_a_trusted_proxy_counts(tmp_path: Path) -> None:
    """The proxy itself may have more connections than one client."""
    async with serving(tmp_path) as http, AsyncExitStack() as stack:
        one = await stack.enter_async_context(client(http, PROXY, "203.0.113.7"))
        sockets = [await stack.enter_async_context(one.ws_connect("/socket")) for _ in range(OF_ONE)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await one.ws_connect("/socket")
        assert refused.value.status == 429
        forged = await stack.enter_async_context(client(http, PROXY, "198.51.100.1, 203.0.113.7"))
        assert await status(forged) == 429
        other = await stack.enter_async_context(client(http, PROXY, "203.0.113.8"))
        for _ in range(OF_ONE):
            await stack.enter_async_context(other.ws_connect("/socket"))

        await sockets[0].close()
        assert await status(one) == 200


async def test_a_client_cannot_name_another_address(tmp_path: Path) -> None:
    """Forwarding headers count only from trusted proxies."""
    async with serving(tmp_path) as http, AsyncExitStack() as stack:
        for n in range(OF_ONE):
            one = await stack.enter_async_context(client(http, "127.0.0.2", f"203.0.113.{n}"))
            await stack.enter_async_context(one.ws_connect("/socket"))
        last = await stack.enter_async_context(client(http, "127.0.0.2", "203.0.113.99"))
        assert await status(last) == 503


async def test_abandoned_requests_keep_the_place_of_their_address(tmp_path: Path) -> None:
    """A handler goes on after its client has disconnected."""
    async with serving(tmp_path) as http:
        for _ in range(OF_ONE):
            _, writer = await silent(http, "127.0.0.2")
            writer.write(f"GET /held HTTP/1.1\r\nHost: 127.0.0.1:{http.port}\r\n\r\n".encode())
            await asyncio.sleep(0.05)
            writer.close()
        await asyncio.sleep(0.1)
        async with client(http, "127.0.0.2") as one, client(http, "127.0.0.3") as other:
            assert await status(one) == 429
            assert await status(other, "/let-go") == 200
            assert await status(one) == 200


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2::5", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_a_network_of_one_ipv6_client_is_one_place(address: str, place: str) -> None:
    assert client_of(address) == place


def test_places_are_forgotten_when_they_are_free() -> None:
    places = ClientCounts(at_most=2)
    assert [places.take("a"), places.take("a"), places.take("a"), places.take("b")] == [True, True, False, True]
    for address in ("a", "a", "b"):
        places.leave(address)
    assert places.taken == {}
