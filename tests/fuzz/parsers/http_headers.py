"""Headers of a request to our own server: origin, source address and sign-in."""

from __future__ import annotations

import asyncio

from multidict import CIMultiDict

from gateway.server import request_guard
from gateway.server.request_guard import Address, credential, refusal, source_of
from tests.fuzz import givens

READS = (request_guard,)
WORDS = (
    *(b"Host: ", b"Origin: ", b"Cookie: dragoman=", b"X-Forwarded-For: ", b"Sec-WebSocket-Protocol: dragoman, "),
    *(b"X-Dragoman-Key: ", b"Upgrade: websocket", b"Sec-Fetch-Site: cross-site", b"127.0.0.1:8470", b"localhost"),
    *(b"http://127.0.0.1:8470", b"https://chat.example", b"null", b"::1", b"fe80::1%eth0", b"10.0.0.1, 1.2.3.4", b";"),
    *(b"GET ", b"POST ", b"[::1]:8470", b"CHAT.example", b"chat.example.", b"chat.example@evil.example"),
)
ADDRESS = Address(host="127.0.0.1", port=8470, public_url="https://chat.example", allowed_hosts=("LAN.example",))
HOSTS = ADDRESS.hosts(8470)
ORIGINS = ADDRESS.origins(8470)


def target(data: bytes) -> None:
    """The first line is the method, every other one a header."""
    asyncio.run(_asked(data))


async def _asked(data: bytes) -> None:
    method, *lines = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")[:200]]
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.isascii() and name.replace("-", "").isalnum():
            headers.add(name[:100], value.strip()[: givens.HEADER_AT_MOST])
    request = givens.request(method if method.isascii() and method.isalpha() else "GET", "/", headers)
    refused = refusal(request, HOSTS, ORIGINS)
    hosts, origins = request.headers.getall("Host", []), request.headers.getall("Origin", [])
    if refused is None:
        assert [host.lower() in HOSTS for host in hosts] == [True], "a host that is not ours"
        assert all(one.lower() in ORIGINS for one in origins), "a page that is not ours"
    else:
        assert refused[0] in (421, 403)
        assert refused[1]
    assert "." in credential(request).text
    hops = ",".join(request.headers.getall("X-Forwarded-For", []))
    assert source_of("1.2.3.4", hops, ["10.0.0.0/8"]) == "1.2.3.4", "somebody else's word is believed"
    assert source_of("10.0.0.1", hops, ["10.0.0.0/8", "::1/128"]) in (
        "10.0.0.1",
        *(hop.strip() for hop in hops.split(",")),
    )
