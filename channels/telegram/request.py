"""Requests to the Bot API over the daemon's one HTTP client, on the way in (polling) and out (sending).

What matters of a request that failed is whether it may have been carried out: `NotSent` was not, `Unanswered` may have
been, `Declined` was refused by Telegram itself. An address at the Bot API contains the bot's token, and errors of the
HTTP client contain the address, so none of them goes on from here: ours name the method, and stand alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

import aiohttp
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import BaseRequest, RequestData
from yarl import URL

CONNECT_WITHIN_S = 10.0
"""Shorter than any whole request may take: so what takes too long in all was on its way already."""
ANSWER_WITHIN_S = 20.0
LONG_POLL_S = 50
"""What the Bot API allows at most."""
UPLOADS_TAKE = 2
"""So many times as long: a file is 45 MB at most. The gateway gives up a little later."""
FETCH_WITHIN_S = 300.0
"""A whole file that somebody sent."""
SILENT_AT_MOST_S = 20.0
"""… of which something must come so often."""
PIECE_BYTES = 65_536
POLL_WITHIN_S = LONG_POLL_S + 10.0
DESCRIPTION_AT_MOST = 300
WAIT_AT_MOST_S = 1_000_000.0
"""Eleven days: no pause that Telegram ever asked for is near it, and a clock can still be moved by it."""
CREATES = frozenset({"sendMessage", "sendDocument", "sendPhoto"})

_NOT_SENT = (
    aiohttp.ClientConnectorError,  # no address, nobody there, no TLS, no proxy
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
_UNANSWERED = (aiohttp.ClientError, OSError, TimeoutError)


_JSON = {"Content-Type": "application/json"}
_Body: TypeAlias = aiohttp.FormData | bytes | None


class NotSent(TelegramError):
    """The request did not get as far as Telegram: nothing happened."""


class Unanswered(TelegramError):
    """The request was written, and no answer that can be read came back: what it asks for may have happened."""


class Declined(TelegramError):
    """Telegram refused: nothing happened."""

    def __init__(
        self, code: int, description: str, *, method: str = "", retry_after_s: float = 0, moved_to: str = ""
    ) -> None:
        """Take Telegram's words; `retry_after_s` and `moved_to` (a chat's new id) when it gave them."""
        super().__init__(f"Telegram refused {method or 'a request'}: {description} ({code})")
        self.code = code
        self.description = description
        self.retry_after_s = retry_after_s
        self.moved_to = moved_to


class AiohttpRequest(BaseRequest):
    """The transport of python-telegram-bot. The client belongs to the daemon and stays open."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        fail_point: Callable[[str], Awaitable[None]],
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """Take the client to send over, and for how long an answer is waited for, in seconds."""
        self._client = client
        self._fail_point = fail_point
        self._answer_within_s = answer_within_s
        connect_s = min(CONNECT_WITHIN_S, answer_within_s / 2)
        self._timeout = aiohttp.ClientTimeout(total=answer_within_s, connect=connect_s)
        self._uploads = aiohttp.ClientTimeout(total=answer_within_s * UPLOADS_TAKE, connect=connect_s)

    async def initialize(self) -> None:
        """Nothing: the client is open."""

    async def shutdown(self) -> None:
        """Nothing: the client is not ours to close."""

    @property
    def read_timeout(self) -> float:
        """Seconds until an answer is given up."""
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
        """Send one request and return status and body of a good answer. The time limits are ours, not the caller's.

        Raises `NotSent`, `Unanswered` or `Declined`.
        """
        return await self._answered(url, method, _body(request_data))

    async def raw(self, url: str, parameters: Mapping[str, object]) -> object:
        """Call a method with parameters as they are in JSON, and return its result as it came.

        Raises as `do_request` does.
        """
        _, payload = await self._answered(url, "POST", json.dumps(parameters).encode())
        return self.parse_json_payload(payload)["result"]

    async def _answered(self, url: str, method: str, body: _Body) -> tuple[int, bytes]:
        called = url.rpartition("/")[2] if method == "POST" else "a file"
        found = await self._ask(url, method, called, body)
        if isinstance(found, TelegramError):
            raise found
        status, payload = found
        if called in CREATES:
            await self._fail_point("J17")
        if 200 <= status <= 299:
            return status, payload
        raise _declined(called, status, payload)

    async def _ask(self, url: str, method: str, called: str, body: _Body) -> tuple[int, bytes] | TelegramError:
        """Return an error instead of raising it: one raised in an `except` block keeps the other as its context."""
        if self._client.closed:
            return NotSent(f"Dragoman is stopping; {called} was not sent.")
        headers = _JSON if isinstance(body, bytes) else None
        timeout = self._uploads if isinstance(body, aiohttp.FormData) else self._timeout
        try:
            async with self._client.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, await response.read()
        except _NOT_SENT as error:
            return NotSent(f"Telegram cannot be reached for {called}: {_what(error)}.")
        except _UNANSWERED as error:
            return Unanswered(f"No answer from Telegram to {called}: {_what(error)}.")

    async def get(self, url: URL) -> aiohttp.ClientResponse:
        """Ask for a file and return the answer, whatever it is, before its body. Redirects are answers too.

        The caller closes it. Raises `NotSent` or `Unanswered`.
        """
        if self._client.closed:
            raise NotSent("Dragoman is stopping; a file was not asked for.")
        limits = aiohttp.ClientTimeout(total=FETCH_WITHIN_S, connect=CONNECT_WITHIN_S, sock_read=SILENT_AT_MOST_S)
        headers = {"Accept-Encoding": "identity"}  # what is packed may be of any size
        failure: TelegramError
        try:
            return await self._client.request(
                "GET", url, timeout=limits, allow_redirects=False, headers=headers, auto_decompress=False
            )
        except _NOT_SENT as error:
            failure = NotSent(f"Telegram cannot be reached for a file: {_what(error)}.")
        except _UNANSWERED as error:
            failure = Unanswered(f"No answer from Telegram to a file: {_what(error)}.")
        # Here, not above: what is raised in an `except` block keeps the other error, and its address, with it.
        raise failure

    @staticmethod
    async def piece(answer: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes of a file, at most 64 KiB; none at its end. Raises `Unanswered`."""
        try:
            return await answer.content.read(PIECE_BYTES)
        except _UNANSWERED as error:
            failure = Unanswered(f"A file from Telegram broke off: {_what(error)}.")
        raise failure

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Read a good answer. Raises `Unanswered` when it is none; nothing of it is logged."""
        answer = _json(payload)
        if "result" not in answer:
            raise Unanswered("An answer from Telegram cannot be read.")
        return answer


class TelegramBot(Bot):
    """A bot that can be asked for what a call returns as it came. Its `repr` keeps the token to itself.

    The methods of python-telegram-bot check and convert parameters and make objects of results, which costs a message
    as much as sending it does. They are for what is asked rarely, and for files; `call` is for the rest.
    """

    def __init__(self, token: str, root: str, request: AiohttpRequest, polls: AiohttpRequest) -> None:
        """Take the address of the Bot API, what to call its methods over, and what to poll over."""
        super().__init__(
            token,
            # Not as texts: in those, python-telegram-bot takes braces for places to put the token.
            base_url=lambda token: f"{root}/bot{token}",
            base_file_url=lambda token: f"{root}/file/bot{token}",
            request=request,
            get_updates_request=polls,
        )
        self._calls = request
        self._polls = polls

    async def call(self, method: str, parameters: Mapping[str, object]) -> object:
        """Call a method of the Bot API; parameters and result are as in its JSON, and are not looked at.

        Raises `NotSent`, `Unanswered` or `Declined`.
        """
        over = self._polls if method == "getUpdates" else self._calls
        return await over.raw(f"{self.base_url}/{method}", parameters)

    async def get(self, url: URL) -> aiohttp.ClientResponse:
        """Ask for a file; see `AiohttpRequest.get`."""
        return await self._calls.get(url)

    async def piece(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes of a file; see `AiohttpRequest.piece`."""
        return await self._calls.piece(answer)

    def __repr__(self) -> str:
        return "Bot"


def _body(request_data: RequestData | None) -> _Body:
    """As JSON, which costs half of what a form does; a file takes a form."""
    if request_data is None:
        return None
    if not request_data.contains_files:
        return json.dumps(request_data.parameters).encode()
    # As it is: Telegram takes a name of a file with its percent signs.
    form = aiohttp.FormData(request_data.json_parameters, quote_fields=False)
    for name, (filename, content, content_type) in request_data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=content_type)
    return form


def _declined(called: str, status: int, payload: bytes) -> TelegramError:
    """Say what an answer that is not 2xx means: only Telegram's own words, below 500, are a refusal."""
    answer = _json(payload)
    code = answer.get("error_code")
    if not isinstance(code, int) or code >= 500 or status >= 500:
        return Unanswered(f"Telegram did not say what became of {called} (status {status}).")
    given, description = answer.get("parameters"), answer.get("description")
    parameters = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    retry_after, moved_to = parameters.get("retry_after"), parameters.get("migrate_to_chat_id")
    return Declined(
        code,
        description[:DESCRIPTION_AT_MOST] if isinstance(description, str) else "",
        method=called,
        # Compared before it is reckoned with: JSON can say Infinity, NaN and a number of 400 digits.
        retry_after_s=min(retry_after, WAIT_AT_MOST_S)
        if isinstance(retry_after, int | float) and retry_after > 0
        else 0,
        moved_to=str(moved_to) if isinstance(moved_to, int) else "",
    )


def _json(payload: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _what(error: BaseException) -> str:
    """Name an error without its text, which may hold the address."""
    return "too late" if isinstance(error, asyncio.TimeoutError) else type(error).__name__
