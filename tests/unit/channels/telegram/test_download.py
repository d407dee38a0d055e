"""Downloads from a Telegram on loopback. The URLs contain the bot's token."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.telegram.adapter import TelegramChannel
from channels.telegram.limits import DOWNLOAD_BYTES
from gateway.domain.messages import Attachment
from gateway.errors import FetchFailed
from tests.support.bodies import answering, endless, half
from tests.support.surroundings import Taken
from tests.support.telegram import TOKEN, FakeTelegram, Fault, Shown, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.scene import Scene
from tests.unit.channels.telegram.test_adapter import ANN, DIRECT, once

DATA = bytes(range(256)) * 1000


def named(message: Shown, **other: Any) -> Attachment:
    file = message.document
    assert file is not None
    return replace(Attachment(source=file.file_id, name=file.name, media_type="", size=len(file.content)), **other)


async def failed(channel: TelegramChannel, file: Attachment, write: Taken | None = None) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await channel.fetch(DIRECT, file, write or Taken())
    told = f"{caught.value!r} {caught.value.message} {caught.value.cure} {caught.value.__context__!r}"
    assert TOKEN.partition(":")[2] not in told
    assert "http" not in told
    return caught.value


# --- what works ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["photo", "voice", "video", "document"])
async def test_a_file_comes_in_pieces_and_unpacked(telegram: FakeTelegram, channel: TelegramChannel, kind: str) -> None:
    taken = Taken()
    await channel.fetch(DIRECT, named(telegram.attach(ANN, kind, DATA)), taken)
    assert taken.data == DATA
    assert max(map(len, taken.pieces)) <= 65_536
    assert [asked.encoding for asked in telegram.hub.fetched] == ["identity"]


async def test_repeated_fetch_is_safe_and_an_empty_file_has_no_bytes(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    file, taken = named(telegram.attach(ANN, "document", b"")), Taken()
    await channel.fetch(DIRECT, file, taken)
    await channel.fetch(DIRECT, file, taken)
    assert (taken.data, len(telegram.hub.fetched), len(telegram.calls("getFile"))) == (b"", 2, 2)


@pytest.mark.parametrize("path", ["documents/поле_1.pdf", "a/b/c/file_1.tar.gz", "..x/y..", "@file_7"])
async def test_places_below_the_servers_files_are_asked_as_they_are(
    telegram: FakeTelegram, channel: TelegramChannel, path: str
) -> None:
    sent = telegram.attach(ANN, "document", DATA)
    assert sent.document is not None
    sent.document.path = path
    telegram.hub.give, taken = answering(200, DATA), Taken()
    await channel.fetch(DIRECT, named(sent), taken)
    assert (taken.data, [asked.path for asked in telegram.hub.fetched]) == (DATA, [path])


async def test_a_page_that_somebody_sent_comes_as_it_is(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    sent = telegram.attach(ANN, "document", b"<p>hi")
    assert sent.document is not None
    sent.document.path = "documents/file_1.html"
    telegram.hub.give, taken = answering(200, b"<p>hi", "text/html"), Taken()
    await channel.fetch(DIRECT, named(sent), taken)
    assert taken.data == b"<p>hi"


# --- where Telegram says that a file is -----------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "retryable", "cure"),
    [
        (faults.error(400, "Bad Request: file is too big"), False, "Send a smaller one"),
        (faults.error(400, "Bad Request: wrong file_id or the file is temporarily unavailable"), True, ""),
        (faults.error(400, "Bad Request: invalid file_id"), False, ""),
        (faults.error(401, "Unauthorized"), False, "BotFather"),
        (faults.too_many(7), True, ""),
        (faults.broken(500), True, ""),
        (faults.page(502), True, ""),
        (faults.drop(), True, ""),
        (faults.cut(), True, ""),
    ],
)
async def test_failed_file_lookup_is_retryable_where_that_helps(
    telegram: FakeTelegram, channel: TelegramChannel, fault: Fault, retryable: bool, cure: str
) -> None:
    telegram.script(once("getFile", fault))
    error = await failed(channel, named(telegram.attach(ANN, "document")))
    assert (error.retryable, cure in error.cure) == (retryable, True)
    assert telegram.hub.fetched == []


async def test_a_file_that_is_larger_than_said_is_refused_by_telegram(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    large = telegram.attach(ANN, "document", bytes(DOWNLOAD_BYTES + 1))
    assert "20 MB" in (await failed(channel, named(large, size=5))).message


@pytest.mark.parametrize(
    "path",
    [
        "",
        "../secret",
        "documents/../../secret",
        "documents/..",
        "./documents/file",
        "documents//file",
        "documents/",
        "https://evil.example/file",
        "//evil.example/file",
        "documents\\file",
        "documents/file?x=1",
        "documents/file#x",
        "documents/%2e%2e/file",
        "documents/two\nlines",
        "documents/\ud800",
        "x" * 2_000,
    ],
)
async def test_a_place_that_is_none_is_not_asked(telegram: FakeTelegram, channel: TelegramChannel, path: str) -> None:
    sent = telegram.attach(ANN, "document")
    assert sent.document is not None
    sent.document.path = path
    await failed(channel, named(sent))
    assert telegram.hub.fetched == []


@pytest.mark.parametrize("path", ["/var/lib/telegram-bot-api/x/documents/file_1.pdf", "C:\\bot\\file_1.pdf", "c:/x"])
async def test_server_without_local_mode_is_named_with_its_cure(
    telegram: FakeTelegram, channel: TelegramChannel, path: str
) -> None:
    sent = telegram.attach(ANN, "document")
    assert sent.document is not None
    sent.document.path = path
    error = await failed(channel, named(sent))
    assert (error.retryable, "--local" in error.cure) == (False, True)
    assert telegram.hub.fetched == []


@pytest.mark.parametrize("result", [None, [], "x", {}, {"file_path": 7}, {"file_path": "a", "file_size": "x"}])
async def test_an_answer_that_is_none_is_not_believed(
    telegram: FakeTelegram, channel: TelegramChannel, result: object
) -> None:
    told = web.json_response({"ok": True, "result": result}).body
    assert isinstance(told, bytes)
    telegram.script(once("getFile", Fault(acts=False, status=200, body=told)))
    telegram.hub.give = answering(404)
    assert (await failed(channel, named(telegram.attach(ANN, "document")))).retryable


async def test_a_file_of_an_account_that_is_not_there_is_not_asked_for(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    with pytest.raises(FetchFailed, match="no Telegram account 'other'"):
        await channel.fetch(replace(DIRECT, account="other"), named(telegram.attach(ANN, "document")), Taken())
    assert telegram.log == []


# --- what comes in place of the bytes -------------------------------------------------------------


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (404, True), (500, True)])
async def test_another_answer_is_not_the_file(
    telegram: FakeTelegram, channel: TelegramChannel, status: int, retryable: bool
) -> None:
    telegram.hub.give, taken = answering(status, b'{"ok":false}'), Taken()
    assert (await failed(channel, named(telegram.attach(ANN, "document")), taken)).retryable is retryable
    assert taken.pieces == []


async def test_a_web_page_is_not_the_file(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.hub.give, taken = answering(200, b"<html>", "text/html"), Taken()
    assert "web page" in (await failed(channel, named(telegram.attach(ANN, "document")), taken)).message
    assert taken.pieces == []


async def test_a_body_that_is_cut_may_be_asked_for_again(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.hub.give = half
    error = await failed(channel, named(telegram.attach(ANN, "document", DATA)))
    assert (error.retryable, error.message) == (True, "The file broke off after 1,000 of 256,000 bytes.")


async def test_writer_may_end_an_endless_body(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.hub.give, taken = endless, Taken(full_at=1_000_000)
    with pytest.raises(OSError, match="the disk is full"):
        await channel.fetch(DIRECT, named(telegram.attach(ANN, "document", b"a few bytes")), taken)
    assert len(taken.data) < 1_100_000


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(telegram: FakeTelegram, channel: TelegramChannel, status: int) -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path_qs)
        return web.Response(body=b"the file")

    app = web.Application()
    app.router.add_get("/{path:.*}", elsewhere)
    async with TestServer(app) as server:
        telegram.hub.give = answering(status, Location=str(server.make_url(f"/bot{TOKEN}/x")))
        error = await failed(channel, named(telegram.attach(ANN, "document")))
    assert (error.retryable, asked) == (False, [])


async def test_failed_download_logs_nothing_of_the_address(
    telegram: FakeTelegram, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = named(telegram.attach(ANN, "document"))
    scene.api_root = "http://127.0.0.1:9"
    channel = TelegramChannel(scene.context(), QUICK)
    caplog.clear()  # the library tells where it begins; the daemon hides what is secret in that
    assert (await failed(channel, file)).retryable
    await scene.client.close()
    assert (await failed(channel, file)).retryable
    assert TOKEN.partition(":")[2] not in caplog.text


async def test_a_line_that_is_cut_before_the_answer_may_be_asked_again(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    async def give(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    telegram.hub.give = give
    assert (await failed(channel, named(telegram.attach(ANN, "document")))).retryable
