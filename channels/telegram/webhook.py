"""The way in by webhook: who calls is checked before anything is read, and 200 is said once the update is stored."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from channels._shared.hooks import acknowledge, body_of, not_stored, too_large

HEADER = "X-Telegram-Bot-Api-Secret-Token"


class Webhook:
    """One account's endpoint."""

    def __init__(
        self, secret: str, take: Callable[[object], Awaitable[bool]], fail_point: Callable[[str], Awaitable[None]]
    ) -> None:
        """Take the secret that Telegram shows, and what stores an update and says whether it is stored."""
        if not secret:
            raise ValueError("a webhook needs a secret")
        self._secret = secret.encode()
        self._take = take
        self._fail_point = fail_point

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call. Telegram repeats what is not answered with 200, and holds the chat's next updates back."""
        if not self._signed(request):
            return web.Response(status=401, text="The secret is not the one of this webhook.")
        body = await body_of(request)
        if body is None:
            return too_large()
        if not await self._take(_update(body)):
            return not_stored()
        return await acknowledge(request, web.Response(), self._fail_point)

    def _signed(self, request: web.Request) -> bool:
        shown = request.headers.getall(HEADER, [])
        return len(shown) == 1 and hmac.compare_digest(shown[0].encode(errors="surrogateescape"), self._secret)


def _update(body: bytes) -> object:
    """Read a body. One that is no JSON is handed on as text, to be kept as poison: a repetition would be no better."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")
