"""Answers of Slack to our requests: a result, or an error whose meaning for the slot is known."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

from channels._shared import http
from channels.slack import failures, people, request
from channels.slack.bans import Bans
from channels.slack.failures import SlackAct, judge
from channels.slack.people import SlackDirectory
from channels.slack.request import SlackClient, SlackDeclined, SlackFailure, SlackUnanswered
from gateway.errors import SendFailed
from tests.fuzz import givens

READS = (failures, http, people, request)
WORDS = (
    *(b"ok", b"error", b"needed", b"response_metadata", b"messages", b"ratelimited", b"missing_scope", b"429"),
    *(b"user", b"team_id", b"is_bot", b"deleted", b"profile", b"display_name", b"channel", b"id", b"invalid_blocks"),
    *(b"channel_not_found", b"invalid_auth", b"message_not_found", b"fatal_error", b"T0AA", b"U0ANN", b"30"),
)


def target(data: bytes) -> None:
    """The first line is the status, the second `Retry-After`, the rest the body."""
    status, after, body = givens.parts(data, 3)
    code = int(status) if status.isdigit() and len(status) == 3 else 200
    headers = {"Retry-After": after.decode("utf-8", "surrogateescape")}
    client = SlackClient(
        "xoxb-1",
        "https://a.example/api/",
        cast("Any", givens.Answering(code, headers, body)),
        givens.passed,
        Bans("main", givens.NoNotes(), givens.CLOCK),
    )
    asyncio.run(_asked(client))


async def _asked(client: SlackClient) -> None:
    for method in ("chat.postMessage", "files.info"):
        try:
            await client.call(method, {"channel": "C0CC"})
        except (SlackDeclined, SlackUnanswered) as error:
            _judged(error)
    known = SlackDirectory(client, givens.CLOCK)
    standing = await known.standing("T0AA", "U0ANN")
    assert len(standing.name) < 70_000
    assert len(await known.direct("U0ANN")) < 65


def _judged(error: SlackFailure) -> None:
    for act in SlackAct:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        found = judge(error, act, chat_scope="chat", account_scope="account", now=now, silent_s=2.0)
        if isinstance(found, SendFailed):
            assert found.until is None or found.until > now
            assert len(str(found)) < 2000
