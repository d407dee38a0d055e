from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.signature import SignatureVerifier

from tests.support.patience import PATIENCE_S
from tests.support.slack import FakeSlack

ANN = "U0ANN"
GENERAL = "C0CC"


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack().serve() as server:
        server.person(ANN, "ann")
        server.channel(GENERAL, "general", members=[ANN])
        server.app.pauses_s = (0.0, 0.05, 0.05)
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


class Client:
    """An app's end of one socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return json.loads(message.data)

    async def take(self, **payload: Any) -> dict[str, Any]:
        """The next envelope, acknowledged."""
        envelope = await self.next()
        answer = {"envelope_id": envelope["envelope_id"], **({"payload": payload} if payload else {})}
        await self.socket.send_json(answer)
        return envelope


@asynccontextmanager
async def connected(slack: FakeSlack, session: aiohttp.ClientSession, *, hello: bool = True) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {slack.app_token}"}
    async with session.post(slack.api_root + "apps.connections.open", headers=headers) as response:
        url = (await response.json())["url"]
    async with session.ws_connect(url) as socket:
        client = Client(socket)
        if hello:
            greeting = await client.next()
            assert greeting["type"] == "hello"
            assert greeting["connection_info"] == {"app_id": slack.app.id}
            assert greeting["num_connections"] == len(slack.sockets)
        yield client


# --- Socket Mode ---


async def test_an_event_arrives_once_it_is_acknowledged(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    said = slack.say(ANN, "hi <b> & https://example.org/x")
    async with connected(slack, session) as client:
        envelope = await client.take()
        await slack.heard()
    assert (envelope["type"], envelope["retry_attempt"], envelope["accepts_response_payload"]) == (
        "events_api",
        0,
        False,
    )
    payload = envelope["payload"]
    assert (payload["type"], payload["team_id"], payload["event_id"]) == ("event_callback", "T0AA", said.event_id)
    event = payload["event"]
    assert event["text"] == "hi &lt;b&gt; &amp; <https://example.org/x>"
    assert (event["type"], event["channel"], event["channel_type"]) == ("message", "D0ANN", "im")
    assert (event["user"], event["ts"], event["event_ts"]) == (ANN, said.ts, said.ts)
    assert slack.app.lost == []
    assert slack.surprises == []


async def test_a_mention_is_delivered_twice_and_others_once(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    slack.mention(ANN, "hello", channel=GENERAL)
    slack.say(ANN, "to nobody", channel=GENERAL)
    async with connected(slack, session) as client:
        events = [(await client.take())["payload"]["event"] for _ in range(3)]
    assert [event["type"] for event in events] == ["message", "app_mention", "message"]
    assert events[0]["text"] == events[1]["text"] == f"<@{slack.bot}> hello"
    assert events[0]["ts"] == events[1]["ts"]
    assert "channel_type" not in events[1]


async def test_unacknowledged_event_comes_again_and_is_lost_in_the_end(
    slack: FakeSlack, session: aiohttp.ClientSession
) -> None:
    slack.app.ack_within_s = 0.05
    slack.say(ANN, "hello")
    async with connected(slack, session) as client:
        envelopes = [await client.next() for _ in range(4)]
        await slack.until(lambda: len(slack.app.lost) == 1)
    assert [e["retry_attempt"] for e in envelopes] == [0, 1, 2, 3]
    assert [e["retry_reason"] for e in envelopes] == ["", "timeout", "timeout", "timeout"]
    assert len({e["payload"]["event_id"] for e in envelopes}) == 1
    assert len({e["envelope_id"] for e in envelopes}) == 4


async def test_event_of_a_closed_socket_goes_to_another(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    async with connected(slack, session) as first, connected(slack, session) as second:
        slack.say(ANN, "hello")
        assert (await first.next())["retry_attempt"] == 0
        slack.sockets[0].cut()
        again = await second.take()
    assert (again["retry_attempt"], again["retry_reason"]) == (1, "connection_failed")


async def test_events_are_spread_over_sockets_and_wait_for_one(
    slack: FakeSlack, session: aiohttp.ClientSession
) -> None:
    slack.say(ANN, "early")
    async with connected(slack, session) as first:
        assert (await first.take())["retry_attempt"] == 0
        async with connected(slack, session) as second:
            for n in range(4):
                slack.say(ANN, str(n))
            got = [(await client.take())["payload"]["event"]["text"] for client in (first, second, first, second)]
    assert sorted(got) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "link_disabled"])
async def test_slack_asks_for_another_socket(slack: FakeSlack, session: aiohttp.ClientSession, reason: str) -> None:
    async with connected(slack, session) as client:
        await slack.sockets[0].disconnect(reason)
        said = await client.next()
        assert (said["type"], said["reason"]) == ("disconnect", reason)
        if reason == "warning":
            slack.say(ANN, "still here")
            await client.take()
        else:
            async with asyncio.timeout(PATIENCE_S):
                assert (await client.socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_frozen_and_silent_sockets_answer_no_ping(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    async def answers_ping(socket: aiohttp.ClientWebSocketResponse, within_s: float = 0.2) -> bool:
        await socket.ping(b"x")
        try:
            async with asyncio.timeout(within_s):
                return (await socket.receive()).type is aiohttp.WSMsgType.PONG
        except TimeoutError:
            return False

    headers = {"Authorization": f"Bearer {slack.app_token}"}

    async def url() -> str:
        async with session.post(slack.api_root + "apps.connections.open", headers=headers) as response:
            return (await response.json())["url"]

    async with session.ws_connect(await url(), autoping=False) as socket:
        assert (await socket.receive_json())["type"] == "hello"
        assert await answers_ping(socket, within_s=5)
        slack.sockets[0].freeze()
        assert not await answers_ping(socket)
        assert len(slack.sockets) == 1
    slack.line.sockets.behaviour = "silent"
    async with session.ws_connect(await url(), autoping=False) as socket:
        assert not await answers_ping(socket)
    slack.line.sockets.behaviour = "deaf"
    async with connected(slack, session) as client:
        slack.say(ANN, "hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.socket.receive()
    slack.line.sockets.behaviour = "refuses"
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await session.ws_connect(await url())


async def test_a_half_closed_socket_ends_without_a_word(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    async with connected(slack, session) as client:
        slack.sockets[0].half_close()
        async with asyncio.timeout(PATIENCE_S):
            message = await client.socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


async def test_a_ticket_is_good_once_and_ten_sockets_are_enough(
    slack: FakeSlack, session: aiohttp.ClientSession
) -> None:
    url = slack.line.sockets.ticket()
    async with session.ws_connect(url) as socket:
        assert (await socket.receive_json())["num_connections"] == 1
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)
        others = [await session.ws_connect(slack.line.sockets.ticket()) for _ in range(9)]
        async with session.ws_connect(slack.line.sockets.ticket()) as one_more:
            assert (await one_more.receive_json())["reason"] == "too_many_websockets"
        for other in others:
            await other.close()


async def test_duplicates_reordering_and_replays(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    async def texts(client: Client, count: int) -> list[str]:
        return [(await client.take())["payload"]["event"]["text"] for _ in range(count)]

    async with connected(slack, session) as client:
        slack.app.copies = 2
        slack.say(ANN, "twice")
        assert await texts(client, 2) == ["twice", "twice"]
        slack.app.copies = 1
        slack.app.holding = True
        for n in range(3):
            slack.say(ANN, str(n))
        slack.app.release(backwards=True)
        assert await texts(client, 3) == ["2", "1", "0"]
        slack.replay(2)
        assert await texts(client, 2) == ["1", "2"]
        slack.app.shuffle = random.Random(1)
        for n in range(6):
            slack.say(ANN, str(n))
        shuffled = await texts(client, 6)
    assert shuffled != sorted(shuffled) == ["0", "1", "2", "3", "4", "5"]


async def test_retries_whose_first_delivery_was_lost_or_not_heard(
    slack: FakeSlack, session: aiohttp.ClientSession
) -> None:
    def mark(envelope: dict[str, Any]) -> tuple[str, int, str]:
        return envelope["payload"]["event_id"], envelope["retry_attempt"], envelope["retry_reason"]

    async with connected(slack, session) as client:
        slack.app.unheard = 1
        said = slack.say(ANN, "hello")
        assert [mark(await client.take()) for _ in range(2)] == [
            (said.event_id, 0, ""),
            (said.event_id, 1, "timeout"),
        ]
        slack.replay(attempt=2, reason="timeout")
        assert mark(await client.take()) == (said.event_id, 2, "timeout")
        slack.send_payload({"type": "event_callback"})
        assert (await client.take())["payload"] == {"type": "event_callback"}


async def test_nonsense_from_the_app_is_a_surprise(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    async with connected(slack, session) as client:
        await client.socket.send_str("ack")
        await slack.until(lambda: len(slack.surprises) == 1)
        await client.socket.send_json({"envelope_id": "x", "ok": True})
        await slack.until(lambda: len(slack.surprises) == 2)


async def test_events_need_a_subscription_and_a_scope(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    slack.app.subscribed.discard("app_mention")
    slack.world.scopes.discard("channels:history")
    slack.mention(ANN, "hello", channel=GENERAL)
    assert slack.app.given == []
    assert slack.app.not_told == ["message.channels: no scope channels:history", "app_mention: not asked for"]


async def test_two_workspaces_of_one_app_share_its_sockets(slack: FakeSlack, session: aiohttp.ClientSession) -> None:
    there = slack.another_workspace("T0BB", same_app=True)
    apart = slack.another_workspace("T0DD")
    async with connected(slack, session) as client:
        there.say("U0BEN", "from there")
        apart.say("U0DOT", "from elsewhere")
        envelope = await client.take()
        assert (envelope["payload"]["team_id"], envelope["payload"]["api_app_id"]) == ("T0BB", slack.app.id)
        slack.say(ANN, "from here")
        assert (await client.take())["payload"]["team_id"] == "T0AA"
    assert len(apart.app.pending) == 1


# --- HTTP ---

Answer = Callable[[str, dict[str, str]], Awaitable[web.Response]]


@asynccontextmanager
async def answering(slack: FakeSlack, answer: Answer) -> AsyncGenerator[str]:
    """An app behind a URL; `answer` gets the body and the headers of what is signed well."""
    verifier = SignatureVerifier(slack.signing_secret)

    async def handle(request: web.Request) -> web.Response:
        body = await request.text()
        if not verifier.is_valid_request(body, dict(request.headers)):
            return web.Response(status=401)
        return await answer(body, dict(request.headers))

    application = web.Application()
    application.router.add_post("/slack", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack"
        slack.use_http(url)
        yield url
    finally:
        await runner.cleanup()


async def test_posts_are_signed_and_repeated_until_200(slack: FakeSlack) -> None:
    got: list[tuple[str, str, str]] = []
    slack.app.ack_within_s = 1

    async def answer(body: str, headers: dict[str, str]) -> web.Response:
        payload = json.loads(body)
        if payload["type"] == "url_verification":
            return web.Response(text=payload["challenge"])
        text = payload["event"]["text"]
        got.append((text, headers.get("X-Slack-Retry-Num", ""), headers.get("X-Slack-Retry-Reason", "")))
        if len(got) == 2:
            await asyncio.sleep(3)
        return web.Response(status=500 if len(got) == 1 else 200)

    async with answering(slack, answer):
        assert await slack.pushes.verify()
        slack.say(ANN, "hello")
        await slack.until(lambda: not slack.app.pending)
    assert got == [("hello", "", ""), ("hello", "1", "http_error"), ("hello", "2", "http_timeout")]
    assert [tried.reason for tried in slack.app.given[0].tries] == ["http_error", "http_timeout", ""]


async def test_nobody_listens_and_a_header_that_ends_it(slack: FakeSlack) -> None:
    slack.use_http("http://127.0.0.1:9/slack")
    slack.say(ANN, "hello")
    await slack.until(lambda: len(slack.app.lost) == 1)
    assert {tried.reason for tried in slack.app.lost[0].tries} == {"connection_failed"}

    async def answer(body: str, headers: dict[str, str]) -> web.Response:
        return web.Response(status=500, headers={"X-Slack-No-Retry": "1"})

    async with answering(slack, answer):
        slack.say(ANN, "again")
        await slack.until(lambda: len(slack.app.lost) == 2)
    assert len(slack.app.lost[1].tries) == 1


async def test_skewed_and_foreign_signatures_are_bad(slack: FakeSlack) -> None:
    async def answer(body: str, headers: dict[str, str]) -> web.Response:
        return web.Response()

    async with answering(slack, answer) as url:
        pushes = slack.pushes
        assert (await pushes.post(url, b"{}"))[0] == 200
        pushes.skew_s = -301
        assert (await pushes.post(url, b"{}"))[0] == 401
        pushes.skew_s, pushes.secret = 0, "somebody else's"
        assert (await pushes.post(url, b"{}"))[0] == 401
        pushes.secret = None
        assert (await pushes.post(url, b"{}", sign=False))[0] == 401
        assert (await pushes.post(url, b"{}", headers={"X-Slack-Signature": "v0=00"}))[0] == 401


async def test_presses_and_commands_are_forms(slack: FakeSlack) -> None:
    got: list[dict[str, str]] = []

    async def answer(body: str, headers: dict[str, str]) -> web.Response:
        form = {key: values[0] for key, values in parse_qs(body, keep_blank_values=True).items()}
        got.append(form)
        return web.json_response({"text": "noted"}) if "command" in form else web.Response()

    async with answering(slack, answer):
        pressed = slack.press_raw(ANN, {"actions": []})
        await slack.acknowledged(pressed)
        await slack.acknowledged(slack.slash(ANN, "status now", channel=GENERAL))
    assert json.loads(got[0]["payload"])["user"]["id"] == ANN
    assert (got[1]["command"], got[1]["text"], got[1]["channel_id"]) == ("/dragoman", "status now", GENERAL)
    assert (await slack.see_note(ANN, "noted")).channel == GENERAL


async def test_delivery_under_way_continues_after_an_outage(session: aiohttp.ClientSession) -> None:
    slack = FakeSlack()
    async with slack.serve():
        slack.say(ANN, "hello")
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(slack.root)
    async with slack.serve(), connected(slack, session) as client:
        assert (await client.take())["payload"]["event"]["text"] == "hello"
