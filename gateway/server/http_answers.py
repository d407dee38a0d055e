"""Response headers and the connection protocol of the HTTP server. Used by `http`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_STORE = "no-store"


def protect(response: web.StreamResponse) -> None:
    """Set the security headers of an answer, just before it is sent.

    An answer is private unless it has a cache rule of its own. Removes aiohttp's header with its version.
    """
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", NO_STORE)
    response.headers.popall("Server", None)


async def on_prepare(_request: web.Request, response: web.StreamResponse) -> None:
    """Protect an answer of the application; an aiohttp signal."""
    protect(response)


def error(status: int, text: str) -> web.Response:
    """Return an error in the JSON form that the page reads."""
    return web.json_response({"error": text}, status=status)


class _NoRequest(web.Response):
    """Answer to bytes that are not a request. It belongs to no application, so no signal protects it."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        protect(self)


class Connection(web.RequestHandler):
    """Connection of one client; counted until it is lost."""

    __slots__ = ("_leave",)

    def __init__(self, server: web.Server, leave: Callable[[], None], **settings: Any) -> None:
        """Take `leave`, called once when the connection is lost."""
        super().__init__(server, **settings)
        self._leave = leave

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection."""
        super().connection_lost(exc)
        self._leave()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer an error outside of any handler as aiohttp does, with the security headers."""
        found = super().handle_error(request, status, exc, message)
        text = "This is not an HTTP request." if found.status < 500 else "Something went wrong inside Dragoman."
        response = _NoRequest(text=json.dumps({"error": text}), status=found.status, content_type="application/json")
        response.force_close()
        return response
