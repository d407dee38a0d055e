"""HTTP requests and file downloads over the daemon's client. Used by each channel's `request` and `download`.

The error of a failed request has its outcome: not carried out, or in doubt. Errors of the HTTP client contain the URL,
which may contain a token, so none leaves this module. A failure names the server, and the channel raises its own error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import aiohttp
from yarl import URL

from gateway.domain.proxy import WANTS_PASSWORD, Proxy, through
from gateway.domain.slots import file_may_take_s
from gateway.errors import FetchFailed

CONNECT_WITHIN_S = 10.0
"""Timeout in seconds for connecting. Shorter than any request's timeout: a request that times out was already sent."""
UNREACHED_AGAIN_S = 3.0
"""Pause in seconds before an account sends again after its platform was unreachable."""
FETCH_WITHIN_S = 300.0
"""Timeout in seconds for a whole file download."""
SILENT_AT_MOST_S = 20.0
"""Read timeout in seconds during a file download."""
PIECE_BYTES = 65_536
"""Bytes per chunk of a download."""
STUCK_AFTER_S = 30.0
"""Timeout in seconds for an upload without progress. On the slowest supported line, chunks are read at most 11 s apart.
The kernel buffers 4 MiB, and reads more when a third of that has left."""
LOOKED_AT_EVERY_S = 1.0
"""Interval in seconds between checks of an upload's progress."""

_NOT_SENT = (
    aiohttp.ClientConnectorError,  # no address, nobody there, no TLS, no proxy
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
UNANSWERED = (aiohttp.ClientError, OSError, TimeoutError)  # `_Stuck` is one too
"""All errors that the HTTP client raises."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """HTTP response of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Request without a readable response."""

    sent: bool
    """True when the request may have been carried out."""
    why: str
    """Sentences that name the server if it was not reached, with nothing else of the URL."""
    reached: bool = False
    """For an unsent request: True when its beginning arrived, so other requests need not fail."""


class _Stuck(TimeoutError):
    """Upload that stopped before its end, so the platform cannot have acted on it."""


class Wire:
    """HTTP access to one platform. The HTTP client belongs to the daemon and stays open."""

    def __init__(
        self, platform: str, client: aiohttp.ClientSession, proxy: Proxy | None = None, *, own_root: str = ""
    ) -> None:
        """Take the platform's display name, the HTTP client, the proxy, and `api_root` if the owner set it."""
        self._platform = platform
        self._client = client
        self._proxy = proxy
        self._own_server = _server_of(own_root)

    async def ask(
        self,
        verb: str,
        url: str | URL,
        called: str,
        limits: aiohttp.ClientTimeout,
        file: BinaryIO | None = None,
        **arguments: Any,
    ) -> HttpAnswer | Unanswered:
        """Send one request and return its response; redirects are not followed. `called`: its name in messages.

        `file`: an open file to upload; the request is aborted when the upload makes no progress.
        `arguments` are those of aiohttp.
        """
        if self._client.closed:
            return Unanswered(sent=False, why=f"Dragoman is stopping; {called} was not sent.")
        arguments.setdefault("proxy", through(self._proxy))
        asked = self._client.request(verb, url, timeout=limits, allow_redirects=False, **arguments)
        try:
            async with _while_taken(file), asked as response:
                if self._proxy is not None and response.status == WANTS_PASSWORD:
                    return Unanswered(sent=False, why=" ".join(self._proxy.refused(WANTS_PASSWORD)))
                return HttpAnswer(response.status, response.headers, await response.read())
        except UNANSWERED as error:
            return self._failed(error, called, url)

    async def get(self, url: URL, headers: Mapping[str, str]) -> aiohttp.ClientResponse | Unanswered:
        """Request a file and return the response before its body; redirects are not followed. The caller closes it."""
        if self._client.closed:
            return Unanswered(sent=False, why="Dragoman is stopping; a file was not asked for.")
        limits = aiohttp.ClientTimeout(total=FETCH_WITHIN_S, connect=CONNECT_WITHIN_S, sock_read=SILENT_AT_MOST_S)
        as_it_is = {**headers, "Accept-Encoding": "identity"}  # a compressed body may expand to any size
        way = through(self._proxy)
        try:
            found = await self._client.request(
                "GET", url, timeout=limits, allow_redirects=False, headers=as_it_is, auto_decompress=False, proxy=way
            )
        except UNANSWERED as error:
            return self._failed(error, "a file", url)
        if self._proxy is not None and found.status == WANTS_PASSWORD:
            found.close()
            return Unanswered(sent=False, why=" ".join(self._proxy.refused(WANTS_PASSWORD)))
        return found

    def _failed(self, error: Exception, called: str, url: str | URL) -> Unanswered:
        if why := by_proxy(error, self._proxy):
            return Unanswered(sent=False, why=why)
        if isinstance(error, _NOT_SENT):
            server = _server_of(url)
            at = f" at {server}" if server else ""
            why = f"{self._platform} cannot be reached{at} for {called}: {what(error)}."
            own = "api_root, which is set, and " if server and server == self._own_server else ""
            return Unanswered(sent=False, why=f"{why} Check {own}{_check(error)}.")
        if isinstance(error, _Stuck):
            why = f"{self._platform} took no more of the file of {called} for {STUCK_AFTER_S:g} s."
            return Unanswered(sent=False, why=why, reached=True)
        return Unanswered(sent=True, why=f"No answer from {self._platform} to {called}: {what(error)}.")


def _server_of(url: str | URL) -> str:
    """Return host and port of a URL without user and password; empty for no valid URL."""
    try:
        return URL(url).host_port_subcomponent or ""
    except ValueError:
        return ""


def by_proxy(error: BaseException, proxy: Proxy | None) -> str:
    """Return the proxy's part in an error of the HTTP client; empty when the proxy did not cause it."""
    if proxy is None:
        return ""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return " ".join(proxy.refused(error.status))
    if isinstance(error, aiohttp.WSServerHandshakeError) and error.status == WANTS_PASSWORD:
        return " ".join(proxy.refused(error.status))
    return " ".join(proxy.unreached(what(error))) if isinstance(error, aiohttp.ClientProxyConnectionError) else ""


def within(seconds: float, size: int = 0) -> aiohttp.ClientTimeout:
    """Return the timeouts of a request: `seconds` in all, plus the time allowed for a file of `size` bytes."""
    total = seconds + file_may_take_s(size)
    return aiohttp.ClientTimeout(total=total, connect=min(CONNECT_WITHIN_S, seconds / 2))


@asynccontextmanager
async def _while_taken(file: BinaryIO | None) -> AsyncGenerator[None]:
    """Raise `_Stuck` when the upload of an open file stops before its end. After its end, the request's own timeouts
    hold: a buffer that took the file at once may still drain over a slow line.
    """
    if file is None:
        yield
        return
    limit = asyncio.timeout(None)
    try:
        async with limit:
            watch = _Watch(file=file, size=length_of(file), limit=limit)
            watch.look()
            try:
                yield
            finally:
                watch.timer.cancel()
    except TimeoutError:
        if limit.expired():
            raise _Stuck from None
        raise


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Watchdog of an upload: postpones the timeout while the file is read, and removes it at the end of the file."""

    file: BinaryIO
    size: int
    limit: asyncio.Timeout
    timer: asyncio.TimerHandle = field(init=False)
    _at: int = -1

    def look(self) -> None:
        """Check the progress now and once per interval."""
        loop = asyncio.get_running_loop()
        before, self._at = self._at, self._read()
        if self._at > before and not self.limit.expired():
            self.limit.reschedule(loop.time() + STUCK_AFTER_S if self._at < self.size else None)
        self.timer = loop.call_later(LOOKED_AT_EVERY_S, self.look)

    def _read(self) -> int:
        """Return the bytes read; all of them if the file is closed, which another thread may do at any time."""
        try:
            return os.lseek(self.file.fileno(), 0, os.SEEK_CUR)
        except (ValueError, OSError):
            return self.size


def length_of(content: bytes | BinaryIO) -> int:
    """Return the size in bytes of an upload: bytes in memory, or an open file."""
    return len(content) if isinstance(content, bytes) else os.fstat(content.fileno()).st_size


_NETWORK = "the network"
_WORDS: tuple[tuple[tuple[type[BaseException], ...], str, str], ...] = (
    ((asyncio.TimeoutError,), "it timed out", _NETWORK),
    ((aiohttp.ClientConnectorDNSError,), "its name cannot be found", "the DNS of this machine"),
    ((aiohttp.ClientConnectorCertificateError,), "its certificate is not trusted", "what this machine trusts"),
    ((aiohttp.ClientSSLError,), "no encrypted connection can be made", _NETWORK),
    ((aiohttp.ClientConnectorError,), "no connection can be made", _NETWORK),
    ((aiohttp.WSServerHandshakeError,), "the server opened no WebSocket", _NETWORK),
    (
        (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionError),
        "the connection broke off",
        _NETWORK,
    ),
)
"""Descriptions of errors for people, and what to check; the first match counts."""


def what(error: BaseException) -> str:
    """Return a description of an error without its text, which may contain the URL."""
    return next((words for kinds, words, _ in _WORDS if isinstance(error, kinds)), "the connection failed")


def _check(error: BaseException) -> str:
    return next((check for kinds, _, check in _WORDS if isinstance(error, kinds)), _NETWORK)


def unconnected(platform: str, error: BaseException) -> str:
    """Return the sentences for a long-lived connection that failed, with its server where the error knows it."""
    at = f" at {error.host}:{error.port}" if isinstance(error, aiohttp.ClientConnectorError) else ""
    status = f" (status {error.status})" if isinstance(error, aiohttp.WSServerHandshakeError) else ""
    check = f" Check {_check(error)}." if isinstance(error, _NOT_SENT) else ""
    return f"No connection to {platform}{at}: {what(error)}{status}.{check}"


# --- downloads ----------------------------------------------------------------------------------


def check_file(platform: str, answer: aiohttp.ClientResponse) -> None:
    """Raise `FetchFailed` for a response without the file, or with a compressed one."""
    status = answer.status
    if status != 200:
        later = status == 429 or status >= 500
        raise FetchFailed(f"{platform} did not give the file (status {status}).", retryable=later)
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchFailed(f"{platform} gave the file packed, though it was asked for it as it is.")


async def copy_file(platform: str, answer: aiohttp.ClientResponse, size: int, write: Callable[[bytes], None]) -> None:
    """Write a file in chunks of at most 64 KiB. `size`: its announced size in bytes; 0 when unknown.

    Raises `FetchFailed` for a truncated file, and `write`'s errors.
    """
    read = 0
    while piece := await _piece(platform, answer):
        read += len(piece)
        write(piece)
    if not _ends(answer) and read < size:
        raise FetchFailed(f"The file broke off after {read:,} of {size:,} bytes.", retryable=True)


async def _piece(platform: str, answer: aiohttp.ClientResponse) -> bytes:
    try:
        return await answer.content.read(PIECE_BYTES)
    except UNANSWERED as error:
        why = what(error)
    # Raised here, not above: inside the `except` block the other error, with its URL, would be attached.
    raise FetchFailed(f"A file from {platform} broke off: {why}.", retryable=True)


def _ends(answer: aiohttp.ClientResponse) -> bool:
    """Return True if the end of the body is distinguishable from a broken connection."""
    return answer.content_length is not None or "Transfer-Encoding" in answer.headers
