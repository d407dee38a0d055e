"""The way in by HTTP: whose request it is is checked over the raw body before anything is read, and 200 said once it
is stored. Events, button presses, views and slash commands of one account all come to its one address.
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

from channels._shared.hooks import acknowledge, body_of, not_stored, too_large
from gateway.domain.text import media_type
from gateway.ports import Clock

SIGNATURE = "X-Slack-Signature"
TIMESTAMP = "X-Slack-Request-Timestamp"
VERSION = "v0"
AGE_S = 300
"""How old, or how far ahead, a signature may be."""
RETRY = ("X-Slack-Retry-Num", "X-Slack-Retry-Reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackAck:
    """What Slack is told of a payload."""

    stored: bool
    """False: it shall come again."""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    """What it is told besides, such as the challenge of an address that it checks."""


Take: TypeAlias = Callable[[object], Awaitable[SlackAck]]


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what Slack writes over a request: HMAC-SHA256 of version, time and the body as it came."""
    base = b":".join((VERSION.encode(), timestamp.encode(), body))
    return f"{VERSION}={hmac.new(secret, base, hashlib.sha256).hexdigest()}"


class Web:
    """One account's endpoint."""

    def __init__(self, secret: str, take: Take, clock: Clock, fail_point: Callable[[str], Awaitable[None]]) -> None:
        """Take the app's signing secret, and what stores a payload and says what is answered."""
        if not secret:
            raise ValueError("an endpoint for Slack needs a signing secret")
        self._secret = secret.encode()
        self._take = take
        self._clock = clock
        self._fail_point = fail_point
        self._log = logging.getLogger(__name__)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call. Slack repeats what is not answered with 200 in 3 s, three times."""
        body = await body_of(request)
        if body is None:
            return too_large()
        if not self._signed(request, body):
            return web.Response(status=401, text="The signature is not that of this app.")
        if again := " ".join(request.headers.get(name, "")[:64] for name in RETRY).strip():
            # Nothing else: the first one may never have come, or may not have been stored.
            self._log.info("Slack sends something again: %r", again)
        answer = await self._take(payload(body, media_type(request.headers.get("Content-Type", ""))))
        if not answer.stored:
            return not_stored()
        response = web.json_response(answer.body) if answer.body else web.Response()
        return await acknowledge(request, response, self._fail_point)

    def _signed(self, request: web.Request, body: bytes) -> bool:
        """Whether Slack wrote this, lately. Whatever else the headers are is a no."""
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
    """Read a body: JSON for events, a form for commands, a form with JSON in it for presses and views.

    What is none of them is handed on as text, to be kept as poison: a repetition would be no better.
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
