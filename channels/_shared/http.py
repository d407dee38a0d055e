"""On the way in and out: one request to a platform over the daemon's HTTP client, and what is known when it fails.

What matters of a request that failed is whether it may have been carried out. Errors of the HTTP client contain the
address, and an address may contain a token, so none of them goes on from here: what is known is returned, and the
channel raises it as an error of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import aiohttp
from yarl import URL

from gateway.domain.proxy import WANTS_PASSWORD, Proxy, through
from gateway.domain.slots import file_may_take_s

CONNECT_WITHIN_S = 10.0
"""Shorter than any whole request may take: so what takes too long in all was on its way already."""
UNREACHED_AGAIN_S = 3.0
"""So long an account sends nothing after its platform could not be reached."""
FETCH_WITHIN_S = 300.0
"""A whole file that somebody sent."""
SILENT_AT_MOST_S = 20.0
"""… of which something must come so often."""
PIECE_BYTES = 65_536
STUCK_AFTER_S = 30.0
"""A file of ours, of which nothing was taken for so long. On the slowest way that is given time, pieces are taken 11 s
apart at most: the system takes in 4 MiB, and more when a third of that has left."""
LOOKED_AT_EVERY_S = 1.0

_NOT_SENT = (
    aiohttp.ClientConnectorError,  # no address, nobody there, no TLS, no proxy
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
UNANSWERED = (aiohttp.ClientError, OSError, TimeoutError)  # `_Stuck` is one too
"""All that the HTTP client raises."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back, whatever it says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing that can be read came back."""

    sent: bool
    """Whether it may have been carried out all the same."""
    why: str
    """One sentence; nothing of the address stands in it."""
    reached: bool = False
    """Of what was not sent: whether its beginning arrived, so that other requests need not fail."""


class _Stuck(TimeoutError):
    """Nothing more of a file was taken before its end, so that nobody can have done anything with it."""


class Wire:
    """The way to one platform. The HTTP client belongs to the daemon and stays open."""

    def __init__(self, platform: str, client: aiohttp.ClientSession, proxy: Proxy | None = None) -> None:
        """Take what people call the platform, what to ask it over, and the proxy on the way."""
        self._platform = platform
        self._client = client
        self._proxy = proxy

    async def ask(
        self,
        verb: str,
        url: str | URL,
        called: str,
        limits: aiohttp.ClientTimeout,
        file: BinaryIO | None = None,
        **arguments: Any,
    ) -> HttpAnswer | NoAnswer:
        """Send one request and return its answer; a redirect is one too. `called`: what is asked for, to be named.

        `file`: an open one that is sent with it; the request is given up when nothing of it is taken any more.
        `arguments` are those of aiohttp.
        """
        if self._client.closed:
            return NoAnswer(sent=False, why=f"Dragoman is stopping; {called} was not sent.")
        arguments.setdefault("proxy", through(self._proxy))
        asked = self._client.request(verb, url, timeout=limits, allow_redirects=False, **arguments)
        try:
            async with _while_taken(file), asked as response:
                if self._proxy is not None and response.status == WANTS_PASSWORD:
                    return NoAnswer(sent=False, why=" ".join(self._proxy.refused(WANTS_PASSWORD)))
                return HttpAnswer(response.status, response.headers, await response.read())
        except UNANSWERED as error:
            return self._failed(error, called)

    async def get(self, url: URL, headers: Mapping[str, str]) -> aiohttp.ClientResponse | NoAnswer:
        """Ask for a file and return the answer before its body; a redirect is one too. The caller closes it."""
        if self._client.closed:
            return NoAnswer(sent=False, why="Dragoman is stopping; a file was not asked for.")
        limits = aiohttp.ClientTimeout(total=FETCH_WITHIN_S, connect=CONNECT_WITHIN_S, sock_read=SILENT_AT_MOST_S)
        as_it_is = {**headers, "Accept-Encoding": "identity"}  # what is packed may be of any size
        way = through(self._proxy)
        try:
            found = await self._client.request(
                "GET", url, timeout=limits, allow_redirects=False, headers=as_it_is, auto_decompress=False, proxy=way
            )
        except UNANSWERED as error:
            return self._failed(error, "a file")
        if self._proxy is not None and found.status == WANTS_PASSWORD:
            found.close()
            return NoAnswer(sent=False, why=" ".join(self._proxy.refused(WANTS_PASSWORD)))
        return found

    def _failed(self, error: Exception, called: str) -> NoAnswer:
        if why := by_proxy(error, self._proxy):
            return NoAnswer(sent=False, why=why)
        if isinstance(error, _NOT_SENT):
            return NoAnswer(sent=False, why=f"{self._platform} cannot be reached for {called}: {what(error)}.")
        if isinstance(error, _Stuck):
            why = f"{self._platform} took no more of the file of {called} for {STUCK_AFTER_S:g} s."
            return NoAnswer(sent=False, why=why, reached=True)
        return NoAnswer(sent=True, why=f"No answer from {self._platform} to {called}: {what(error)}.")


def by_proxy(error: BaseException, proxy: Proxy | None) -> str:
    """Say what the proxy has to do with an error of the HTTP client; empty when it is none of its own."""
    if proxy is None:
        return ""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return " ".join(proxy.refused(error.status))
    if isinstance(error, aiohttp.WSServerHandshakeError) and error.status == WANTS_PASSWORD:
        return " ".join(proxy.refused(error.status))
    return " ".join(proxy.unreached(what(error))) if isinstance(error, aiohttp.ClientProxyConnectionError) else ""


def within(seconds: float, size: int = 0) -> aiohttp.ClientTimeout:
    """The limits of a request that may take so long in all, and besides as long as a file of this size may."""
    total = seconds + file_may_take_s(size)
    return aiohttp.ClientTimeout(total=total, connect=min(CONNECT_WITHIN_S, seconds / 2))


@asynccontextmanager
async def _while_taken(file: BinaryIO | None) -> AsyncGenerator[None]:
    """Raise `_Stuck` when nothing of an open file is read any more before its end. Then the request's own limits hold:
    whoever took it all at once may have a slow way before it.
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
    """Puts a limit off as long as more and more of a file is read, and for good when all of it was."""

    file: BinaryIO
    size: int
    limit: asyncio.Timeout
    timer: asyncio.TimerHandle = field(init=False)
    _at: int = -1

    def look(self) -> None:
        """See how far it is, now and from time to time."""
        loop = asyncio.get_running_loop()
        before, self._at = self._at, self._read()
        if self._at > before and not self.limit.expired():
            self.limit.reschedule(loop.time() + STUCK_AFTER_S if self._at < self.size else None)
        self.timer = loop.call_later(LOOKED_AT_EVERY_S, self.look)

    def _read(self) -> int:
        """Bytes that were read; all of them where it is closed, which another thread may do at any time."""
        try:
            return os.lseek(self.file.fileno(), 0, os.SEEK_CUR)
        except (ValueError, OSError):
            return self.size


def length_of(content: bytes | BinaryIO) -> int:
    """Bytes of what is sent as a file: all there is, or an open file of the disk."""
    return len(content) if isinstance(content, bytes) else os.fstat(content.fileno()).st_size


_WORDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((asyncio.TimeoutError,), "too late"),
    ((aiohttp.ClientConnectorDNSError,), "its name cannot be found; check api_root and the DNS of this machine"),
    ((aiohttp.ClientConnectorCertificateError,), "its certificate is not trusted; check what this machine trusts"),
    ((aiohttp.ClientSSLError,), "no encrypted connection can be made; check api_root"),
    ((aiohttp.ClientConnectorError,), "no connection can be made; check the network"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionError), "the connection broke off"),
)
"""In order: what an error is, for people."""


def what(error: BaseException) -> str:
    """Say what an error is, in words without its text: that may hold the address."""
    return next((words for kinds, words in _WORDS if isinstance(error, kinds)), "the connection failed")
