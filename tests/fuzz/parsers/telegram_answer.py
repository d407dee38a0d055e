"""Answers of Telegram to our requests: a result, or an error whose meaning for the slot is known."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from telegram.error import TelegramError

from channels._shared import http
from channels.telegram import failures, request
from channels.telegram.failures import TelegramAct, judge
from channels.telegram.request import AiohttpRequest, TelegramDeclined, TelegramUnanswered
from gateway.errors import SendFailed
from tests.fuzz import givens

READS = (failures, http, request)
WORDS = (
    *(b"ok", b"result", b"error_code", b"description", b"parameters", b"retry_after", b"migrate_to_chat_id"),
    *(b"429", b"400", b"401", b"403", b"500", b"200", b"Too Many Requests", b"message is not modified", b"1e308"),
    *(b"Forbidden: bot was blocked by the user", b"Bad Request: can't parse entities", b"NaN", b"Infinity"),
)


def target(data: bytes) -> None:
    """The first line is the status, the rest the body."""
    status, body = givens.parts(data, 2)
    digits = status.decode("ascii", "replace")
    code = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 3 else 200
    client = givens.Answering(code, {}, body)
    asking = AiohttpRequest(cast("Any", client), givens.passed)
    try:
        asyncio.run(asking.raw("https://a.example/botT/sendMessage", {"text": "x"}))
    except (TelegramDeclined, TelegramUnanswered) as error:
        _judged(error)
    else:
        assert 200 <= code <= 299


def _judged(error: TelegramError) -> None:
    for act in TelegramAct:
        found = judge(error, act, chat_scope="chat", account_scope="account", now=givens.NOW)
        if isinstance(found, SendFailed):
            assert found.until is None or found.until > givens.NOW
            assert len(str(found)) < 1000
