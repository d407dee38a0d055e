"""Download of attachments over one bot: `getFile`, then a stream of chunks. Called by `account`.

A file's URL contains the bot's token. So it is built here from a path that a fixed rule checks, redirects are not
followed, and no error or log contains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import aiohttp
from telegram.error import TelegramError
from yarl import URL

from channels._shared.fields import object_of
from channels._shared.http import check_file, copy_file
from channels.telegram.failures import ASK_BOTFATHER, bad_token, token_trouble
from channels.telegram.request import TelegramBot, TelegramDeclined
from gateway.errors import FetchFailed

PATH_AT_MOST = 1000
_ON_DISK = re.compile(r"/|[A-Za-z]:[\\/]")
_PATH = re.compile(r"(?:(?!\.{1,2}(?:/|$))[^/\\:?#%\x00-\x20\x7f]+(?:/(?!$)|$))+")
"""Path segments: none is empty, `.` or `..`, and none contains a character with a meaning in a URL."""
_PAGES = (".html", ".htm", ".xhtml")
LOCAL = "The Bot API server keeps its files on its own disk and does not give them out."
NOT_LOCAL = "Start the Bot API server without --local."
TOO_LARGE = "The file is larger than the Bot API server gives out, which is 20 MB for most."
SEND_SMALLER = "Send a smaller one, or run a Bot API server of your own."


class TelegramDownload:
    """Downloader of one bot's files."""

    def __init__(self, bot: TelegramBot) -> None:
        """Take the bot that sends the requests."""
        self._bot = bot

    async def fetch(self, file: str, write: Callable[[bytes], None]) -> None:
        """Download the file with this id in chunks of at most 64 KiB. Raises `FetchFailed` and `write`'s errors."""
        path, size = await self._info(file)
        answer = await self._open(path)
        try:
            _check(answer, path)
            await copy_file("Telegram", answer, size, write)
        finally:
            answer.close()

    async def _info(self, file: str) -> tuple[str, int]:
        """Return the file's path, valid for an hour, and its size in bytes; 0 when unknown."""
        try:
            info = await self._bot.call("getFile", {"file_id": file})
        except TelegramError as error:
            failure = _refused(error)
        else:
            found = object_of(info)
            size = found.get("file_size")
            return _checked(found.get("file_path")), size if isinstance(size, int) else 0
        raise failure

    async def _open(self, path: str) -> aiohttp.ClientResponse:
        where = URL(f"{self._bot.base_file_url}/{quote(path)}", encoded=True)
        try:
            return await self._bot.get(where)
        except TelegramError as error:
            why = str(error)
        raise FetchFailed(why, retryable=True)


def _checked(path: object) -> str:
    """Return a path below the server's files. Raises `FetchFailed`."""
    if not isinstance(path, str) or not path:
        raise FetchFailed("Telegram did not say where the file is.", retryable=True)
    if _ON_DISK.match(path):
        raise FetchFailed(LOCAL, cure=NOT_LOCAL)
    if len(path) > PATH_AT_MOST or not path.isprintable() or not _PATH.fullmatch(path):
        raise FetchFailed("Telegram named a place for the file that is none. Nothing was asked there.")
    return path


def _refused(error: TelegramError) -> FetchFailed:
    """Map a failed `getFile` to `FetchFailed`."""
    if not isinstance(error, TelegramDeclined):
        return FetchFailed(str(error), retryable=True)
    said = error.description.lower()
    if bad_token(error):
        return FetchFailed(token_trouble(error), cure=ASK_BOTFATHER)
    if "too big" in said:
        return FetchFailed(TOO_LARGE, cure=SEND_SMALLER)
    return FetchFailed(str(error), retryable=error.code == 429 or "temporarily" in said)


def _check(answer: aiohttp.ClientResponse, path: str) -> None:
    """Raise `FetchFailed` for a response that is not the file."""
    if answer.status == 404:  # a path is valid for an hour; the next `getFile` returns another
        raise FetchFailed("Telegram does not have the file there any more.", retryable=True)
    check_file("Telegram", answer)
    if answer.content_type == "text/html" and not path.lower().endswith(_PAGES):
        raise FetchFailed("A web page came in place of the file: something between here and Telegram answered.")
