"""The way in by HTTP, around what each platform signs: how much is read of a call, and when it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

BODY_AT_MOST = 1_048_576


async def body_of(request: web.Request) -> bytes | None:
    """Return the body of a call; None for one of more than 1 MiB, unread where the call itself says so."""
    if (request.content_length or 0) > BODY_AT_MOST:
        return None
    body = await request.read()
    return body if len(body) <= BODY_AT_MOST else None


def too_large() -> web.Response:
    """Refuse a call for its size."""
    return web.Response(status=413)


def not_stored() -> web.Response:
    """Ask the platform to say it again: what is not stored is not acknowledged."""
    return web.Response(status=503, headers={"Retry-After": "1"})


async def acknowledge(
    request: web.Request, response: web.Response, fail_point: Callable[[str], Awaitable[None]]
) -> web.StreamResponse:
    """Answer a call whose event is stored, and pass J3 once the answer is written."""
    await response.prepare(request)
    await response.write_eof()
    await fail_point("J3")
    return response
