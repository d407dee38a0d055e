"""The HTTP endpoint: the signature over the raw body first, then 200 only once stored."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from multidict import CIMultiDict

from channels._shared.webhooks import BODY_AT_MOST
from channels.slack.webhook import AGE_S, SIGNATURE, TIMESTAMP, SlackAck, Webhook, payload
from tests.support.clock import FakeClock

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
EVENT = json.dumps({"type": "event_callback", "event": {"type": "message", "text": "héllo"}}, ensure_ascii=False)


@dataclass(slots=True, kw_only=True)
class Place:
    """The endpoint behind a server, and what it handed on."""

    client: TestClient[web.Request, web.Application] = field(init=False)
    taken: list[object] = field(default_factory=list[object])
    points: list[str] = field(default_factory=list[str])
    clock: FakeClock = field(default_factory=FakeClock)
    answer: SlackAck = field(default_factory=lambda: SlackAck(stored=True))

    async def take(self, payload: object) -> SlackAck:
        self.taken.append(payload)
        return self.answer

    async def passed(self, point: str) -> None:
        self.points.append(point)

    def headers(self, body: bytes, *, ago_s: float = 0, secret: str = SECRET) -> dict[str, str]:
        at = str(int(self.clock.now().timestamp() - ago_s))
        digest = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        return {TIMESTAMP: at, SIGNATURE: f"v0={digest}", "Content-Type": "application/json"}

    async def post(
        self, body: str | bytes = EVENT, headers: Mapping[str, str] | None = None, **more: str
    ) -> tuple[int, bytes]:
        data = body.encode() if isinstance(body, str) else body
        given = CIMultiDict(self.headers(data) if headers is None else headers)
        given.update({name.replace("_", "-"): value for name, value in more.items()})
        async with self.client.post("/slack/main", data=io.BytesIO(data), headers=given) as response:
            return response.status, await response.read()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    found = Place()
    app = web.Application(client_max_size=BODY_AT_MOST)
    app.router.add_post("/slack/main", Webhook(SECRET, found.take, found.clock, found.passed).handle)
    async with TestClient(TestServer(app)) as found.client:
        yield found


async def test_an_event_is_taken_and_answered_once_it_is_stored(place: Place) -> None:
    assert await place.post() == (200, b"")
    assert place.taken == [json.loads(EVENT)]
    assert place.points == ["J3"]


async def test_unstored_event_is_answered_with_503(place: Place) -> None:
    place.answer = SlackAck(stored=False)
    status, _ = await place.post()
    assert status == 503
    assert place.points == []


async def test_an_answer_with_a_body_is_json(place: Place) -> None:
    place.answer = SlackAck(stored=True, body={"challenge": "abc"})
    status, body = await place.post()
    assert (status, json.loads(body)) == (200, {"challenge": "abc"})


async def test_a_repetition_is_taken_like_everything_else(place: Place) -> None:
    status, _ = await place.post(X_Slack_Retry_Num="1", X_Slack_Retry_Reason="http_timeout")
    assert status == 200
    assert len(place.taken) == 1


@pytest.mark.parametrize("ago_s", [AGE_S, -AGE_S, AGE_S - 1])
async def test_a_signature_of_the_last_five_minutes_is_good(place: Place, ago_s: float) -> None:
    assert (await place.post(headers=place.headers(EVENT.encode(), ago_s=ago_s)))[0] == 200


@pytest.mark.parametrize("ago_s", [AGE_S + 1, -AGE_S - 1, 1e9])
async def test_an_older_one_or_one_of_the_future_is_not(place: Place, ago_s: float) -> None:
    assert (await place.post(headers=place.headers(EVENT.encode(), ago_s=ago_s)))[0] == 401
    assert place.taken == []


@pytest.mark.parametrize(
    "changes",
    [
        {SIGNATURE: ""},
        {SIGNATURE: "v0="},
        {SIGNATURE: "v1=abc"},
        {SIGNATURE: "\xff\xfe"},
        {TIMESTAMP: ""},
        {TIMESTAMP: "now"},
        {TIMESTAMP: "1e9"},
        {TIMESTAMP: "-1"},
        {TIMESTAMP: "²"},
        {TIMESTAMP: "9" * 5000},
    ],
)
async def test_malformed_headers_are_refused(place: Place, changes: dict[str, str]) -> None:
    status, _ = await place.post(headers=place.headers(EVENT.encode()) | changes)
    assert status == 401
    assert place.taken == []


async def test_missing_or_double_headers_are_refused(place: Place) -> None:
    good = place.headers(EVENT.encode())
    for name in (SIGNATURE, TIMESTAMP):
        assert (await place.post(headers={key: value for key, value in good.items() if key != name}))[0] == 401
        double = CIMultiDict(good)
        double.add(name, good[name])
        assert (await place.post(headers=double))[0] == 401
    assert place.taken == []


async def test_another_secret_or_another_body_is_refused(place: Place) -> None:
    assert (await place.post(headers=place.headers(EVENT.encode(), secret="another")))[0] == 401
    assert (await place.post(body=EVENT + " ", headers=place.headers(EVENT.encode())))[0] == 401
    assert place.taken == []


async def test_a_body_may_be_as_long_as_a_megabyte(place: Place) -> None:
    fits = json.dumps({"a": "x" * (BODY_AT_MOST - 9)})
    assert len(fits) == BODY_AT_MOST
    assert (await place.post(body=fits))[0] == 200
    assert (await place.post(body=fits + " "))[0] == 413
    assert len(place.taken) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nonsense"])
async def test_malformed_json_is_handed_on_as_text(place: Place, body: bytes) -> None:
    assert (await place.post(body=body))[0] == 200
    assert place.taken == [body.decode(errors="replace")]


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (urlencode({"command": "/dragoman", "text": "status & more", "user_id": ""}), "a command"),
        (urlencode({"payload": json.dumps({"type": "block_actions"})}), "a press"),
        (urlencode({"payload": "{"}), "broken"),
        ("&".join(["a=b"] * 2000), "too many fields"),
    ],
)
def test_forms_are_commands_or_hold_json(body: str, read: str) -> None:
    found = payload(body.encode(), FORM)
    match read:
        case "a command":
            assert found == {"command": "/dragoman", "text": "status & more", "user_id": ""}
        case "a press":
            assert found == {"type": "block_actions"}
        case "broken":
            assert found == "{"
        case _:
            assert found == body


def test_an_endpoint_without_a_secret_is_not_made() -> None:
    async def nothing(_: object) -> SlackAck:
        return SlackAck(stored=True)

    async def passed(_: str) -> None:
        return None

    with pytest.raises(ValueError, match="signing secret"):
        Webhook("", nothing, FakeClock(), passed)
