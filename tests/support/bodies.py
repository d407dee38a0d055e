"""Bodies that a fake platform may send in place of a file: `hub.give` of Slack's and of Telegram's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

Give = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def answering(status: int, body: bytes = b"", content_type: str = "application/octet-stream", **headers: str) -> Give:
    """Any other answer."""

    async def give(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=content_type, headers=headers)

    return give


async def half(request: web.BaseRequest) -> web.StreamResponse:
    """A thousand bytes of a file that says nothing of its length, and the end of the connection."""
    assert request.transport is not None
    request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n" + b"x" * 1000)
    await asyncio.sleep(0.02)
    request.transport.close()
    return web.Response()


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    """Bytes for as long as anybody reads them."""
    response = web.StreamResponse()
    await response.prepare(request)
    while request.transport is not None and not request.transport.is_closing():
        await response.write(bytes(65_536))
    return response
