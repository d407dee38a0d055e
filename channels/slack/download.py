"""Download of attachments in one workspace: `files.info`, then a stream of chunks. Called by `adapter`.

The URL in Slack's answer decides where the bot's token goes. So a fixed rule checks each URL before its request,
redirects included, and only the origin that Slack named first gets the token.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from yarl import URL

from channels._shared.fields import object_of
from channels._shared.http import check_file, copy_file
from channels.slack.failures import BAD_TOKEN, REINSTALL, scope_trouble, token_trouble
from channels.slack.request import Json, SlackClient, SlackDeclined, SlackFailure
from gateway.errors import FetchFailed

SLACK = "slack.com"
REDIRECTS_AT_MOST = 3
"""Redirects that a download of a person's file follows."""
MOVED = frozenset({301, 302, 303, 307, 308})
GONE = "The file is not in Slack any more."
SEND_AGAIN = "Send it again."
A_PAGE = "Slack gave a web page in place of the file: the app may not read it, or it is a document of Slack's own."
NO_PLACE = "Slack did not say where the file is."
ELSEWHERE = "The file is kept outside of Slack, where the app does not go."


class SlackDownload:
    """Downloader of one workspace's files."""

    def __init__(self, client: SlackClient, root: str) -> None:
        """Take the client and the Web API's URL: files may be on its host too, as in tests."""
        self._client = client
        self._root = URL(root)

    async def fetch(self, file: str, write: Callable[[bytes], None]) -> None:
        """Download the file with this id in chunks of at most 64 KiB. Raises `FetchFailed` and `write`'s errors.

        Raises `Declined` if Slack refuses `files.info`; `refused` turns it into a `FetchFailed`.
        """
        told = await self._info(file)
        answer = await self._open(self._place(told))
        try:
            _check(answer, told)
            size = told.get("size")
            await copy_file("Slack", answer, size if isinstance(size, int) else 0, write)
        finally:
            answer.close()

    async def _info(self, file: str) -> Json:
        try:
            found = (await self._client.call("files.info", {"file": file})).get("file")
        except SlackDeclined:
            raise
        except SlackFailure as error:
            why = str(error)
        else:
            return object_of(found)
        raise FetchFailed(why, retryable=True)

    def _place(self, told: Json) -> URL:
        """Return the URL of the bytes. Raises `FetchFailed`."""
        if told.get("mode") == "tombstone":
            raise FetchFailed(GONE, cure=SEND_AGAIN)
        if told.get("mode") == "hidden_by_limit":
            raise FetchFailed("Slack hides the file: the workspace is over the limits of its plan.")
        if told.get("mode") == "external" or told.get("is_external") is True:
            raise FetchFailed(ELSEWHERE, cure="Upload the file itself.")
        named = told.get("url_private_download") or told.get("url_private")
        where = _url(named)
        if where is None:
            raise FetchFailed(NO_PLACE, cure=SEND_AGAIN)
        if not self._is_slack(where):
            raise FetchFailed("Slack named an address for the file that is not its own. Nothing was asked there.")
        return where

    def _is_slack(self, where: URL) -> bool:
        """Return True if the token may be sent to this URL.

        Allowed are https at Slack or below the configured Web API's host, and that API's own origin.
        """
        if where.user is not None or where.password is not None or not where.host or not where.scheme:
            return False
        if where.origin() == self._root.origin():
            return True
        hosts = (SLACK, self._root.host or SLACK)
        at_home = any(where.host == host or where.host.endswith(f".{host}") for host in hosts)
        return at_home and where.scheme == "https" and where.port == 443

    async def _open(self, where: URL) -> aiohttp.ClientResponse:
        """Request the bytes and follow redirects. Raises `FetchFailed`."""
        first, why = where, ""
        for _ in range(REDIRECTS_AT_MOST + 1):
            try:
                answer = await self._client.get(where, with_token=where.origin() == first.origin())
            except SlackFailure as error:
                why = str(error)
                break
            if answer.status not in MOVED:
                return answer
            answer.close()
            where = self._moved(where, answer.headers.get("Location", ""))
        raise FetchFailed(why or "The file moves from address to address.", retryable=bool(why))

    def _moved(self, where: URL, location: str) -> URL:
        target = _url(location)
        if target is None:
            raise FetchFailed(NO_PLACE)
        found = where.join(target)
        if not self._is_slack(found):
            raise FetchFailed("The file moved to an address that is not Slack's. Nothing was asked there.")
        return found


def refused(declined: SlackDeclined) -> FetchFailed:
    """Map a refused `files.info` to `FetchFailed`."""
    if declined.error in ("file_not_found", "file_deleted"):
        return FetchFailed(GONE, cure=SEND_AGAIN)
    if declined.error == "missing_scope":
        return FetchFailed(scope_trouble(declined), cure=REINSTALL)
    if declined.error in BAD_TOKEN:
        return FetchFailed(token_trouble(declined), cure="Put a good bot_token into the configuration.")
    later = declined.error == "ratelimited" or declined.status == 429
    return FetchFailed(str(declined), retryable=later)


def _check(answer: aiohttp.ClientResponse, told: Json) -> None:
    """Raise `FetchFailed` for a response that is not the file."""
    if answer.status == 404:
        raise FetchFailed(GONE, cure=SEND_AGAIN)
    check_file("Slack", answer)
    if answer.content_type == "text/html" and not (told.get("mimetype") == "text/html" and _is_attachment(answer)):
        raise FetchFailed(A_PAGE, cure=f"Check that the app has the scope files:read. {REINSTALL}")


def _is_attachment(answer: aiohttp.ClientResponse) -> bool:
    """Return True for a `Content-Disposition` of attachment, which files have and a sign-in page has not."""
    return answer.headers.get("Content-Disposition", "").lower().startswith("attachment")


def _url(text: object) -> URL | None:
    """Parse a URL with the HTTP client's parser, so that both see the same host."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = URL(text)
        _ = found.host, found.port
    except ValueError:
        return None
    return found
