"""Request bodies: at most a megabyte is read, with or without a declared length."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.ports import Auth, Endpoint
from gateway.server.http import BODY_AT_MOST, HttpServer
from gateway.server.request_guard import Address
from tests.support.engine import Engine


class Reader:
    """Route that reads its request body."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.read.append(len(await request.read()))
        return web.Response()


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    found, engine = Reader(), Engine(tmp_path)
    http = HttpServer(
        address=Address(host="127.0.0.1", port=0),
        endpoints=[Endpoint(method="POST", path="/take", handler=found.take, auth=Auth.PUBLIC)],
        sign_ins=engine.web_access(),
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
    )
    await http.start()
    found.url = f"http://127.0.0.1:{http.port}/take"
    yield found
    await http.stop()


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    for at in range(0, size, 65_536):
        yield b"x" * min(65_536, size - at)


@pytest.mark.parametrize("says_how_much", [True, False])
async def test_a_body_of_more_than_a_megabyte_reaches_nobody(reader: Reader, says_how_much: bool) -> None:
    for size, status in ((BODY_AT_MOST - 1, 200), (2 * BODY_AT_MOST, 413)):
        body = io.BytesIO(b"x" * size) if says_how_much else in_pieces(size)
        async with aiohttp.ClientSession() as client, client.post(reader.url, data=body) as response:
            assert response.status == status

    assert reader.read == [BODY_AT_MOST - 1]
