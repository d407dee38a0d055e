"""File downloads: streamed in chunks, and truncation detected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from channels._shared.http import check_file, copy_file
from gateway.errors import FetchFailed
from tests.support.surroundings import Taken

DATA = bytes(range(256)) * 1000
HALF = DATA[: len(DATA) // 2]
CHUNKED = "200 OK\r\nTransfer-Encoding: chunked"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


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


@pytest.mark.parametrize("size", [0, 1, len(DATA)])
@pytest.mark.parametrize("length", [f"200 OK\r\nContent-Length: {len(DATA)}", "200 OK"])
async def test_file_comes_in_pieces_whatever_its_announced_size(length: str, size: int) -> None:
    taken = Taken()
    async with answered(length, DATA) as answer:
        check_file("Somewhere", answer)
        await copy_file("Somewhere", answer, size, taken)
    assert taken.data == DATA
    assert max(map(len, taken.pieces)) <= 65_536


async def test_file_with_a_visible_end_may_be_smaller_than_announced() -> None:
    for head, body in ((f"200 OK\r\nContent-Length: {len(DATA)}", DATA), (CHUNKED, chunk(DATA) + chunk(b""))):
        taken = Taken()
        async with answered(head, body) as answer:
            await copy_file("Somewhere", answer, 10**12, taken)
        assert taken.data == DATA


async def test_half_a_file_is_none() -> None:
    for head, body, why in (
        (f"200 OK\r\nContent-Length: {len(DATA)}", HALF, "A file from Somewhere broke off: the connection broke off."),
        (CHUNKED, chunk(DATA)[: len(HALF)], "A file from Somewhere broke off: the connection broke off."),
        ("200 OK", HALF, "The file broke off after 128,000 of 256,000 bytes."),
    ):
        async with answered(head, body) as answer:
            with pytest.raises(FetchFailed) as caught:
                await copy_file("Somewhere", answer, len(DATA), lambda _: None)
        assert (caught.value.message, caught.value.retryable) == (why, True)
        assert caught.value.__context__ is None, "an error of the HTTP client has the address in it"


@pytest.mark.parametrize("body", [DATA, DATA * 100])
async def test_error_of_the_writer_ends_the_download_and_is_raised(body: bytes) -> None:
    taken = Taken(full_at=100_000)
    async with answered("200 OK", body) as answer:
        with pytest.raises(OSError, match="the disk is full"):
            await copy_file("Somewhere", answer, 0, taken)
    assert 100_000 < len(taken.data) <= 100_000 + 65_536


@pytest.mark.parametrize(
    ("head", "why", "later"),
    [
        ("403 No", "Somewhere did not give the file (status 403).", False),
        ("429 Wait", "Somewhere did not give the file (status 429).", True),
        ("410 Gone", "Somewhere did not give the file (status 410).", False),
        ("500 Oh", "Somewhere did not give the file (status 500).", True),
        ("502 Oh", "Somewhere did not give the file (status 502).", True),
        (
            "200 OK\r\nContent-Encoding: GZIP",
            "Somewhere gave the file packed, though it was asked for it as it is.",
            False,
        ),
    ],
)
async def test_answer_without_a_file_is_a_failure_with_its_reason(head: str, why: str, later: bool) -> None:
    async with answered(head, b"") as answer:
        with pytest.raises(FetchFailed) as caught:
            check_file("Somewhere", answer)
    assert (caught.value.message, caught.value.retryable) == (why, later)
