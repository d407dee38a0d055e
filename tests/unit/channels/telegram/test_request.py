"""The transport over real sockets: outcome of failures, and no token in any error."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from telegram import InputFile
from telegram.error import TelegramError

from channels.telegram.request import (
    AiohttpRequest,
    Failing,
    TelegramBot,
    TelegramDeclined,
    TelegramNotSent,
    TelegramUnanswered,
)
from tests.support.patience import PATIENCE_S

TOKEN = "4242:aVerySecretTokenOfTheTests"
HALF = TOKEN.partition(":")[2]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def pass_by(_point: str) -> None:
    """No fail point is armed."""


@asynccontextmanager
async def bot(
    root: str, *, within_s: float = 5.0, point: Callable[[str], Awaitable[None]] = pass_by, connected: bool = False
) -> AsyncGenerator[TelegramBot]:
    """A sender. `connected`: it has a connection to an `api` already, which may take longer than its `within_s`."""
    async with aiohttp.ClientSession() as client:
        if connected:
            async with client.get(f"{root}/connected") as answer:
                await answer.read()
        request = AiohttpRequest(client, point, answer_within_s=within_s)
        yield TelegramBot(TOKEN, root, request, request)
        assert not client.closed


@asynccontextmanager
async def api(handler: Handler) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_get("/connected", answering(200, ""))
    app.router.add_route("*", "/{rest:.*}", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def raw(talk: Talk) -> AsyncGenerator[str]:
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()
        await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_S):
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await served.wait()


def answering(status: int, body: str | dict[str, Any]) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text)

    return handler


async def failing(root: str, **how: Any) -> TelegramError:
    """Send a message and return what it failed with, having looked for the token everywhere."""
    async with bot(root, **how) as sender:
        with pytest.raises(TelegramError) as caught:
            await sender.call("sendMessage", {"chat_id": 1, "text": "hello"})
    return _told(caught.value)


def _told(error: TelegramError) -> TelegramError:
    seen = "".join([str(error), repr(error), *traceback.format_exception(error), *_contexts(error)])
    assert HALF not in seen
    assert "sendMessage" in str(error)
    return error


def _contexts(error: BaseException) -> list[str]:
    found: list[str] = []
    inner = error.__context__ or error.__cause__
    while inner is not None:
        found += [str(inner), repr(inner), repr(inner.args)]
        inner = inner.__context__ or inner.__cause__
    return found


# --- not sent -----------------------------------------------------------------------------------


async def test_nobody_listening_means_not_sent() -> None:
    assert isinstance(await failing(f"http://127.0.0.1:{unused_port()}"), TelegramNotSent)


# --- not answered -------------------------------------------------------------------------------


async def test_a_connection_closed_after_the_request_is_in_doubt() -> None:
    async def close(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(100)

    async with raw(close) as root:
        assert isinstance(await failing(root), TelegramUnanswered)


async def test_a_kept_connection_that_the_server_closed_is_in_doubt() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"ok": True, "result": True}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")  # the second request comes over the same connection, and is read

    async with raw(once) as root, bot(root) as sender:
        await sender.send_chat_action(1, "typing")
        with pytest.raises(TelegramUnanswered):
            await sender.send_message(1, "hello")


async def test_no_answer_in_time_is_in_doubt() -> None:
    over = asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async with api(slow) as root:
        assert isinstance(await failing(root, within_s=0.2, connected=True), TelegramUnanswered)
        over.set()


@pytest.mark.parametrize("stored", [False, True])
async def test_a_file_is_given_time_by_its_length(tmp_path: Path, stored: bool) -> None:
    """Over a line of a megabit 45 MB take six minutes; whatever is short has its answer as soon as ever."""
    (tmp_path / "a.bin").write_bytes(bytes(400_000))

    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.6)
        chat = {"id": 1, "type": "private"}
        return web.json_response({"ok": True, "result": {"message_id": 7, "date": 0, "chat": chat}})

    async with api(slow) as root, bot(root, within_s=0.1, connected=True) as sender:
        with (tmp_path / "a.bin").open("rb") as content:
            file = InputFile(content if stored else content.read(), filename="a.bin", read_file_handle=not stored)
            assert (await sender.send_document(1, file)).message_id == 7
        with pytest.raises(TelegramUnanswered):
            await sender.send_document(1, InputFile(b"short", filename="b.txt"))


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_server_error_is_in_doubt(status: int) -> None:
    async with api(answering(status, {"ok": False, "error_code": status, "description": "oops"})) as root:
        assert isinstance(await failing(root), Failing)


@pytest.mark.parametrize("status", [302, 400, 403, 404, 413, 429])
async def test_a_refusal_in_a_strangers_words_is_in_doubt(status: int) -> None:
    async with api(answering(status, f"<html>no /bot{TOKEN}/sendMessage here</html>")) as root:
        assert isinstance(await failing(root), TelegramUnanswered)


async def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def away(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with api(away) as root:
        assert isinstance(await failing(root), TelegramUnanswered)
    assert asked == [f"/bot{TOKEN}/sendMessage"]


@pytest.mark.parametrize("body", ["", "not json", "[]", "true", '{"ok": true}', "[" * 100_000])
async def test_a_good_status_with_no_result_is_in_doubt_and_not_logged(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with api(answering(200, body)) as root, bot(root) as sender:
        with caplog.at_level(logging.WARNING), pytest.raises(TelegramUnanswered):
            await sender.send_message(1, "hello")
    assert caplog.records == []


# --- declined -----------------------------------------------------------------------------------


async def test_a_refusal_keeps_telegrams_words() -> None:
    body = {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}
    async with api(answering(400, body)) as root:
        error = await failing(root)
    assert isinstance(error, TelegramDeclined)
    assert (error.code, error.description) == (400, "Bad Request: chat not found")


async def test_a_flood_says_for_how_long() -> None:
    body = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 7}}
    async with api(answering(429, body)) as root:
        error = await failing(root)
    assert isinstance(error, TelegramDeclined)
    assert error.retry_after_s == 7


async def test_a_group_that_moved_says_where() -> None:
    body = {
        "ok": False,
        "error_code": 400,
        "description": "Bad Request: group chat was upgraded to a supergroup chat",
        "parameters": {"migrate_to_chat_id": -100123},
    }
    async with api(answering(400, body)) as root:
        error = await failing(root)
    assert isinstance(error, TelegramDeclined)
    assert error.moved_to == "-100123"


async def test_a_token_that_is_not_accepted_is_a_refusal() -> None:
    body = {"ok": False, "error_code": 401, "description": "Unauthorized"}
    async with api(answering(401, body)) as root:
        error = await failing(root)
    assert isinstance(error, TelegramDeclined)
    assert error.code == 401


async def test_parameters_of_the_wrong_kind_are_not_believed() -> None:
    body = {"ok": False, "error_code": 429, "description": None, "parameters": {"retry_after": "soon"}}
    async with api(answering(429, body)) as root:
        error = await failing(root)
    assert isinstance(error, TelegramDeclined)
    assert error.retry_after_s == 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, TelegramUnanswered),
        (400, TelegramDeclined),
        (401, TelegramDeclined),
        (409, TelegramDeclined),
        (502, Failing),
    ],
)
async def test_the_methods_of_the_library_fail_alike(status: int, kind: type[TelegramError]) -> None:
    body = {"ok": False, "error_code": status, "description": "no"}
    async with api(answering(status, body)) as root, bot(root) as sender:
        with pytest.raises(TelegramError) as caught:
            await sender.send_document(1, b"\x00", filename="a.txt")
    assert type(caught.value) is kind
    assert HALF not in "".join([*traceback.format_exception(caught.value), *_contexts(caught.value)])


async def test_the_bot_keeps_its_token_to_itself() -> None:
    async with bot("http://127.0.0.1:9") as sender:
        assert HALF not in f"{sender!r} {sender}"


# --- what is sent -------------------------------------------------------------------------------


async def test_a_result_comes_as_it_is_and_parameters_go_as_they_are() -> None:
    seen: list[tuple[str, str, Any]] = []

    async def keep(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, request.content_type, await request.json()))
        return web.json_response({"ok": True, "result": [{"odd": 1}]})

    given = {"offset": 7, "allowed_updates": ["message"]}
    async with api(keep) as root, bot(f"{root}/{{token}}") as sender:
        assert await sender.call("getUpdates", given) == [{"odd": 1}]
    assert seen == [(f"/{{token}}/bot{TOKEN}/getUpdates", "application/json", given)]


async def test_lone_surrogate_does_not_block_a_message() -> None:
    async with api(answering(200, {"ok": True, "result": True})) as root, bot(root) as sender:
        assert await sender.call("sendMessage", {"text": "\ud83d"}) is True


async def test_parameters_go_as_json_and_files_as_a_form() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    async def keep(request: web.Request) -> web.StreamResponse:
        form = await request.json() if request.content_type == "application/json" else await request.post()
        fields = {k: v.file.read() if isinstance(v, web.FileField) else v for k, v in form.items()}
        seen.append((request.content_type, fields))
        message = {"message_id": 5, "date": 0, "chat": {"id": 1, "type": "private"}}
        return web.json_response({"ok": True, "result": message})

    async with api(keep) as root, bot(root) as sender:
        await sender.send_message(1, "größer & mehr")
        await sender.send_document(1, InputFile(b"\x00whole", filename="whole.txt"), caption="all of it")
    assert seen[0] == ("application/json", {"chat_id": 1, "text": "größer & mehr"})
    assert seen[1] == ("multipart/form-data", {"chat_id": "1", "caption": "all of it", "document": b"\x00whole"})


async def test_create_passes_its_fail_point_before_its_answer_is_read() -> None:
    points: list[str] = []

    async def note(point: str) -> None:
        points.append(point)

    message = {"message_id": 5, "date": 0, "chat": {"id": 1, "type": "private"}}
    async with api(answering(200, {"ok": True, "result": message})) as root, bot(root, point=note) as sender:
        await sender.call("sendMessage", {"chat_id": 1, "text": "hello"})
        assert points == ["J17"]
        await sender.call("editMessageText", {"chat_id": 1, "message_id": 5, "text": "more"})
        assert points == ["J17"]
        await sender.send_document(1, b"whole", filename="whole.txt")
    assert points == ["J17", "J17"]
