"""Webhook calls: bounded body, and an answer before any fail point."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from channels._shared.webhooks import BODY_AT_MOST, acknowledge, body_of, not_stored, too_large


@pytest.fixture
async def place() -> AsyncIterator[URL]:
    """An endpoint that says how much came; `later` is not stored."""

    async def passed(point: str) -> None:
        passes.append(point)

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await body_of(request)
        if body is None:
            return too_large()
        if body == b"later":
            return not_stored()
        return await acknowledge(request, web.Response(text=str(len(body))), passed)

    passes: list[str] = []
    app = web.Application(client_max_size=2 * BODY_AT_MOST)
    app.router.add_post("/", handle)
    async with TestServer(app) as server:
        yield server.make_url("/")
    assert set(passes) <= {"J3"}


async def answer(place: URL, body: bytes, *, told: bool = True) -> tuple[int, str]:
    """Send a body; with `told`, its length before it."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with (
        aiohttp.ClientSession() as session,
        session.post(place, data=io.BytesIO(body) if told else pieces()) as response,
    ):
        return response.status, response.headers.get("Retry-After", "") or await response.text()


@pytest.mark.parametrize("told", [True, False])
async def test_a_call_is_read_up_to_a_limit(place: URL, told: bool) -> None:
    assert await answer(place, b"x" * BODY_AT_MOST, told=told) == (200, str(BODY_AT_MOST))
    assert await answer(place, b"x" * (BODY_AT_MOST + 1), told=told) == (413, "")


async def test_unstored_event_is_answered_with_503(place: URL) -> None:
    assert await answer(place, b"later") == (503, "1")
