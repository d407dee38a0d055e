"""Requests to the Web API against our own server: what is sent, and the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.request import BY_CHANNEL, WAIT_UNTOLD_S, SlackClient, SlackDeclined, SlackNotSent, SlackUnanswered
from tests.support.clock import FakeClock
from tests.unit.channels.slack.scene import no_bans

TOKEN = "xoxb-a-secret-token"


@dataclass(slots=True)
class Api:
    """The server: keeps what it is asked, and answers what a test wants."""

    root: str = ""
    status: int = 200
    body: str = '{"ok": true}'
    headers: dict[str, str] = field(default_factory=dict[str, str])
    takes_s: float = 0.0
    asked: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    """Method, content type, body, authorization."""
    points: list[str] = field(default_factory=list[str])

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.text()
        await asyncio.sleep(self.takes_s)
        authorization = request.headers.get("Authorization", "")
        self.asked.append((request.match_info["method"], request.content_type, body, authorization))
        return web.Response(status=self.status, text=self.body, headers=self.headers, content_type="application/json")

    async def passed(self, point: str) -> None:
        self.points.append(point)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    found = Api()
    app = web.Application()
    app.router.add_route("*", "/api/{method}", found.handle)
    async with TestServer(app) as server:
        found.root = str(server.make_url("/api/"))
        yield found


@pytest.fixture
async def client(api: Api) -> AsyncIterator[SlackClient]:
    async with aiohttp.ClientSession() as session:
        yield SlackClient(TOKEN, api.root, session, api.passed, no_bans())


async def declined(client: SlackClient, method: str = "chat.postMessage") -> SlackDeclined:
    with pytest.raises(SlackDeclined) as caught:
        await client.call(method, {})
    return caught.value


async def test_writes_are_sent_as_json_and_reads_as_a_form(api: Api, client: SlackClient) -> None:
    await client.call("chat.postMessage", {"channel": "C0CC", "text": "a & b"})
    await client.call("conversations.history", {"channel": "C0CC", "limit": 5, "include_all_metadata": True})
    assert api.asked == [
        ("chat.postMessage", "application/json", '{"channel": "C0CC", "text": "a & b"}', f"Bearer {TOKEN}"),
        (
            "conversations.history",
            "application/x-www-form-urlencoded",
            "channel=C0CC&limit=5&include_all_metadata=true",
            f"Bearer {TOKEN}",
        ),
    ]
    assert api.points == ["J17"]


async def test_the_headers_of_an_answer_name_scopes(api: Api, client: SlackClient) -> None:
    api.headers = {"X-OAuth-Scopes": "chat:write,im:history"}
    _, headers = await client.told("auth.test", {})
    assert headers.get("x-oauth-scopes") == "chat:write,im:history"


@pytest.mark.parametrize(
    ("given", "waits"),
    [("30", 30), ("0", 0), (None, WAIT_UNTOLD_S), ("soon", WAIT_UNTOLD_S), ("-1", WAIT_UNTOLD_S), ("9" * 400, 30)],
)
async def test_a_limit_says_for_how_long(api: Api, client: SlackClient, given: str | None, waits: float) -> None:
    api.status, api.body = 429, '{"ok": false, "error": "ratelimited"}'
    api.headers = {} if given is None else {"Retry-After": given}
    found = await declined(client)
    assert (found.error, found.status, found.retry_after_s) == ("ratelimited", 429, waits)
    assert len(api.asked) == 1


async def test_a_method_that_was_limited_is_not_called_before(api: Api) -> None:
    clock = FakeClock()
    async with aiohttp.ClientSession() as session:
        client = SlackClient(TOKEN, api.root, session, api.passed, no_bans(clock))
        api.status, api.body, api.headers = 429, '{"ok": false, "error": "ratelimited"}', {"Retry-After": "30"}
        for method in ("conversations.history", "chat.postEphemeral", *BY_CHANNEL):
            await declined(client, method)
        api.status, api.body = 200, '{"ok": true}'
        clock.advance(12)
        found = await declined(client, "conversations.history")
        assert (found.error, found.status, found.retry_after_s) == ("ratelimited", 429, 18)
        assert await client.call("users.info", {}) == {"ok": True}
        for method in BY_CHANNEL:
            assert await client.call(method, {}) == {"ok": True}, "that is counted by channel, by delivery"
        await declined(client, "chat.postEphemeral")
        clock.advance(18)
        assert await client.call("conversations.history", {}) == {"ok": True}
    asked = [method for method, *_ in api.asked]
    assert asked.count("conversations.history") == 2
    assert asked.count("chat.postEphemeral") == 1


async def test_a_refusal_says_what_is_wrong(api: Api, client: SlackClient) -> None:
    api.body = (
        '{"ok": false, "error": "missing_scope", "needed": "chat:write", '
        '"response_metadata": {"messages": ["[ERROR] one", 5, "two"]}}'
    )
    found = await declined(client)
    assert (found.error, found.needed, found.method) == ("missing_scope", "chat:write", "chat.postMessage")
    assert "[ERROR] one; two" in str(found)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, ""),
        (200, "nonsense"),
        (200, "[]"),
        (200, "{}"),
        (200, '{"ok": "true"}'),
        (200, '{"ok": false, "error": 5}'),
        (200, '{"ok": false, "error": "internal_error"}'),
        (200, '{"ok": false, "error": "fatal_error"}'),
        (200, "[" * 100_000),
        (302, '{"ok": true}'),
        (404, "<html>"),
        (500, '{"ok": false, "error": "invalid_auth"}'),
        (503, '{"ok": true}'),
    ],
)
async def test_an_answer_that_says_nothing_leaves_a_doubt(
    api: Api, client: SlackClient, status: int, body: str
) -> None:
    api.status, api.body, api.headers = status, body, {"Location": f"{api.root}auth.test"} if status == 302 else {}
    with pytest.raises(SlackUnanswered) as caught:
        await client.call("chat.postMessage", {})
    assert "chat.postMessage" in str(caught.value)
    assert len(api.asked) == 1


async def test_nobody_there_is_certain_to_have_done_nothing(api: Api) -> None:
    async with aiohttp.ClientSession() as session:
        client = SlackClient(TOKEN, "http://127.0.0.1:9/api/", session, api.passed, no_bans())
        with pytest.raises(SlackNotSent) as caught:
            await client.call("chat.postMessage", {})
    told = "Slack cannot be reached at 127.0.0.1:9 for chat.postMessage: no connection can be made."
    assert str(caught.value) == f"{told} Check api_root, which is set, and the network."
    assert caught.value.__context__ is None
    with pytest.raises(SlackNotSent, match="stopping"):
        await client.call("chat.postMessage", {})


@asynccontextmanager
async def hasty(api: Api) -> AsyncGenerator[SlackClient]:
    """A client that gives an answer a tenth of a second, over a connection that it has already."""
    async with aiohttp.ClientSession() as session:
        await SlackClient(TOKEN, api.root, session, api.passed, no_bans()).call("auth.test", {})
        yield SlackClient(TOKEN, api.root, session, api.passed, no_bans(), answer_within_s=0.1)


async def test_an_answer_that_takes_too_long_is_a_doubt(api: Api) -> None:
    async with hasty(api) as client:
        api.takes_s = 0.5
        with pytest.raises(SlackUnanswered, match="it timed out"):
            await client.call("chat.postMessage", {})


@pytest.mark.parametrize("stored", [False, True])
async def test_a_file_is_given_time_by_its_length(api: Api, tmp_path: Path, stored: bool) -> None:
    """Over a line of a megabit 50 MB take more than six minutes."""
    (tmp_path / "a.bin").write_bytes(bytes(400_000))
    async with hasty(api) as client:
        api.takes_s = 0.6
        with (tmp_path / "a.bin").open("rb") as content:
            await client.upload(f"{api.root}upload", content if stored else content.read())
        with pytest.raises(SlackUnanswered, match="it timed out"):
            await client.upload(f"{api.root}upload", b"short")


async def test_the_environments_proxy_is_not_asked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9/")
    async with aiohttp.ClientSession() as session:
        assert await SlackClient(TOKEN, api.root, session, api.passed, no_bans()).call("auth.test", {}) == {"ok": True}


def test_a_client_does_not_show_its_token() -> None:
    async def passed(_: str) -> None:
        return None

    class Session:
        closed = True

    session: Any = Session()
    assert TOKEN not in repr(SlackClient(TOKEN, "https://slack.com/api/", session, passed, no_bans()))
