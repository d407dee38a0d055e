"""The page's socket while the daemon stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.engine import Engine, Served, served
from tests.support.fakes import in_background
from tests.unit.channels.web.test_adapter import opened


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(Engine(tmp_path)) as found:
        yield found


async def stop(page: Served) -> None:
    """What the daemon does to the channel before it stops the server."""
    async with in_background(page.web.run(page.engine.ingress)):
        pass


async def test_no_page_is_taken_while_the_daemon_stops(page: Served) -> None:
    """What it said there was refused, and for good; as it is, the page keeps it and comes again."""
    cookie = await page.cookie()
    async with opened(page, cookie=cookie) as socket:
        await stop(page)
        await socket.closed()
    async with page.client(cookie) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{page.url}/ws")
    assert refused.value.status == 503
