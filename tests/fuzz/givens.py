"""Shared parts of the parsers' targets: conversion of bytes, and people and clocks that never change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.http import HttpVersion11, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway.domain.messages import Inbound, Press, Refused
from gateway.domain.routes import Accepted
from gateway.domain.waits import Pressed, PressResult
from tests.support.clock import FakeClock

CLOCK = FakeClock()
NOW = CLOCK.now()
HEADER_AT_MOST = 8190
"""Bytes of a header's value; aiohttp refuses a longer one itself."""


def text(data: bytes) -> str:
    """Any text there is, halves of characters too, which JSON and the environment can bring."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def parts(data: bytes, count: int, by: bytes = b"\n") -> list[bytes]:
    """So many parts; the last one has the rest, missing ones are empty."""
    found = data.split(by, count - 1)
    return found + [b""] * (count - len(found))


def request(method: str, path: str, headers: CIMultiDict[str], body: bytes = b"") -> web.Request:
    """A request as aiohttp hands it on, in a running loop; headers may have bytes that are no text."""
    loop = asyncio.get_running_loop()
    around = cast("Any", _Around())
    stream = StreamReader(around, 2**16, loop=loop)
    stream.feed_data(body)
    stream.feed_eof()
    told = CIMultiDictProxy(headers)
    message = RawRequestMessage(method, path, HttpVersion11, told, (), False, None, False, False, URL(path))
    return web.Request(message, stream, around, around, around, loop)


class _Around:
    """Surroundings of a request, without a reader of the answer."""

    transport = ssl_context = peername = sockname = length = None
    writer = property(lambda self: self)
    output_size = 0
    _reading_paused = False

    def pause_reading(self, **_: object) -> None: ...

    def resume_reading(self, **_: object) -> None: ...

    def send_headers(self) -> None: ...

    async def write_headers(self, *_: object) -> None: ...

    async def write(self, *_: object) -> None: ...

    async def write_eof(self, *_: object) -> None: ...


def stored(value: str) -> bool:
    """Return True if a store can keep it, and return it unchanged."""
    return "\x00" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def check_words(error: Exception, most: int = 2000, *, sent: bool = True) -> None:
    """Check a refusal in words: it has words, they are bounded, and those that are sent can be encoded."""
    assert str(error), "a refusal without words"
    assert len(str(error)) <= most, "a refusal of any length"
    assert not sent or str(error).encode()


def check_message(message: Inbound) -> None:
    """Check a message from any channel."""
    place = message.conversation
    for one in (message.event_key, message.text, message.name, message.quoted, message.unread, message.reply_to):
        assert stored(one), "a text that no store can keep"
    for one in (place.account, place.chat, place.thread, message.principal, *message.also_called):
        assert stored(one), "an id that no store can keep"
        assert len(one) < 300, "an id of any length"
    assert message.event_key, "no key to know it by again"
    assert place.chat, "nowhere"
    assert ":" in message.principal, "nobody"
    assert message.sent_at <= NOW, "from the future"
    assert message.sent_at.tzinfo is not None, "a naive time"
    assert message.name.isprintable(), "a name that hides something"
    assert len(message.name) <= 64, "a name of any length"
    assert max(len(message.quoted), len(message.text)) <= 250_000, "a text of any length"


def check_press(press: Press) -> None:
    """Check a press."""
    for one in (press.event_key, press.principal, press.handle, press.reason, press.conversation.key):
        assert stored(one), "a text that no store can keep"
    assert press.handle, "a press of nothing"
    assert len(press.reason) <= 1000, "a reason of any length"


def check_refused(refused: Refused) -> None:
    """Check a refusal: its row can be stored and is small."""
    assert refused.event_key
    assert stored(refused.event_key)
    assert len(refused.event_key) < 100
    assert refused.detail
    assert stored(refused.detail)
    assert len(refused.detail) < 300
    assert len(refused.raw) <= 65_536
    assert refused.raw.isascii()


class BrokenSink:
    """`ports.Sink` that fails at every message and press, and keeps refused events."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    async def message(self, message: Inbound) -> Accepted | None:
        raise KeyError(message.event_key)

    async def press(self, press: Press) -> Pressed:
        raise KeyError(press.event_key)

    async def refuse(self, refused: Refused) -> None:
        check_refused(refused)
        self.refused.append(refused)


class GoodSink(BrokenSink):
    """`ports.Sink` that accepts and checks everything."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    async def message(self, message: Inbound) -> Accepted | None:
        check_message(message)
        self.taken += 1
        return None

    async def press(self, press: Press) -> Pressed:
        check_press(press)
        self.taken += 1
        return Pressed(result=PressResult.NOT_VALID)


class NoNotes:
    """An empty key-value store of a channel."""

    async def read(self) -> Mapping[str, str]:
        return {}

    async def get(self, key: str) -> str | None:
        return None

    async def keep(self, key: str, value: str, ttl: timedelta | None = None) -> None: ...


async def passed(_: str) -> None:
    """A fail point that is passed."""


class Answering:
    """An HTTP client whose every request is answered the same."""

    closed = False

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self._body = status, headers, body

    def request(self, *_: object, **__: object) -> Answering:
        return self

    async def __aenter__(self) -> Answering:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def read(self) -> bytes:
        return self._body
