"""Socket Mode against our own server: two connections, acknowledgements, replacements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.request import SlackUnanswered
from channels.slack.socket import Dead, LinkDisabled, Sockets, Timing
from channels.slack.webhook import SlackAck
from tests.support.clock import FakeClock
from tests.support.surroundings import until

QUICK = Timing(connect=2.0, hello=0.2, ping=0.05, pings=2, told_after=0.0, one_told_after=0.0, close=0.2)
PATIENT = Timing(connect=2.0, hello=2.0, ping=2.0, pings=2, told_after=10.0, one_told_after=60.0, close=0.2)


@dataclass(slots=True, kw_only=True)
class Server:
    """Slack's side: greets, keeps what it hears, and does what a test wants with each connection."""

    url: str = ""
    greets: bool = True
    answers_pings: bool = True
    connections: list[web.WebSocketResponse] = field(default_factory=list[web.WebSocketResponse])
    acks: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    """By connection, in order."""

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        n = len(self.connections)
        self.connections.append(socket)
        if self.greets:
            await socket.send_json({"type": "hello", "num_connections": n + 1})
        async for got in socket:
            if got.type is aiohttp.WSMsgType.PING and self.answers_pings:
                await socket.pong(got.data)
            elif got.type is aiohttp.WSMsgType.TEXT:
                self.acks.append((n, json.loads(got.data)))
        return socket

    async def say(self, n: int, **said: Any) -> None:
        await self.connections[n].send_json(said)

    async def event(self, n: int, envelope: str, **payload: Any) -> None:
        await self.say(n, type="events_api", envelope_id=envelope, payload=payload, accepts_response_payload=False)

    @property
    def acknowledged(self) -> list[str]:
        return [said["envelope_id"] for _, said in self.acks]


@dataclass(slots=True, kw_only=True)
class Place:
    """The sockets of one account, and what is around them."""

    server: Server
    client: aiohttp.ClientSession
    timing: Timing = PATIENT
    clock: FakeClock = field(default_factory=FakeClock)
    taken: list[Any] = field(default_factory=list[Any])
    borne: list[tuple[Exception | None, float]] = field(default_factory=list[tuple[Exception | None, float]])
    points: list[str] = field(default_factory=list[str])
    resets: int = 0
    take: Callable[[object], Awaitable[SlackAck]] | None = None
    opens: bool = True

    async def _open(self) -> str:
        if not self.opens:
            raise SlackUnanswered("No answer from Slack to apps.connections.open.")
        return self.server.url

    async def _take(self, payload: object) -> SlackAck:
        self.taken.append(payload)
        return SlackAck(stored=True) if self.take is None else await self.take(payload)

    async def _back_off(self, error: Exception | None, stood_s: float) -> None:
        self.borne.append((error, stood_s))
        await asyncio.sleep(0.01)

    def _reset_failures(self) -> None:
        self.resets += 1

    async def _passed(self, point: str) -> None:
        self.points.append(point)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sockets]:
        sockets = Sockets(
            name="main",
            open=self._open,
            back_off=self._back_off,
            reset_failures=self._reset_failures,
            take=self._take,
            client=self.client,
            clock=self.clock,
            fail_point=self._passed,
            timing=self.timing,
        )
        task = asyncio.create_task(sockets.run(), name="sockets")
        try:
            yield sockets
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    server = Server()
    app = web.Application()
    app.router.add_get("/link", server.handle)
    async with TestServer(app) as host, aiohttp.ClientSession() as client:
        server.url = str(host.make_url("/link")).replace("http:", "ws:")
        yield Place(server=server, client=client)
        for socket in server.connections:
            await socket.close()


async def test_events_of_both_connections_are_stored_then_acknowledged(place: Place) -> None:
    stored: list[str] = []

    async def take(_payload: object) -> SlackAck:
        assert len(place.server.acks) == len(stored)
        await asyncio.sleep(0.02)
        stored.append("stored")
        return SlackAck(stored=True)

    place.take = take
    async with place.running() as sockets:
        await until(lambda: place.resets == 2)
        assert sockets.trouble() == ""
        for n in (0, 1):
            await place.server.event(n, f"envelope-{n}", text=f"hello {n}")
            await until(lambda: len(place.server.acks) == n + 1)  # noqa: B023 - awaited in the loop
    assert place.taken == [{"text": "hello 0"}, {"text": "hello 1"}]
    assert place.server.acks == [(0, {"envelope_id": "envelope-0"}), (1, {"envelope_id": "envelope-1"})]
    assert place.points == ["J3", "J3"]


async def test_unstored_or_failing_event_is_not_acknowledged(place: Place) -> None:
    async def take(payload: object) -> SlackAck:
        if payload == {"text": "breaks"}:
            raise RuntimeError
        return SlackAck(stored=payload == {"text": "good"})

    place.take = take
    async with place.running():
        await until(lambda: place.resets == 2)
        for word in ("bad", "breaks", "good"):
            await place.server.event(0, word, text=word)
        await until(lambda: place.server.acks)
        await asyncio.sleep(0.05)
    assert place.server.acknowledged == ["good"]
    assert place.borne == []


async def test_an_answer_goes_along_only_where_it_may(place: Place) -> None:
    async def take(_payload: object) -> SlackAck:
        return SlackAck(stored=True, body={"response_action": "clear"})

    place.take = take
    async with place.running():
        await until(lambda: place.resets == 2)
        await place.server.say(0, envelope_id="a", type="interactive", payload={}, accepts_response_payload=True)
        await place.server.say(0, envelope_id="b", type="events_api", payload={}, accepts_response_payload=False)
        await until(lambda: len(place.server.acks) == 2)
    assert sorted(said.get("payload", {}).get("response_action", "") for _, said in place.server.acks) == ["", "clear"]


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "5", '{"type": 5}', '{"envelope_id": 7}', "[" * 50_000, "null"])
async def test_a_message_that_makes_no_sense_ends_nothing(place: Place, text: str) -> None:
    async with place.running():
        await until(lambda: place.resets == 2)
        await place.server.connections[0].send_str(text)
        await place.server.event(0, "after it", text="hello")
        await until(lambda: place.server.acknowledged == ["after it"])
    assert len(place.server.connections) == 2


async def test_payloads_begin_in_the_order_in_which_they_come(place: Place) -> None:
    async with place.running():
        await until(lambda: place.resets == 2)
        for n in range(200):
            await place.server.event(0, str(n), number=n)
        await until(lambda: len(place.server.acks) == 200)
    assert [payload["number"] for payload in place.taken] == list(range(200))


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "too_many_websockets"])
async def test_closing_connection_is_replaced_after_acknowledging(place: Place, reason: str) -> None:
    async def take(_payload: object) -> SlackAck:
        await asyncio.sleep(0.05)
        return SlackAck(stored=True)

    place.take = take
    async with place.running() as sockets:
        await until(lambda: place.resets == 2)
        await place.server.event(0, "under way", text="hello")
        await place.server.say(0, type="disconnect", reason=reason)
        await until(lambda: place.resets == 3)
        assert sockets.trouble() == ""
    assert place.server.acks == [(0, {"envelope_id": "under way"})]
    assert place.borne[0][0] is None


async def test_a_link_that_was_switched_off_is_reported(place: Place) -> None:
    async with place.running():
        await until(lambda: place.resets == 2)
        await place.server.say(1, type="disconnect", reason="link_disabled")
        await until(lambda: place.borne)
    assert isinstance(place.borne[0][0], LinkDisabled)


async def test_a_connection_that_is_closed_is_replaced(place: Place) -> None:
    async with place.running():
        await until(lambda: place.resets == 2)
        await place.server.connections[0].close()
        await until(lambda: place.resets == 3)
    assert isinstance(place.borne[0][0], Dead)


async def test_silent_connection_is_replaced_and_is_trouble_meanwhile(place: Place) -> None:
    place.timing = QUICK
    async with place.running() as sockets:
        await until(lambda: place.resets == 2)
        place.server.answers_pings = place.server.greets = False
        await until(lambda: len(place.borne) >= 2)  # of both: one that the server answers again in time would stay
        place.clock.advance(1.0)
        await until(lambda: "connection" in sockets.trouble())
        assert isinstance(place.borne[0][0], Dead)
        place.server.answers_pings = place.server.greets = True
        await until(lambda: place.resets >= 4)
        await until(lambda: sockets.trouble() == "")


async def test_pongs_keep_a_quiet_connection(place: Place) -> None:
    place.timing = QUICK
    async with place.running() as sockets:
        await until(lambda: place.resets == 2)
        await asyncio.sleep(0.4)  # eight times as long as until the first ping
        assert sockets.trouble() == ""
    assert place.borne == []


async def test_a_connection_that_does_not_say_hello_is_none(place: Place) -> None:
    place.timing, place.server.greets = QUICK, False
    async with place.running() as sockets:
        await until(lambda: len(place.borne) >= 2)
        place.clock.advance(1.0)
        assert "No connection to Slack has stood" in sockets.trouble()
    assert place.resets == 0


async def test_no_address_is_borne_and_asked_for_again(place: Place) -> None:
    place.opens = False
    async with place.running() as sockets:
        await until(lambda: len(place.borne) >= 4)
        assert all(isinstance(error, SlackUnanswered) for error, _ in place.borne)
        assert sockets.trouble() == ""  # not yet
        place.clock.advance(PATIENT.told_after + 1)
        assert "No connection to Slack has stood for 11 s." in sockets.trouble()
        place.opens = True
        await until(lambda: sockets.trouble() == "")


async def test_irreplaceable_dead_connection_is_trouble(place: Place) -> None:
    async with place.running() as sockets:
        await until(lambda: place.resets == 2)
        place.opens = False
        await place.server.connections[0].close()
        await until(lambda: len(place.borne) >= 2)
        assert sockets.trouble() == ""
        place.clock.advance(PATIENT.one_told_after + 1)
        assert "One of 2 connections" in sockets.trouble()


async def test_nobody_there_is_borne(place: Place) -> None:
    place.server.url = "ws://127.0.0.1:9/"
    async with place.running():
        await until(lambda: len(place.borne) >= 2)
    assert (
        str(place.borne[0][0]) == "No connection to Slack at 127.0.0.1:9: no connection can be made. Check the network."
    )


async def test_a_connection_that_is_turned_away_at_once_is_borne(place: Place) -> None:
    place.server.greets = False
    async with place.running():
        await until(lambda: len(place.server.connections) == 2)
        await place.server.say(0, type="disconnect", reason="too_many_websockets")
        await until(lambda: place.borne)
        await place.server.say(1, type="disconnect", reason="link_disabled")
        await until(lambda: len(place.borne) >= 2)
    assert [type(error) for error, _ in place.borne[:2]] == [Dead, LinkDisabled]
