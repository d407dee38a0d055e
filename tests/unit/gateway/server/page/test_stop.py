"""The page's socket while the daemon stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.ports import COOKIE
from gateway.server.request_guard import KEY_HEADER
from tests.support.engine import Engine, Served, served
from tests.support.fakes import in_background
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.server.page.test_adapter import opened


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(Engine(tmp_path)) as found:
        yield found


async def stop(page: Served) -> None:
    """Stop the channel as the daemon does before it stops the server."""
    async with in_background(page.web.run(page.engine.ingress)):
        pass


async def test_no_page_is_taken_while_the_daemon_stops(page: Served) -> None:
    """A refusal there would be final; as it is, the page keeps its text and comes again."""
    cookie = await page.cookie()
    async with opened(page, cookie=cookie) as socket:
        await stop(page)
        await socket.closed()
    async with page.client(cookie) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{page.url}/ws")
    assert refused.value.status == 503


async def test_a_page_that_does_not_answer_holds_no_stop_up(page: Served) -> None:
    """It would be waited for ten seconds, and the daemon's stop gave up after two."""
    cookie, _, key = (await page.cookie()).partition(".")
    asks = ("GET /ws HTTP/1.1", f"Host: 127.0.0.1:{page.http.port}", f"Origin: {page.url}", f"{KEY_HEADER}: {key}")
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    named = (f"Cookie: {COOKIE}={cookie}", f"Sec-WebSocket-Key: {'A' * 22}==")
    reader, writer = await asyncio.open_connection("127.0.0.1", page.http.port)
    writer.write("\r\n".join([*asks, *upgrade, *named, "", ""]).encode())
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"welcome")
        await stop(page)
        await reader.read()  # to the end of the connection
    writer.close()
