"""Requests of nodes to each other for files: signed for one file and one minute. Used by `node_files`, `node_uploads`.

A request names what it asks for, never a path.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from gateway.domain.nodes import HomeHolder
from gateway.ports import Clock

GOOD_FOR_S = 60
"""Seconds for which a request is good, clocks of nodes that differ by as much included."""
TIMEOUT = aiohttp.ClientTimeout(total=60.0, sock_connect=3.0, sock_read=10.0)
FAILURES = (aiohttp.ClientError, TimeoutError, ValueError)
"""Errors of a node that cannot be asked, or breaks off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequests:
    """Requests for one kind of file."""

    path: str
    names: tuple[str, ...]
    """Names of the words of a request. The last one is who is asked."""
    key: bytes
    """Key of all nodes for this kind alone."""
    client: aiohttp.ClientSession
    clock: Clock

    @asynccontextmanager
    async def ask(self, place: HomeHolder, *words: str) -> AsyncGenerator[aiohttp.ClientResponse | None]:
        """Yield the answer of a place; None when it has no such file. Raises `FAILURES`."""
        if not place.address:
            raise ValueError("it has no address")
        until = str(round(self.clock.now().timestamp()) + GOOD_FOR_S)
        asked = dict(zip(self.names, words, strict=True)) | {"until": until}
        asked["sig"] = self.signature(*asked.values())
        url = f"{place.address.rstrip('/')}{self.path}?{urlencode(asked)}"
        async with self.client.get(url, timeout=TIMEOUT, allow_redirects=False) as response:
            if response.status not in (200, 404):
                raise ValueError(f"it answered with status {response.status}")
            yield None if response.status == 404 else response

    def words_of(self, request: web.Request, own: str) -> list[str]:
        """Return the words of a request to this node. Raises `HTTPForbidden` without a good signature."""
        words = [request.query.get(name, "") for name in self.names]
        until, sig = request.query.get("until", ""), request.query.get("sig", "")
        good = hmac.compare_digest(sig.encode(), self.signature(*words, until).encode())
        if not good or words[-1] != own or not self._in_time(until):
            raise web.HTTPForbidden(reason="This is for other nodes of the gateway.")
        return words

    def _in_time(self, until: str) -> bool:
        left = int(until) - self.clock.now().timestamp() if until.isascii() and until.isdecimal() else -1
        return 0 <= left <= 2 * GOOD_FOR_S

    def signature(self, *words: str) -> str:
        """Return the signature of these words."""
        text = "\0".join(words)
        return hmac.new(self.key, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def cure(place: HomeHolder) -> str:
    """Return what an owner can do about a place that cannot be asked."""
    if not place.address and place.alive_at is not None:
        return f"Set [cluster] address on {place.name}, so that other nodes can read its files."
    return f"Start {place.name} again."
