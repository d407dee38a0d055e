"""Body limit and responses of webhook calls. Used by the channels that receive events over HTTP.

The limit is that of `server.http`, which refuses bodies without a stated length.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

BODY_AT_MOST = 1_048_576
"""Bytes of a webhook call's body, at most."""


async def body_of(request: web.Request) -> bytes | None:
    """Return the body of a call; None above 1 MiB, unread where Content-Length already says so."""
    if (request.content_length or 0) > BODY_AT_MOST:
        return None
    body = await request.read()
    return body if len(body) <= BODY_AT_MOST else None


def too_large() -> web.Response:
    """Return the 413 response for an oversized call."""
    return web.Response(status=413)


def not_stored() -> web.Response:
    """Return a 503 response that asks for redelivery: an event that is not stored is not acknowledged."""
    return web.Response(status=503, headers={"Retry-After": "1"})


async def acknowledge(
    request: web.Request, response: web.Response, fail_point: Callable[[str], Awaitable[None]]
) -> web.StreamResponse:
    """Answer a call whose event is stored, then pass fail point J3."""
    await response.prepare(request)
    await response.write_eof()
    await fail_point("J3")
    return response
