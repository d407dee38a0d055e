"""Requests to the Bot API over the daemon's HTTP client. Used for polling, sending and downloads.

The error of a failed request has its outcome: `NotSent` was not, `Unanswered` may have been, `Declined` was refused by
Telegram. A Bot API URL contains the bot's token, and errors of the HTTP client contain the URL, so none leaves this
module. Our errors name the method and have no cause attached.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias, cast

import aiohttp
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import BaseRequest, RequestData
from yarl import URL

from channels._shared.fields import json_object, object_of
from channels._shared.http import Unanswered, Wire, length_of, within
from gateway.domain.proxy import Proxy

ANSWER_WITHIN_S = 20.0
"""Timeout in seconds for a request."""
LONG_POLL_S = 50
"""Seconds of a long poll; the Bot API's maximum."""
UPLOADS_TAKE = 2
"""Factor on the timeout of an upload, besides the time for its bytes: Telegram inspects a file before it answers. The
gateway's own timeout is a little longer."""
POLL_WITHIN_S = LONG_POLL_S + 10.0
"""Timeout in seconds for a poll."""
DESCRIPTION_AT_MOST = 300
"""Characters kept of Telegram's error description."""
WAIT_AT_MOST_S = 1_000_000.0
"""Longest accepted Retry-After in seconds, eleven days: above any real one, and small enough to add to a clock."""
CREATES = frozenset({"sendMessage", "sendDocument", "sendPhoto", "sendPoll", "sendVoice"})
"""Methods that create a message."""

_JSON = {"Content-Type": "application/json"}
_Body: TypeAlias = aiohttp.FormData | bytes | None


class TelegramNotSent(TelegramError):
    """Error for a request that did not reach Telegram: it had no effect."""


class TelegramUnreached(TelegramNotSent):
    """Error for an account whose requests do not reach Telegram at all."""


class TelegramUnanswered(TelegramError):
    """Error for a sent request without a readable answer: it may have taken effect."""


class Failing(TelegramUnanswered):
    """Error for a failure that Telegram itself reports; the request hardly ever took effect."""


class TelegramDeclined(TelegramError):
    """Error for a request that Telegram refused: it had no effect."""

    def __init__(
        self, code: int, description: str, *, method: str = "", retry_after_s: float = 0, moved_to: str = ""
    ) -> None:
        """Take Telegram's description, and `retry_after_s` and `moved_to` (a chat's new id) if it gave them."""
        super().__init__(f"Telegram refused {method or 'a request'}: {description} ({code})")
        self.code = code
        self.description = description
        self.retry_after_s = retry_after_s
        self.moved_to = moved_to


class AiohttpRequest(BaseRequest):
    """Transport for python-telegram-bot. The client belongs to the daemon and stays open."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        fail_point: Callable[[str], Awaitable[None]],
        *,
        proxy: Proxy | None = None,
        own_root: str = "",
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """Take the HTTP client, the proxy, `api_root` if it is set, and the timeout in seconds for an answer."""
        self._wire = Wire("Telegram", client, proxy, own_root=own_root)
        self._fail_point = fail_point
        self._answer_within_s = answer_within_s
        self._timeout = within(answer_within_s)

    async def initialize(self) -> None:
        """Do nothing: the client is open."""

    async def shutdown(self) -> None:
        """Do nothing: the daemon closes the client."""

    @property
    def read_timeout(self) -> float:
        """Return the timeout in seconds for an answer."""
        return self._answer_within_s

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = None,
        write_timeout: object = None,
        connect_timeout: object = None,
        pool_timeout: object = None,
    ) -> tuple[int, bytes]:
        """Send one request and return status and body of a 2xx answer. The timeouts are ours, not the caller's.

        Raises `NotSent`, `Unanswered` or `Declined`.
        """
        return await self._answered(url, method, _body(request_data), _files_of(request_data))

    async def raw(self, url: str, parameters: Mapping[str, object]) -> object:
        """Call a method with JSON parameters and return its raw result.

        Raises as `do_request` does.
        """
        _, payload = await self._answered(url, "POST", json.dumps(parameters).encode())
        return self.parse_json_payload(payload)["result"]

    async def _answered(
        self, url: str, method: str, body: _Body, files: Sequence[bytes | BinaryIO] = ()
    ) -> tuple[int, bytes]:
        called = url.rpartition("/")[2] if method == "POST" else "a file"
        headers = _JSON if isinstance(body, bytes) else None
        length, opened = sum(map(length_of, files)), next((one for one in files if not isinstance(one, bytes)), None)
        limits = self._timeout if not length else within(self._answer_within_s * UPLOADS_TAKE, length)
        found = await self._wire.ask(method, url, called, limits, opened, data=body, headers=headers)
        if isinstance(found, Unanswered):
            raise _failure(found)
        if called in CREATES:
            await self._fail_point("J17")
        if 200 <= found.status <= 299:
            return found.status, found.body
        raise _declined(called, found.status, found.body)

    async def get(self, url: URL) -> aiohttp.ClientResponse:
        """Request a file and return the response before its body; redirects are not followed.

        The caller closes it. Raises `NotSent` or `Unanswered`.
        """
        found = await self._wire.get(url, {})
        if isinstance(found, Unanswered):
            raise _failure(found)
        return found

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Return the parsed answer. Raises `Unanswered` for an unreadable one; none of it is logged."""
        answer = json_object(payload)
        if "result" not in answer:
            raise TelegramUnanswered("An answer from Telegram cannot be read.")
        return answer


class TelegramBot(Bot):
    """Bot with raw calls. Its `repr` does not contain the token.

    The methods of python-telegram-bot check and convert parameters and build objects of results, which costs as much
    as sending a message. They serve rare requests and files; `call` serves the rest.
    """

    def __init__(self, token: str, root: str, request: AiohttpRequest, polls: AiohttpRequest) -> None:
        """Take the Bot API's URL and the transports for calls and for polls."""
        super().__init__(
            token,
            # Functions, not strings: python-telegram-bot treats braces in a string as placeholders for the token.
            base_url=lambda token: f"{root}/bot{token}",
            base_file_url=lambda token: f"{root}/file/bot{token}",
            request=request,
            get_updates_request=polls,
        )
        self._calls = request
        self._polls = polls

    async def call(self, method: str, parameters: Mapping[str, object]) -> object:
        """Call a method of the Bot API; parameters and result are raw JSON values, unchecked.

        Raises `NotSent`, `Unanswered` or `Declined`.
        """
        over = self._polls if method == "getUpdates" else self._calls
        return await over.raw(f"{self.base_url}/{method}", parameters)

    async def get(self, url: URL) -> aiohttp.ClientResponse:
        """Request a file; see `AiohttpRequest.get`."""
        return await self._calls.get(url)

    def __repr__(self) -> str:
        return "Bot"


def _failure(failed: Unanswered) -> TelegramError:
    if failed.sent:
        return TelegramUnanswered(failed.why)
    return TelegramNotSent(failed.why) if failed.reached else TelegramUnreached(failed.why)


def _body(request_data: RequestData | None) -> _Body:
    """Return the body as JSON, which costs half of what a form does; a file requires a form."""
    if request_data is None:
        return None
    if not request_data.contains_files:
        return json.dumps(request_data.parameters).encode()
    # Unquoted: Telegram would keep percent signs in a file name.
    form = aiohttp.FormData(request_data.json_parameters, quote_fields=False)
    for name, (filename, content, content_type) in request_data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=content_type)
    return form


def _files_of(request_data: RequestData | None) -> Sequence[bytes | BinaryIO]:
    """Return the files in a request, at most one."""
    if request_data is None or not request_data.contains_files:
        return ()
    return [cast("Any", content) for _, content, _ in request_data.multipart_data.values()]


def _declined(called: str, status: int, payload: bytes) -> TelegramError:
    """Return the error for an answer that is not 2xx: only Telegram's own error below 500 is a refusal."""
    answer = json_object(payload)
    code = answer.get("error_code")
    if not isinstance(code, int) or code >= 500 or status >= 500:
        return Failing(f"Telegram did not report the outcome of {called} (status {status}).")
    given, description = answer.get("parameters"), answer.get("description")
    parameters = object_of(given)
    retry_after, moved_to = parameters.get("retry_after"), parameters.get("migrate_to_chat_id")
    return TelegramDeclined(
        code,
        description[:DESCRIPTION_AT_MOST] if isinstance(description, str) else "",
        method=called,
        # Capped before any arithmetic: JSON can contain Infinity, NaN and a number of 400 digits.
        retry_after_s=min(retry_after, WAIT_AT_MOST_S)
        if isinstance(retry_after, int | float) and retry_after > 0
        else 0,
        moved_to=str(moved_to) if isinstance(moved_to, int) else "",
    )
