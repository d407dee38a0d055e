"""One request to a platform: its response or a failure, without any part of the URL."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from channels._shared import http
from channels._shared.http import HttpAnswer, Unanswered, Wire, length_of, within

SECRET = "a-token-in-the-address"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@asynccontextmanager
async def served(serve: Serve) -> AsyncGenerator[str]:
    """A server of raw connections; its address."""

    async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await serve(reader, writer)

    async with connected(asked) as root:
        yield root


@asynccontextmanager
async def connected(talk: Serve) -> AsyncGenerator[str]:
    """One that does not wait for a request."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def lost(client: aiohttp.ClientSession, url: str, *, seconds: float = 5, proxy: str | None = None) -> Unanswered:
    found = await Wire("Somewhere", client).ask("POST", url, "sendThat", within(seconds), proxy=proxy)
    assert isinstance(found, Unanswered)
    assert SECRET not in found.why
    return found


async def test_an_answer_is_returned_whatever_it_says(client: aiohttp.ClientSession) -> None:
    asked: list[str] = []

    async def away(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, text="elsewhere", headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", away)
    async with TestServer(app) as server:
        found = await Wire("Somewhere", client).ask("POST", server.make_url("/a"), "sendThat", within(5), data=b"x")
        file = await Wire("Somewhere", client).get(server.make_url("/b"), {"X-More": "1"})
        assert isinstance(file, aiohttp.ClientResponse)
        assert file.request_info.headers["Accept-Encoding"] == "identity"
        assert file.request_info.headers["X-More"] == "1"
        file.close()
    assert isinstance(found, HttpAnswer)
    assert (found.status, found.body, found.headers["Location"], file.status) == (302, b"elsewhere", "/elsewhere", 302)
    assert asked == ["/a", "/b"], "nobody follows a redirect"


async def test_a_file_comes_packed_as_it_was_sent(client: aiohttp.ClientSession) -> None:
    packed = gzip.compress(bytes(1_000_000))

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    app = web.Application()
    app.router.add_get("/", give)
    async with TestServer(app) as server:
        file = await Wire("Somewhere", client).get(server.make_url("/"), {})
        assert isinstance(file, aiohttp.ClientResponse)
        assert await file.read() == packed


async def test_request_to_an_unreachable_server_was_not_sent(client: aiohttp.ClientSession) -> None:
    found = await lost(client, f"http://127.0.0.1:9/{SECRET}")
    told = "Somewhere cannot be reached at 127.0.0.1:9 for sendThat: no connection can be made. Check"
    assert found == Unanswered(sent=False, why=f"{told} the network.")
    url = f"http://ann:{SECRET}@127.0.0.1:9/{SECRET}"
    found = await Wire("Somewhere", client, own_root="http://127.0.0.1:9/api/").ask("GET", url, "sendThat", within(5))
    assert found == Unanswered(sent=False, why=f"{told} api_root, which is set, and the network.")
    found = await lost(client, f"http://a.invalid/{SECRET}")
    told = "Somewhere cannot be reached at a.invalid for sendThat: its name cannot be found. Check the DNS of this"
    assert found == Unanswered(sent=False, why=f"{told} machine.")
    for address in (f"http://a.invalid:99999/{SECRET}", f"http://[{SECRET}"):
        assert not (await lost(client, address)).sent, address
    await client.close()
    assert await lost(client, "http://127.0.0.1:9/") == Unanswered(
        sent=False, why="Dragoman is stopping; sendThat was not sent."
    )
    file = await Wire("Somewhere", client).get(URL("http://127.0.0.1:9/"), {})
    assert file == Unanswered(sent=False, why="Dragoman is stopping; a file was not asked for.")


async def test_without_tls_nothing_was_done(client: aiohttp.ClientSession) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    for talk, seconds in ((plain, 10), (silent, 0.2)):
        async with connected(talk) as root:
            found = await lost(client, root.replace("http://", "https://") + f"/{SECRET}", seconds=seconds)
        assert not found.sent, found.why


async def test_request_refused_by_a_proxy_was_not_sent(client: aiohttp.ClientSession) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with served(refuse) as proxy:
        assert not (await lost(client, f"https://somewhere.example/{SECRET}", proxy=proxy)).sent


async def test_a_connection_that_ends_leaves_a_doubt(client: aiohttp.ClientSession) -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async def nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        return None

    for serve in (half, nothing):
        async with served(serve) as root:
            found = await lost(client, f"{root}/{SECRET}")
            assert found.sent
            assert found.why.startswith("No answer from Somewhere to sendThat: ")


async def test_an_answer_that_takes_too_long_is_a_doubt(client: aiohttp.ClientSession) -> None:
    over = asyncio.Event()

    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await over.wait()

    async with served(silent) as root:
        found = await lost(client, f"{root}/{SECRET}", seconds=0.1)
        over.set()
    assert found == Unanswered(sent=True, why="No answer from Somewhere to sendThat: it timed out.")


# --- files on their way out -------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is stuck after a second."""
    monkeypatch.setattr(http, "STUCK_AFTER_S", 1.0)
    monkeypatch.setattr(http, "LOOKED_AT_EVERY_S", 0.02)


async def sent(
    client: aiohttp.ClientSession, root: str, folder: Path, megabytes: int
) -> tuple[HttpAnswer | Unanswered, float]:
    """Send a file that may take 8 s a megabyte, and 0.5 s more. With what came of it, and after how long."""
    path, began = folder / "file", time.monotonic()
    with path.open("wb") as made:
        made.truncate(megabytes << 20)
    with path.open("rb") as file:
        limits = within(0.5, length_of(file))
        found = await Wire("Somewhere", client).ask("POST", f"{root}/{SECRET}", "sendThat", limits, file, data=file)
    return found, time.monotonic() - began


@pytest.mark.usefixtures("quick")
async def test_a_file_of_which_nothing_more_is_taken_is_given_up(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Its line may be cut in the middle: not for as long as all of it may take does the chat wait for it."""
    over = asyncio.Event()

    async def a_little(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(100_000)
        await over.wait()

    async with served(a_little) as root:
        found, took = await sent(client, root, tmp_path, 40)
        over.set()
    why = "Somewhere took no more of the file of sendThat for 1 s."
    assert found == Unanswered(sent=False, why=why, reached=True), "nobody can do anything with a part of it"
    assert 1 <= took < 5


@pytest.mark.usefixtures("quick")
async def test_upload_taken_at_once_keeps_its_full_time_limit(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """A server of one's own takes it all at once, and sends it on over a slow line before it answers."""

    async def all_of_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2 << 20)
        await asyncio.sleep(2.5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    async with served(all_of_it) as root:
        found, took = await sent(client, root, tmp_path, 2)
    assert isinstance(found, HttpAnswer), found
    assert took >= 2.5


@pytest.mark.usefixtures("quick")
async def test_upload_without_an_answer_in_time_is_in_doubt(
    client: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def a_second(_: int) -> float:
        return 1.0

    monkeypatch.setattr(http, "file_may_take_s", a_second)
    over = asyncio.Event()

    async def all_of_it(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(2 << 20)
        await over.wait()

    async with served(all_of_it) as root:
        found, took = await sent(client, root, tmp_path, 2)
        over.set()
    assert found == Unanswered(sent=True, why="No answer from Somewhere to sendThat: it timed out.")
    assert 1.5 <= took < 5


@pytest.mark.usefixtures("quick")
async def test_a_file_that_is_taken_slowly_arrives(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """In twice what it may be stuck for."""

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(40):
            await reader.readexactly(1 << 20)
            await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
        await writer.drain()

    async with served(slowly) as root:
        found, took = await sent(client, root, tmp_path, 40)
    assert isinstance(found, HttpAnswer)
    assert (found.status, found.body) == (200, b"done")
    assert took > 2
