"""Silent and incomplete connections: each has a timeout, and together they leave files to the daemon."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from gateway.ports import Auth, Endpoint
from gateway.server.http import ACCEPTED_AT_ONCE, CONNECTIONS_AT_MOST, HttpServer, connections_at_most
from gateway.server.request_guard import Address
from gateway.system.logging_setup import TOLD_AT_MOST
from tests.support.engine import Engine


async def read_all(request: web.Request) -> web.Response:
    return web.Response(text=f"{len(await request.read())} bytes")


async def slow(_request: web.Request) -> web.Response:
    await asyncio.sleep(0.6)
    return web.Response(text="slow")


async def socket(request: web.Request) -> web.WebSocketResponse:
    found = web.WebSocketResponse()
    await found.prepare(request)
    async for message in found:
        await found.send_str(message.data)
    return found


@asynccontextmanager
async def impatient(folder: Path) -> AsyncGenerator[HttpServer]:
    """Return a server of eight connections with short timeouts."""
    engine = Engine(folder)
    handlers = {("POST", "/read"): read_all, ("GET", "/slow"): slow, ("GET", "/socket"): socket}
    http = HttpServer(
        address=Address(host="127.0.0.1", port=0),
        endpoints=[Endpoint(method=m, path=p, handler=h, auth=Auth.PUBLIC) for (m, p), h in handlers.items()],
        sign_ins=engine.web_access(),
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
        headers_within_s=0.3,
        body_within_s=0.5,
        connections=8,
        connections_of_one=8,
    )
    await http.start()
    try:
        yield http
    finally:
        await http.stop()


def client_of(http: HttpServer) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(f"http://127.0.0.1:{http.port}")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def said(http: HttpServer, *parts: str, pause_s: float = 0.0) -> bytes:
    """Open a connection, send the parts in order, and return everything received until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    try:
        async with asyncio.timeout(5):
            for part in parts:
                writer.write(part.format(host=f"127.0.0.1:{http.port}").encode())
                await asyncio.sleep(pause_s)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("parts", [[], ["GET /hea"], ["GET /healthz HTTP/1.1\r\n", *["X: y\r\n"] * 20], ["\r\n"] * 20])
async def test_connection_without_a_request_is_closed(tmp_path: Path, parts: list[str]) -> None:
    async with impatient(tmp_path) as http:
        began = time.monotonic()
        assert await said(http, *parts, pause_s=0.05) == b""
        assert 0.2 < time.monotonic() - began < 3


@pytest.mark.parametrize(
    "request_",
    [
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
        "GET /slow HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
)
async def test_malformed_http_is_refused_without_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_: str
) -> None:
    """Anybody may send such bytes; errors in the log are for the owner."""
    async with impatient(tmp_path) as http:
        answer = await said(http, request_)
    assert answer.split()[1] in {b"400", b"421"}
    assert caplog.records == []


async def test_so_is_one_that_begins_a_second_request(tmp_path: Path) -> None:
    async with impatient(tmp_path) as http:
        found = await said(http, "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\nGET /hea", pause_s=0.1)
        assert found.count(b"HTTP/1.1 200 OK") == 1


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    begin = "POST /read HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n12345"
    async with impatient(tmp_path) as http:
        assert (await said(http, begin)).startswith(b"HTTP/1.1 408")
        assert b"10 bytes" in await said(http, begin, "67890", pause_s=0.1)


async def test_work_and_open_pages_have_no_such_deadline(tmp_path: Path) -> None:
    async with impatient(tmp_path) as http, client_of(http) as client, client.ws_connect("/socket") as page:
        async with client.get("/slow") as response:  # takes longer than headers or body may
            assert await response.text() == "slow"
        await page.send_str("still here")
        assert await page.receive_str(timeout=5) == "still here"


async def test_silent_connections_take_a_limited_share_and_no_page(tmp_path: Path) -> None:
    """c1: 1,024 half-open requests used up every file of the daemon: neither store nor tools could open one."""
    async with impatient(tmp_path) as http, client_of(http) as client, client.ws_connect("/socket") as page:
        before = open_files()
        silent = [await asyncio.open_connection("127.0.0.1", http.port) for _ in range(120)]
        await asyncio.sleep(0.1)
        assert open_files() - before - len(silent) <= 8 + ACCEPTED_AT_ONCE
        await page.send_str("still here")
        assert await page.receive_str(timeout=5) == "still here"

        async with asyncio.timeout(5):
            ends = [await reader.read() for reader, _ in silent]
        assert all(end == b"" or end.startswith(b"HTTP/1.1 503") for end in ends)
        assert 7 <= ends.count(b"") <= 8 + ACCEPTED_AT_ONCE
        async with client.get("/healthz") as response:  # those places are free again
            assert response.status == 200
        for _, writer in silent:
            writer.close()


def test_connections_leave_half_of_the_files_to_the_daemon() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert connections_at_most() == 128
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert connections_at_most() <= CONNECTIONS_AT_MOST == 1_000


async def test_refused_requests_cannot_fill_the_log(tmp_path: Path) -> None:
    """One connection wrote 16 MB of it in two seconds: a line for each request, with all of its path."""
    address = "/" + "x" * 8_000
    with capture_logs() as logs:
        async with impatient(tmp_path) as http, aiohttp.ClientSession() as client:
            for _ in range(TOLD_AT_MOST + 30):
                async with client.get(
                    f"http://127.0.0.1:{http.port}{address}", headers={"Host": "evil.example"}
                ) as found:
                    assert found.status == 421
    told = [line for line in logs if line["event"] == "refused"]
    assert len(told) == TOLD_AT_MOST
    assert told[0]["asked"].startswith("GET /xxx")
    assert max(len(str(line)) for line in told) < 400
