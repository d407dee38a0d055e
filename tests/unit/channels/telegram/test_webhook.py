"""The webhook endpoint: the secret first, then 200 only once stored."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from multidict import MultiDict

from channels._shared.webhooks import BODY_AT_MOST
from channels.telegram.webhook import HEADER, Webhook
from tests.unit.channels.telegram.scene import SECRET, message

GOOD = {HEADER: SECRET}
BODY = json.dumps(message(1, "hello"))


@dataclass(slots=True, kw_only=True)
class Place:
    """The endpoint behind a server, and what it handed on."""

    client: TestClient[web.Request, web.Application] = field(init=False)
    updates: list[object] = field(default_factory=list[object])
    points: list[str] = field(default_factory=list[str])
    stores: bool = True

    async def take(self, update: object) -> bool:
        self.updates.append(update)
        return self.stores

    async def passed(self, point: str) -> None:
        self.points.append(point)

    async def post(
        self, body: str | bytes | io.BytesIO = BODY, headers: Mapping[str, str] | MultiDict[str] = GOOD
    ) -> int:
        async with self.client.post("/telegram/main", data=body, headers=headers) as response:
            return response.status


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    found = Place()
    app = web.Application(client_max_size=BODY_AT_MOST)
    app.router.add_post("/telegram/main", Webhook(SECRET, found.take, found.passed).handle)
    async with TestClient(TestServer(app)) as found.client:
        yield found


async def test_an_update_is_taken_and_answered_once_it_is_stored(place: Place) -> None:
    assert await place.post() == 200
    assert place.updates == [json.loads(BODY)]
    assert place.points == ["J3"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {HEADER: ""},
        {HEADER: SECRET[:-1]},
        {HEADER: SECRET + "x"},
        {HEADER: SECRET.upper()},
        {"Authorization": SECRET},
        MultiDict([(HEADER, SECRET), (HEADER, "other")]),
    ],
)
async def test_without_the_secret_nothing_is_taken(place: Place, headers: dict[str, str]) -> None:
    assert await place.post(headers=headers) == 401
    assert place.updates == []


async def first_line(place: Place, *headers: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(place.client.host, place.client.port)
    writer.write(b"\r\n".join([b"POST /telegram/main HTTP/1.1", b"Host: x", *headers, b"", b""]))
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line


async def test_the_secret_is_asked_for_before_the_body_is_read(place: Place) -> None:
    assert b" 401 " in await first_line(place, b"Content-Length: 100")  # of which not one byte comes


async def test_a_secret_that_is_no_text_is_wrong(place: Place) -> None:
    assert b" 401 " in await first_line(place, b"Content-Length: 0", HEADER.encode() + b": \xff\xfe")


async def test_unstored_update_is_answered_with_503(place: Place) -> None:
    place.stores = False
    assert await place.post() == 503
    assert place.points == []


async def test_too_long_update_is_refused(place: Place) -> None:
    assert await place.post(io.BytesIO(b"x" * (BODY_AT_MOST + 1))) == 413
    assert place.updates == []


async def test_too_long_chunked_update_is_refused(place: Place) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(BODY_AT_MOST // 65_536 + 1):
            yield b"x" * 65_536

    async with place.client.post("/telegram/main", data=chunks(), headers=GOOD) as response:
        assert response.status == 413
    assert place.updates == []


@pytest.mark.parametrize("body", [b"", b"not json", b"\xff\xfe", b"[" * 100_000])
async def test_malformed_json_is_handed_on_as_it_is(place: Place, body: bytes) -> None:
    assert await place.post(body) == 200
    assert place.updates == [body.decode(errors="replace")]


def test_a_webhook_without_a_secret_is_none() -> None:
    place = Place()
    with pytest.raises(ValueError, match="secret"):
        Webhook("", place.take, place.passed)
