"""Redirects of the Web API are not followed: the token is for its own origin."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.request import SlackClient, SlackUnanswered
from tests.unit.channels.slack.scene import no_bans


async def passed(_point: str) -> None:
    """No fail point is armed."""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    asked: list[str] = []

    async def away(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", away)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = SlackClient("xoxb-a-secret-token", str(server.make_url("/api/")), session, passed, no_bans())
        with pytest.raises(SlackUnanswered):
            await client.call("chat.postMessage", {"channel": "C0CC", "text": "hello"})
        with pytest.raises(SlackUnanswered):
            await client.upload(str(server.make_url("/upload")), b"a file")

    assert asked == ["/api/chat.postMessage", "/upload"]
