"""Requests to the Bot API over the daemon's one HTTP client, on the way in (polling) and out (sending).

What matters of a request that failed is whether it may have been carried out: `NotSent` was not, `Unanswered` may have
been, `Declined` was refused by Telegram itself. An address at the Bot API contains the bot's token, and errors of the
HTTP client contain the address, so none of them goes on from here: ours name the method, and stand alone.
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

from channels._shared.http import NoAnswer, Wire, length_of, within
from gateway.domain.proxy import Proxy

ANSWER_WITHIN_S = 20.0
LONG_POLL_S = 50
"""What the Bot API allows at most."""
UPLOADS_TAKE = 2
"""So many times as long, besides the time for its bytes: Telegram looks at a file before it answers. The gateway gives
up a little later."""
POLL_WITHIN_S = LONG_POLL_S + 10.0
DESCRIPTION_AT_MOST = 300
WAIT_AT_MOST_S = 1_000_000.0
"""Eleven days: no pause that Telegram ever asked for is near it, and a clock can still be moved by it."""
CREATES = frozenset({"sendMessage", "sendDocument", "sendPhoto"})

_JSON = {"Content-Type": "application/json"}
_Body: TypeAlias = aiohttp.FormData | bytes | None


class TelegramNotSent(TelegramError):
    """The request did not get as far as Telegram: nothing happened."""


class TelegramUnreached(TelegramNotSent):
    """Nothing of this account gets as far as Telegram now."""


class TelegramUnanswered(TelegramError):
    """The request was written, and no answer that can be read came back: what it asks for may have happened."""


class Failing(TelegramUnanswered):
    """Telegram says that it failed itself, which hardly ever means that it happened."""


class TelegramDeclined(TelegramError):
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
        proxy: Proxy | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """Take the client to send over, and for how long an answer is waited for, in seconds."""
        self._wire = Wire("Telegram", client, proxy)
        self._fail_point = fail_point
        self._answer_within_s = answer_within_s
        self._timeout = within(answer_within_s)

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
        return await self._answered(url, method, _body(request_data), _files_of(request_data))

    async def raw(self, url: str, parameters: Mapping[str, object]) -> object:
        """Call a method with parameters as they are in JSON, and return its result as it came.

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
        if isinstance(found, NoAnswer):
            raise _failure(found)
        if called in CREATES:
            await self._fail_point("J17")
        if 200 <= found.status <= 299:
            return found.status, found.body
        raise _declined(called, found.status, found.body)

    async def get(self, url: URL) -> aiohttp.ClientResponse:
        """Ask for a file and return the answer, whatever it is, before its body. Redirects are answers too.

        The caller closes it. Raises `NotSent` or `Unanswered`.
        """
        found = await self._wire.get(url, {})
        if isinstance(found, NoAnswer):
            raise _failure(found)
        return found

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Read a good answer. Raises `Unanswered` when it is none; nothing of it is logged."""
        answer = _json(payload)
        if "result" not in answer:
            raise TelegramUnanswered("An answer from Telegram cannot be read.")
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

    def __repr__(self) -> str:
        return "Bot"


def _failure(failed: NoAnswer) -> TelegramError:
    if failed.sent:
        return TelegramUnanswered(failed.why)
    return TelegramNotSent(failed.why) if failed.reached else TelegramUnreached(failed.why)


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


def _files_of(request_data: RequestData | None) -> Sequence[bytes | BinaryIO]:
    """The files in a request, of which there is one at most."""
    if request_data is None or not request_data.contains_files:
        return ()
    return [cast("Any", content) for _, content, _ in request_data.multipart_data.values()]


def _declined(called: str, status: int, payload: bytes) -> TelegramError:
    """Say what an answer that is not 2xx means: only Telegram's own words, below 500, are a refusal."""
    answer = _json(payload)
    code = answer.get("error_code")
    if not isinstance(code, int) or code >= 500 or status >= 500:
        return Failing(f"Telegram did not say what became of {called} (status {status}).")
    given, description = answer.get("parameters"), answer.get("description")
    parameters = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    retry_after, moved_to = parameters.get("retry_after"), parameters.get("migrate_to_chat_id")
    return TelegramDeclined(
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
