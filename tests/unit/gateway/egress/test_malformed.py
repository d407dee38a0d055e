from __future__ import annotations

import asyncio

import pytest

from gateway.egress.exchange import ExchangeLimits
from tests.unit.gateway.egress.rig import opened

GET = "GET http://inner.example/ HTTP/1.1\r\n"
POST = "POST http://inner.example/ HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("\r\n" + GET + "\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: inner.example\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\n\r\n", 400),
        ("GET  http://inner.example/ HTTP/1.1\r\n\r\n", 400),
        ("GET http://inner.example/ a HTTP/1.1\r\n\r\n", 400),
        ("GET http://inner.example/#x HTTP/1.1\r\n\r\n", 400),
        ("GET http://inner.example/\xe4 HTTP/1.1\r\n\r\n", 400),
        ("get http://inner.example/ HTTP/1.1\r\n\r\n", 400),
        (" GET http://inner.example/ HTTP/1.1\r\n\r\n", 400),
        ("GET http://inner.example/\r\n\r\n", 400),
        ("GET http://inner.example/ HTTP/1.0\r\n\r\n", 505),
        ("GET http://inner.example/ HTTP/2\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("TRACE http://inner.example/ HTTP/1.1\r\n\r\n", 405),
        ("PROPFIND http://inner.example/ HTTP/1.1\r\n\r\n", 405),
        (GET + "Host\r\n\r\n", 400),
        (GET + "Host : x\r\n\r\n", 400),
        (GET + ": x\r\n\r\n", 400),
        (GET + "X: a\r\n folded\r\n\r\n", 400),
        (GET + "X: a\r\n\tfolded\r\n\r\n", 400),
        (GET + "X: a\nY: b\r\n\r\n", 400),
        (GET + "X: a\rY: b\r\n\r\n", 400),
        (GET + "X: a\0b\r\n\r\n", 400),
        (GET + "X: a\x0bb\r\n\r\n", 400),
        ("GET http://inner.example/ HTTP/1.1\nX: a\r\n\r\n", 400),
        (POST + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
        (POST + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (POST + "Content-Length: 1, 1\r\n\r\nx", 400),
        (POST + "Content-Length: +1\r\n\r\nx", 400),
        (POST + "Content-Length: -1\r\n\r\nx", 400),
        (POST + "Content-Length: 0x1\r\n\r\nx", 400),
        (POST + "Content-Length:\r\n\r\nx", 400),
        (POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + "Transfer-Encoding: identity\r\n\r\n", 400),
        (POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("CONNECT inner.example:443 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400),
        ("CONNECT inner.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("CONNECT inner.example HTTP/1.1\r\n\r\n", 403),
        ("CONNECT http://inner.example/ HTTP/1.1\r\n\r\n", 403),
        ("GET http:inner.example HTTP/1.1\r\n\r\n", 403),
        ("GET http:///etc/passwd HTTP/1.1\r\n\r\n", 403),
        ("GET inner.example:80 HTTP/1.1\r\n\r\n", 403),
        (GET + f"X: {'x' * 70_000}\r\n\r\n", 431),
        (GET + "X: x\r\n" * 15_000 + "\r\n", 431),
    ],
)
async def test_a_malformed_request_is_answered_and_not_handed_on(request_text: str, status: int) -> None:
    async with opened() as rig:
        response = await rig.ask(request_text)
        assert response.startswith(b"HTTP/1.1 %d " % status)
        assert b"Connection: close\r\n" in response
        assert rig.inner.connections == 0


async def test_bare_line_feeds_never_make_a_head() -> None:
    async with opened(limits=ExchangeLimits(head_s=0.1)) as rig:
        response = await rig.ask("GET http://inner.example/ HTTP/1.1\nHost: inner.example\n\n")
        assert response.startswith(b"HTTP/1.1 408 ")
        assert rig.inner.connections == 0


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"4\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"5;" + b"x" * 5_000 + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 101 + b"\r\n",
    ],
)
async def test_a_broken_body_cuts_both_ends(chunks: bytes) -> None:
    async with opened() as rig, rig.connected() as ends, asyncio.timeout(5):
        ends.writer.write(b"POST http://inner.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        with pytest.raises(ConnectionResetError):
            await ends.reader.read()
        assert rig.inner.requests == []


async def test_a_second_request_on_the_connection_is_never_read() -> None:
    async with opened() as rig:
        response = await rig.ask(GET + "\r\n" + GET.replace("/ ", "/second ") + "\r\n")
        assert response.count(b"HTTP/1.1 ") == 1
        assert [line for line, _, _ in rig.inner.requests] == ["GET / HTTP/1.1"]


async def test_bytes_after_a_body_are_not_part_of_it() -> None:
    async with opened() as rig:
        await rig.ask(POST + "Content-Length: 2\r\n\r\nokGET http://inner.example/second HTTP/1.1\r\n\r\n")
        assert [body for _, _, body in rig.inner.requests] == [b"ok"]
        assert rig.inner.connections == 1


async def test_control_characters_are_not_reflected() -> None:
    async with opened() as rig:
        response = await rig.ask("CONNECT a\x1b[31mb:80 HTTP/1.1\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 400 ")
        assert b"\x1b" not in response
