"""Webhook endpoint of one bot. Used by `account`; checks the secret before reading, answers 200 once stored."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from channels._shared.webhooks import acknowledge, body_of, not_stored, too_large

HEADER = "X-Telegram-Bot-Api-Secret-Token"


class Webhook:
    """Webhook handler of one account."""

    def __init__(
        self, secret: str, take: Callable[[object], Awaitable[bool]], fail_point: Callable[[str], Awaitable[None]]
    ) -> None:
        """Take the secret that Telegram sends, and the callback that stores an update and returns whether it did."""
        if not secret:
            raise ValueError("a webhook needs a secret")
        self._secret = secret.encode()
        self._take = take
        self._fail_point = fail_point

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call. Telegram redelivers until it gets 200, and holds back the chat's next updates."""
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
    """Parse a body. Invalid JSON is passed on as text and stored as poison: redelivery would not help."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")
