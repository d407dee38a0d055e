"""HTTP endpoint of one account, for events, presses, views and slash commands. Used by `account`.

The signature over the raw body is checked before parsing; 200 is answered once the payload is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from aiohttp import web

from channels._shared.webhooks import acknowledge, body_of, not_stored, too_large
from gateway.domain.text import media_type
from gateway.ports import Clock

SIGNATURE = "X-Slack-Signature"
TIMESTAMP = "X-Slack-Request-Timestamp"
VERSION = "v0"
AGE_S = 300
"""Seconds that a signature's time may differ from ours."""
RETRY = ("X-Slack-Retry-Num", "X-Slack-Retry-Reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackAck:
    """Acknowledgement of a payload."""

    stored: bool
    """False: Slack shall redeliver it."""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    """Response body, such as the challenge at a URL verification."""


Take: TypeAlias = Callable[[object], Awaitable[SlackAck]]


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return Slack's signature of a request: HMAC-SHA256 over version, time and raw body."""
    base = b":".join((VERSION.encode(), timestamp.encode(), body))
    return f"{VERSION}={hmac.new(secret, base, hashlib.sha256).hexdigest()}"


class Webhook:
    """HTTP handler of one account."""

    def __init__(self, secret: str, take: Take, clock: Clock, fail_point: Callable[[str], Awaitable[None]]) -> None:
        """Take the app's signing secret, and the callback that stores a payload and returns the acknowledgement."""
        if not secret:
            raise ValueError("an endpoint for Slack needs a signing secret")
        self._secret = secret.encode()
        self._take = take
        self._clock = clock
        self._fail_point = fail_point
        self._log = logging.getLogger(__name__)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call. Slack redelivers three times without a 200 within 3 s."""
        body = await body_of(request)
        if body is None:
            return too_large()
        if not self._signed(request, body):
            return web.Response(status=401, text="The signature is not that of this app.")
        if again := " ".join(request.headers.get(name, "")[:64] for name in RETRY).strip():
            # Only logged: the first delivery may have been lost or not stored.
            self._log.info("Slack redelivers an event: %r", again)
        answer = await self._take(payload(body, media_type(request.headers.get("Content-Type", ""))))
        if not answer.stored:
            return not_stored()
        response = web.json_response(answer.body) if answer.body else web.Response()
        return await acknowledge(request, response, self._fail_point)

    def _signed(self, request: web.Request, body: bytes) -> bool:
        """Return True only for a valid, recent signature; other headers are refused."""
        times, shown = request.headers.getall(TIMESTAMP, []), request.headers.getall(SIGNATURE, [])
        if len(times) != 1 or len(shown) != 1:
            return False
        sent_at = times[0]
        if not (sent_at.isascii() and sent_at.isdecimal() and len(sent_at) <= 12):
            return False
        if abs(self._clock.now().timestamp() - int(sent_at)) > AGE_S:
            return False
        expected = signature(self._secret, sent_at, body).encode()
        return hmac.compare_digest(shown[0].encode(errors="surrogateescape"), expected)


def payload(body: bytes, content_type: str) -> object:
    """Parse a body: JSON for events, a form for commands, a form with JSON in it for presses and views.

    Any other body is passed on as text and stored as poison: redelivery would not help.
    """
    text = body.decode(errors="replace")
    if content_type == "application/x-www-form-urlencoded":
        form = _form(text)
        if form is None:
            return text
        if "payload" not in form:
            return form
        text = form["payload"]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _form(text: str) -> dict[str, str] | None:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=1000, errors="replace"))
    except ValueError:
        return None
