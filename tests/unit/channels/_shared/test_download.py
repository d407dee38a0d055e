"""The bytes of a file: passed on as they come, and told apart from half of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from channels._shared.download import check, pour
from gateway.errors import FetchFailed

DATA = bytes(range(256)) * 1000


@asynccontextmanager
async def answered(head: str, body: bytes) -> AsyncGenerator[aiohttp.ClientResponse]:
    """The answer of a server that says this, and then ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/", auto_decompress=False) as answer,
        ):
            yield answer
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("size", [0, len(DATA)])
@pytest.mark.parametrize("length", [f"200 OK\r\nContent-Length: {len(DATA)}", "200 OK"])
async def test_a_file_comes_in_pieces(length: str, size: int) -> None:
    pieces: list[bytes] = []
    async with answered(length, DATA) as answer:
        check("Somewhere", answer)
        await pour("Somewhere", answer, size, pieces.append)
    assert b"".join(pieces) == DATA
    assert max(map(len, pieces)) <= 65_536


async def test_half_a_file_is_none() -> None:
    for head, why in (
        (f"200 OK\r\nContent-Length: {len(DATA)}", "A file from Somewhere broke off: ClientPayloadError."),
        ("200 OK", "The file broke off after 128,000 of 256,000 bytes."),
    ):
        async with answered(head, DATA[:128_000]) as answer:
            with pytest.raises(FetchFailed) as caught:
                await pour("Somewhere", answer, len(DATA), lambda _: None)
        assert (caught.value.message, caught.value.retryable) == (why, True)
        assert caught.value.__context__ is None, "an error of the HTTP client has the address in it"


async def test_whoever_writes_can_end_it() -> None:
    def full(_: bytes) -> None:
        raise OverflowError

    async with answered("200 OK", DATA) as answer:
        with pytest.raises(OverflowError):
            await pour("Somewhere", answer, 0, full)


@pytest.mark.parametrize(
    ("head", "why", "later"),
    [
        ("403 No", "Somewhere did not give the file (status 403).", False),
        ("429 Wait", "Somewhere did not give the file (status 429).", True),
        ("502 Oh", "Somewhere did not give the file (status 502).", True),
        (
            "200 OK\r\nContent-Encoding: GZIP",
            "Somewhere gave the file packed, though it was asked for it as it is.",
            False,
        ),
    ],
)
async def test_what_has_no_file_in_it_says_why(head: str, why: str, later: bool) -> None:
    async with answered(head, b"") as answer:
        with pytest.raises(FetchFailed) as caught:
            check("Somewhere", answer)
    assert (caught.value.message, caught.value.retryable) == (why, later)
