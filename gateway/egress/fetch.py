"""HTTP requests of tools, through an egress proxy that lives for one request. Used by `toolcalls`.

The proxy resolves each name once, vets every address and connects to what it vetted. Redirects stay on the host that
was allowed, and a tool's headers on the origin for which it gave them. Content is decoded here, so that a compressed
bomb ends at the limit.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp
from yarl import URL

from gateway.domain.tools import host_scope
from gateway.domain.web import Fetched
from gateway.egress.proxy import Egress
from gateway.errors import BadRequest, DragomanError, NoAnswer
from gateway.ports import EgressProxy

REDIRECTS_AT_MOST = 5
"""Redirects that a request of a tool follows."""
USER_AGENT = "Dragoman"
"""Header of every request of a tool; `headers` of a call override it."""
_MOVED = frozenset({301, 302, 303, 307, 308})
_CHUNK = 65_536
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """`ports.Net`: requests of tools, each through an egress proxy of its own."""

    egress: Egress

    async def fetch(
        self,
        url: str,
        *,
        most: int,
        within_s: float,
        hosts: Sequence[str] = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
    ) -> Fetched:
        """Return the answer to a GET, or with a body to a POST, with at most `most` decoded bytes."""
        try:
            async with asyncio.timeout(within_s):
                with socket.socket() as listening:
                    listening.bind(("127.0.0.1", 0))
                    listening.listen(8)
                    way = f"http://127.0.0.1:{listening.getsockname()[1]}"
                    async with self.egress.serve(listening, hosts=hosts, address=way) as proxy:
                        return await _followed(proxy, URL(url), most, headers, body)
        except TimeoutError:
            cure = "Try again later, or use another source."
            raise NoAnswer(f"{URL(url).host} did not answer within {within_s:g} s.", cure=cure) from None


async def _followed(proxy: EgressProxy, url: URL, most: int, headers: Mapping[str, str], body: bytes | None) -> Fetched:
    first = _scope(url)
    proxy.let([first])
    connector = aiohttp.TCPConnector(limit=1, force_close=True)
    async with aiohttp.ClientSession(
        connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    ) as client:
        for _ in range(REDIRECTS_AT_MOST + 1):
            try:
                found = await _once(client, proxy, url, most, headers, body)
            except (aiohttp.ClientError, ValueError, zlib.error) as error:
                raise _unreachable(proxy, url, error) from None
            if isinstance(found, Fetched):
                return found
            before, url, body = url, found, None
            if url.scheme not in ("http", "https") or _scope(url) != first:
                raise BadRequest(f"It leads to {url.human_repr()[:500]}.", cure="Ask for that address if you want it.")
            if (url.scheme, url.host, url.port) != (before.scheme, before.host, before.port):
                headers = _NO_HEADERS  # without TLS, or at another port, somebody else may read them
    raise BadRequest(f"It leads on more than {REDIRECTS_AT_MOST} times.", cure="Use another address.")


async def _once(
    client: aiohttp.ClientSession,
    proxy: EgressProxy,
    url: URL,
    most: int,
    headers: Mapping[str, str],
    body: bytes | None,
) -> Fetched | URL:
    """Return the answer, or where it leads."""
    given = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate", **headers}
    async with client.request(
        "GET" if body is None else "POST", url, headers=given, data=body, proxy=proxy.address, allow_redirects=False
    ) as answer:
        to = answer.headers.get("Location", "")
        if answer.status in _MOVED and to:
            return url.join(URL(to))
        if (turned := proxy.turned_away()) and answer.status >= 400:
            raise BadRequest(f"{turned[-1].host} is refused. {turned[-1].why}", cure="Use another address.")
        data, cut = await _content(answer, most)
        return Fetched(url=str(url), status=answer.status, media_type=answer.content_type.lower(), data=data, cut=cut)


async def _content(answer: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """Return at most `most` bytes of decoded content, and whether there was more."""
    encoding = answer.headers.get("Content-Encoding", "identity").lower().strip()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise ValueError(f"the content is encoded as {encoding[:40]}")
    decoder = None if encoding in ("identity", "") else zlib.decompressobj(47 if "gzip" in encoding else 15)
    found = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK):
        found += chunk if decoder is None else decoder.decompress(chunk, most + 1 - len(found))
        if len(found) > most:
            return bytes(found[:most]), True
        if decoder is not None and decoder.eof:
            break
    return bytes(found), False


def _scope(url: URL) -> str:
    return host_scope((url.host or "").lower(), url.port or 443)


def _unreachable(proxy: EgressProxy, url: URL, error: Exception) -> DragomanError:
    turned = proxy.turned_away()
    if turned:
        return BadRequest(f"{turned[-1].host} is refused. {turned[-1].why}", cure="Use another address.")
    why = str(error)[:200] or type(error).__name__
    return NoAnswer(f"{url.host} gave no usable answer: {why}.", cure="Try again later, or use another source.")
