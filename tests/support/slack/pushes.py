"""The Events API, interactivity and slash commands over HTTP: signed posts to the app's own URL.

https://docs.slack.dev/apis/events-api/using-http-request-urls, https://docs.slack.dev/authentication/verifying-requests-from-slack.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp

from tests.support.slack.app import App, Delivery, Try, tried
from tests.support.slack.checks import Json, as_object

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
Posted = tuple[int, bytes, Mapping[str, str]]


class Pushes:
    """Posts what an app has to hear of."""

    def __init__(self, app: App) -> None:
        self.events_url = ""
        self.interactivity_url = ""
        self.commands_url = ""
        self.skew_s = 0.0
        """Seconds by which Slack's clock is ahead; a signature is good for five minutes."""
        self.secret: str | None = None
        """Another signing secret than the app's: somebody else posts."""
        self._app = app
        self._session: aiohttp.ClientSession | None = None

    async def send(self, delivery: Delivery, attempt: int, reason: str) -> Try:
        """One attempt."""
        at_s = time.monotonic()
        url, kind, body = self._written(delivery)
        retry = {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": reason} if attempt else {}
        try:
            async with asyncio.timeout(self._app.ack_within_s):
                status, content, headers = await self.post(url, body, kind, retry)
        except TimeoutError:
            return tried(at_s, "http_timeout")
        except (aiohttp.ClientError, OSError):
            return tried(at_s, "connection_failed")
        if not 200 <= status < 300:
            no_retry = headers.get("X-Slack-No-Retry") == "1"
            return tried(at_s, "http_error", status=status, no_retry=no_retry)
        return tried(at_s, status=status, answer=_read(content, headers.get("Content-Type", "")))

    def _written(self, delivery: Delivery) -> tuple[str, str, bytes]:
        if delivery.kind == "events_api":
            return self.events_url, _JSON, json.dumps(delivery.payload, ensure_ascii=False).encode()
        if delivery.kind == "interactive":
            form = {"payload": json.dumps(delivery.payload)}
            return self.interactivity_url or self.events_url, _FORM, urlencode(form).encode()
        return self.commands_url or self.events_url, _FORM, urlencode(delivery.payload).encode()

    async def post(
        self, url: str, body: bytes, kind: str = _JSON, headers: Mapping[str, str] | None = None, *, sign: bool = True
    ) -> Posted:
        """One signed post of anything; `headers` may replace the signature's. Raises `aiohttp.ClientError`."""
        every = {"Content-Type": kind, "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)"}
        every |= (self.signed(body) if sign else {}) | dict(headers or {})
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.post(url, data=body, headers=every, allow_redirects=False) as answer:
            return answer.status, await answer.read(), dict(answer.headers)

    def signed(self, body: bytes) -> dict[str, str]:
        """The two headers that prove it is Slack."""
        at = str(int(time.time() + self.skew_s))
        secret = self._app.signing_secret if self.secret is None else self.secret
        digest = hmac.new(secret.encode(), b"v0:" + at.encode() + b":" + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={digest}"}

    async def verify(self) -> bool:
        """Ask the URL whether it is the app's: https://docs.slack.dev/reference/events/url_verification."""
        challenge = hashlib.sha256(str(time.monotonic_ns()).encode()).hexdigest()
        asked: Json = {"token": "verification-token", "challenge": challenge, "type": "url_verification"}
        status, content, headers = await self.post(self.events_url, json.dumps(asked).encode())
        answer = _read(content, headers.get("Content-Type", ""))
        return status == 200 and challenge in (answer, (as_object(answer) or {}).get("challenge"))

    async def close(self) -> None:
        """Forget the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _read(content: bytes, kind: str) -> Any:
    if not content:
        return None
    text = content.decode(errors="replace")
    if kind.startswith(_JSON):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
