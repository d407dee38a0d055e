"""Messages on Slack's socket: every envelope is acknowledged, and only a goodbye ends the connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any, cast

import aiohttp

from channels.slack import socket
from channels.slack.socket import Sockets
from channels.slack.webhook import SlackAck
from tests.fuzz import givens

READS = (socket,)
WORDS = (
    *(b"type", b"hello", b"disconnect", b"reason", b"link_disabled", b"envelope_id", b"payload", b"events_api"),
    *(b"accepts_response_payload", b"retry_attempt", b"retry_reason", b"refresh_requested"),
)


class _End(BaseException):
    """The connection is over, and that is what was waited for."""


class _Socket:
    closed = False

    def __init__(self, messages: list[str]) -> None:
        self.messages = [json.dumps({"type": "hello"}), *messages]
        self.sent: list[str] = []

    async def receive(self) -> aiohttp.WSMessage:
        await asyncio.sleep(0)
        if not self.messages:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, self.messages.pop(0), "")

    async def send_str(self, text: str) -> None:
        text.encode()
        self.sent.append(text)

    async def close(self) -> None: ...


class _Client:
    def __init__(self, line: _Socket) -> None:
        self._line = line

    async def ws_connect(self, *_: object, **__: object) -> _Socket:
        return self._line


def target(data: bytes) -> None:
    """Each line is a message."""
    line = _Socket([one.decode("utf-8", "replace") for one in data.split(b"\n")[:50]])
    logging.disable()
    try:
        asyncio.run(_served(line))
    finally:
        logging.disable(logging.NOTSET)
    for one in line.sent:
        assert isinstance(json.loads(one)["envelope_id"], str)


async def _served(line: _Socket) -> None:
    ends: list[Exception | None] = []

    async def bear(error: Exception | None, _stood_s: float) -> None:
        ends.append(error)
        raise _End

    async def take(_payload: object) -> SlackAck:
        return SlackAck(stored=True, body={"challenge": "x"})

    def opened() -> Awaitable[str]:
        return asyncio.sleep(0, "wss://a.example")

    sockets = Sockets(
        name="main",
        open=opened,
        back_off=bear,
        reset_failures=lambda: None,
        take=take,
        client=cast("Any", _Client(line)),
        clock=givens.CLOCK,
        fail_point=givens.passed,
    )
    try:
        await sockets.run()
    except* _End:
        pass
    assert ends
