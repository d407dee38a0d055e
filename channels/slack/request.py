"""Requests to Slack's Web API over the daemon's HTTP client. Used by all modules that call Slack.

The error of a failed request has its outcome: `NotSent` was not carried out, `Unanswered` may have been, `Declined` was
refused by Slack. The transport is ours, and slack_sdk only formats requests. Its own transport retries requests, even
`chat.postMessage`. It opens its own session when ours is closed, sets no timeout on a given session, and reads a proxy
from the environment.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, BinaryIO, cast

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from channels._shared.fields import json_object, object_of
from channels._shared.http import HttpAnswer, Unanswered, Wire, length_of, within
from channels.slack.bans import Bans
from channels.slack.settings import OFFICIAL_API
from gateway.domain.proxy import Proxy
from gateway.domain.text import plain

ANSWER_WITHIN_S = 20.0
"""Timeout in seconds for a request."""
UPLOADS_TAKE = 1.5
"""Factor on the timeout of an upload, besides the time for its bytes."""
WAIT_UNTOLD_S = 30.0
"""Pause in seconds after a rate limit without a Retry-After; the SDK's own choice."""
CREATES = frozenset({"chat.postMessage", "files.completeUploadExternal"})
"""Methods that create a message."""
READS = frozenset({"users.info", "conversations.history", "conversations.replies", "files.info"})
"""Reading methods, which accept a form and no JSON."""
FORMS = READS | {"files.getUploadURLExternal", "auth.test", "apps.connections.open"}
"""Methods that are sent as a form."""
BY_CHANNEL = frozenset({"chat.postMessage", "chat.update", "chat.delete"})
"""Methods with limits per channel, kept by delivery; the others are limited per workspace."""
LIMITED = "ratelimited"
LIMITS = frozenset({LIMITED, "rate_limited", "message_limit_exceeded"})
"""Refusals that may have a Retry-After."""
UNCLEAR = frozenset({"fatal_error", "internal_error"})
"""Refusals after which, by Slack's documentation, part of the request may have taken effect."""

Json = dict[str, Any]


class SlackFailure(SlackClientError):
    """Error for a failed request; names the method, and contains no URL or token."""


class SlackNotSent(SlackFailure):
    """Error for a request that did not reach Slack: it had no effect."""


class SlackUnreached(SlackNotSent):
    """Error for an account whose requests do not reach Slack at all."""


class SlackUnanswered(SlackFailure):
    """Error for a sent request without a readable answer: it may have taken effect."""


class SlackDeclined(SlackFailure):
    """Error for a request that Slack refused: it had no effect."""

    def __init__(
        self,
        error: str,
        *,
        method: str = "",
        status: int = 200,
        retry_after_s: float = 0,
        needed: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        """Take Slack's error code; `needed`: the missing scopes; `details`: further messages from Slack."""
        more = f": {'; '.join(details)}" if details else ""
        super().__init__(f"Slack refused {method or 'a request'}: {error}{more}")
        self.error = error
        self.method = method
        self.status = status
        self.retry_after_s = retry_after_s
        self.needed = needed


class SlackClient(AsyncWebClient):
    """Web API client for one token. Its `repr` omits the token; the HTTP client belongs to the daemon."""

    def __init__(
        self,
        token: str,
        root: str,
        client: aiohttp.ClientSession,
        fail_point: Callable[[str], Awaitable[None]],
        bans: Bans,
        *,
        proxy: Proxy | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """Take the Web API's URL (`https://slack.com/api/`), the HTTP client, the bans and the proxy."""
        # "Any", because the SDK's own types are incomplete.
        cast("Any", super()).__init__(token=token, base_url=root, session=client, retry_handlers=[])
        self.proxy = None  # overrides the SDK's proxy from the environment; ours is in `Wire`
        self._wire = Wire("Slack", client, proxy, own_root="" if root == OFFICIAL_API else root)
        self._fail_point = fail_point
        self._bans = bans
        self._answer_within_s = answer_within_s
        self._limits = within(answer_within_s)

    def __repr__(self) -> str:
        return "SlackClient"

    async def call(self, method: str, parameters: Mapping[str, object]) -> Json:
        """Call a method and return its raw answer. Raises `NotSent`, `Unanswered` or `Declined`."""
        return (await self.told(method, parameters))[0]

    async def told(self, method: str, parameters: Mapping[str, object]) -> tuple[Json, Mapping[str, str]]:
        """Call a method and return its answer and headers, which name the token's scopes."""
        given = dict(parameters)
        if method in FORMS:
            response: Any = await cast("Any", super()).api_call(method, data=_form(given))
        else:
            response = await cast("Any", super()).api_call(method, json=given)
        return cast("Json", response.data), cast("Mapping[str, str]", response.headers)

    async def upload(self, url: str, data: bytes | BinaryIO) -> None:
        """Upload a file's bytes to the URL from `files.getUploadURLExternal`. Idempotent: nobody sees the file yet.

        An open file is streamed in chunks.
        """
        arguments: Json = {"data": data, "headers": {"Content-Type": "application/octet-stream"}}
        limits = within(self._answer_within_s * UPLOADS_TAKE, length_of(data))
        file = None if isinstance(data, bytes) else data
        answer = await self._ask("POST", url, "a file's upload", arguments, limits, file)
        if answer.status != 200:
            raise SlackUnanswered(f"Slack did not accept a file (status {answer.status}).")

    async def get(self, url: URL, *, with_token: bool) -> aiohttp.ClientResponse:
        """Request a file and return the response before its body; redirects are not followed.

        The caller closes it. Raises `NotSent` or `Unanswered`.
        """
        found = await self._wire.get(url, {"Authorization": f"Bearer {self.token}"} if with_token else {})
        if isinstance(found, Unanswered):
            raise _failure(found)
        return found

    async def _request(self, *, http_verb: str, api_url: str, req_args: Json) -> Json:
        """Send one request; slack_sdk's transport hook, used by all methods of the client."""
        called = api_url.rpartition("/")[2]
        await self._apply_retry_after(called)
        arguments = {key: value for key, value in req_args.items() if value is not None}
        answer = await self._ask(http_verb, api_url, called, arguments, self._limits)
        if called in CREATES:
            await self._fail_point("J17")
        try:
            data = _good(called, answer)
        except SlackDeclined as declined:
            if declined.error == LIMITED and called not in BY_CHANNEL:
                await self._bans.learn(called, declined.retry_after_s)
            raise
        return {"data": data, "headers": answer.headers, "status_code": answer.status}

    async def _apply_retry_after(self, called: str) -> None:
        """Raise `Declined` for a method that Slack has banned in this workspace, without calling it."""
        left_s = 0.0 if called in BY_CHANNEL else await self._bans.left_s(called)
        if left_s > 0:
            raise SlackDeclined(LIMITED, method=called, status=429, retry_after_s=left_s)

    async def _ask(
        self,
        verb: str,
        url: str,
        called: str,
        arguments: Json,
        limits: aiohttp.ClientTimeout,
        file: BinaryIO | None = None,
    ) -> HttpAnswer:
        found = await self._wire.ask(verb, url, called, limits, file, **arguments)
        if isinstance(found, Unanswered):
            raise _failure(found)
        return found


def _failure(failed: Unanswered) -> SlackFailure:
    if failed.sent:
        return SlackUnanswered(failed.why)
    return SlackNotSent(failed.why) if failed.reached else SlackUnreached(failed.why)


def _form(parameters: Mapping[str, object]) -> dict[str, str]:
    return {key: _text(value) for key, value in parameters.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _good(called: str, came: HttpAnswer) -> Json:
    """Return a successful answer. Raises `Declined` if Slack itself refused, else `Unanswered`."""
    status, answer = came.status, json_object(came.body)
    if status == 200 and answer.get("ok") is True:
        return answer
    error = answer.get("error")
    told = error[:100] if isinstance(error, str) else ""
    if status == 429:
        raise SlackDeclined(LIMITED, method=called, status=status, retry_after_s=_retry_after(came.headers))
    if not told or status >= 500 or told in UNCLEAR:
        raise SlackUnanswered(
            f"Slack did not report the outcome of {called} (status {status}{', ' + told if told else ''})."
        )
    raise SlackDeclined(
        told,
        method=called,
        status=status,
        retry_after_s=_retry_after(came.headers) if told in LIMITS else 0,
        needed=_words(answer.get("needed"), 200),
        details=_details(answer),
    )


def _retry_after(headers: Mapping[str, str]) -> float:
    said = headers.get("Retry-After", "")
    return float(said) if said.isdecimal() and len(said) <= 6 else WAIT_UNTOLD_S  # up to eleven days


def _details(answer: Json) -> tuple[str, ...]:
    """Return the messages about arguments in `response_metadata`."""
    messages = object_of(answer.get("response_metadata")).get("messages")
    found = cast("list[object]", messages) if isinstance(messages, list) else []
    return tuple(_words(one, 200) for one in found[:3] if isinstance(one, str))


def _words(value: object, most: int) -> str:
    return plain(value)[:most] if isinstance(value, str) else ""
