"""Frames from the page: each becomes its request, or a `BadRequest` with words for its sender."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from typing import Any, cast

from aiohttp import web
from multidict import CIMultiDict

from gateway.domain.ids import OwnerName
from gateway.errors import BadRequest
from gateway.server.page import adapter, ids, inbound
from gateway.server.page.adapter import WebChannel
from gateway.server.page.inbound import Close, Older, Open, PagePress, Say
from tests.fuzz import givens

READS = (adapter, ids, inbound)
WORDS = (
    *(b"op", b"open", b"close", b"older", b"say", b"press", b"session", b"after", b"before", b"text", b"id", b"code"),
    *(b"handle", b"reason", b"main:ann", b"say-00001", b"9007199254740992"),
)
ANN = OwnerName("ann")


def target(data: bytes) -> None:
    text = data.decode("utf-8", "replace")  # a WebSocket refuses other text itself
    _framed(text)
    asyncio.run(_signing_in(data))


def _framed(text: str) -> None:
    try:
        frame = inbound.parse(inbound.unpack(text), ANN, givens.NOW)
    except BadRequest as error:
        givens.check_words(error, most=500)
        return
    match frame:
        case Open(session, _) | Close(session) | Older(session, _):
            assert givens.stored(session)
            assert len(session) <= 512
        case Say(id, message):
            givens.check_message(message)
            assert message.text.strip()
            assert id
        case PagePress(id, press):
            assert id
            assert len(press.handle) <= 128
            assert len(press.reason) <= 1000
            assert givens.stored(press.handle)
            assert givens.stored(press.reason)


class _Desk:
    codes: tuple[str, ...] = ()

    async def sign_in(self, code: str, source: str) -> None:
        assert code
        assert code.isascii()
        assert len(code) <= 200
        assert source


async def _signing_in(data: bytes) -> None:
    """The other thing that a page sends: a code, to be signed in."""
    request = givens.request("POST", "/api/signin", CIMultiDict(), data)
    with warnings.catch_warnings():  # as gateway.server.http leaves it
        warnings.simplefilter("ignore", web.NotAppKeyWarning)
        request.update({"source": "127.0.0.1"})
    assert (await _sign_in()(request)).status == 401


@cache
def _sign_in() -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    page = WebChannel(
        web_api=cast("Any", _Desk()),
        recordings=cast("Any", _Desk()),
        clock=givens.CLOCK,
        signed_in_for=timedelta(days=30),
        uploads=cast("Any", _Desk()),
        fail_point=givens.passed,
    )
    (found,) = [one for one in page.endpoints() if one.path == "/api/signin"]
    return found.handler
