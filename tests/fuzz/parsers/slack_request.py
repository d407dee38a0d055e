"""A call of Slack's by HTTP: only what the signing secret signed lately is read, and nothing is raised at the rest."""

from __future__ import annotations

import asyncio

from multidict import CIMultiDict

from channels._shared import webhooks
from channels.slack import webhook
from channels.slack.webhook import SIGNATURE, TIMESTAMP, SlackAck, Webhook, signature
from tests.fuzz import givens

READS = (webhooks, webhook)
WORDS = (b"v0=", b"v1=", b"1767225600", b"1767225301", b"1767225299", b"0" * 64, b"application/json", b"charset=")
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


def target(data: bytes) -> None:
    """The first line is the timestamp, the second the signature, the third the type, the rest the body."""
    at, sign, kind, body = givens.parts(data, 4)
    headers = CIMultiDict({TIMESTAMP: _header(at), SIGNATURE: _header(sign), "Content-Type": _header(kind)})
    status, taken = asyncio.run(_asked(headers, body))
    assert (status, taken) == (401, []) or _header(sign) == signature(SECRET.encode(), _header(at), body)
    now = str(int(givens.NOW.timestamp()))
    headers.update({TIMESTAMP: now, SIGNATURE: signature(SECRET.encode(), now, body)})
    status, taken = asyncio.run(_asked(headers, body))
    assert (status, len(taken)) == (200, 1), "what Slack signed is not taken"


def _header(data: bytes) -> str:
    return data[: givens.HEADER_AT_MOST].decode("utf-8", "surrogateescape")  # as aiohttp does


async def _asked(headers: CIMultiDict[str], body: bytes) -> tuple[int, list[object]]:
    taken: list[object] = []

    async def take(payload: object) -> SlackAck:
        taken.append(payload)
        return SlackAck(stored=True)

    web_ = Webhook(SECRET, take, givens.CLOCK, givens.passed)
    response = await web_.handle(givens.request("POST", "/slack/main", headers, body))
    return response.status, taken
