"""Socket Mode: the WebSockets of one app, what goes over them, and how they fail.

https://docs.slack.dev/apis/events-api/using-socket-mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
import uuid
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.slack.app import App, Delivery, Try, tried
from tests.support.slack.checks import Json

SOCKETS_AT_MOST = 10
"""https://docs.slack.dev/apis/events-api/using-socket-mode#connections."""
TICKET_LIVES_S = 30.0
_CLOSED = object()
_BEHAVIOURS = ("talks", "silent", "deaf", "refuses")


class Socket:
    """One connection of the app, from Slack's side."""

    def __init__(self, app: App, ws: web.WebSocketResponse, request: web.Request, n: int) -> None:
        self.n = n
        self.usable = False
        """True between hello and the first word of a disconnect that ends it."""
        self.frozen = False
        self.sent: list[str] = []
        """The envelopes that went over it."""
        self.pings = 0
        """From the app."""
        self._app = app
        self._ws = ws
        self._request = request
        self._acks: dict[str, asyncio.Future[Any]] = {}

    async def greet(self, count: int) -> None:
        """Say hello."""
        debug = {"host": "applink-test", "build_number": 1, "approximate_connection_time": 18_060}
        await self.say(
            {"type": "hello", "num_connections": count, "connection_info": {"app_id": self._app.id}}
            | {"debug_info": debug}
        )

    async def run(self) -> None:
        """Read acknowledgements until it closes."""
        async for message in self._ws:
            if self.frozen:
                await asyncio.sleep(1e9)
            await self._heard(message)

    async def _heard(self, message: aiohttp.WSMessage) -> None:
        if message.type is aiohttp.WSMsgType.PING:
            self.pings += 1
            await self._ws.pong(message.data)
        elif message.type is aiohttp.WSMsgType.TEXT:
            self._take(message.data)

    def _take(self, text: str) -> None:
        try:
            said: Json = json.loads(text)
            envelope = said["envelope_id"]
        except (ValueError, TypeError, KeyError):
            self._app.surprise(f"not an acknowledgement: {text[:200]!r}")
            return
        if unknown := said.keys() - {"envelope_id", "payload"}:
            self._app.surprise(f"unknown fields of an acknowledgement: {sorted(unknown)}")
        future = self._acks.get(envelope)
        if future is not None and not future.done():
            future.set_result(said.get("payload"))

    async def say(self, what: Json) -> None:
        """Send anything."""
        await self._ws.send_str(json.dumps(what))

    async def send(self, delivery: Delivery, attempt: int, reason: str) -> Try:
        """One attempt."""
        at_s = time.monotonic()
        envelope: Json = {"envelope_id": str(uuid.uuid4()), "payload": delivery.payload, "type": delivery.kind}
        envelope["accepts_response_payload"] = not delivery.retried
        if delivery.retried:
            envelope |= {"retry_attempt": attempt, "retry_reason": reason}
        future = self._acks[envelope["envelope_id"]] = asyncio.get_running_loop().create_future()
        self.sent.append(envelope["envelope_id"])
        try:
            async with asyncio.timeout(self._app.ack_within_s):
                if not self.frozen:
                    await self.say(envelope)
                answer = await future
        except TimeoutError:
            return tried(at_s, "timeout")
        except (ConnectionError, RuntimeError):
            return tried(at_s, "connection_failed")
        finally:
            del self._acks[envelope["envelope_id"]]
        return tried(at_s, "connection_failed") if answer is _CLOSED else tried(at_s, answer=answer)

    def ended(self) -> None:
        """It is closed: what was not acknowledged goes elsewhere."""
        self.usable = False
        for future in self._acks.values():
            if not future.done():
                future.set_result(_CLOSED)

    # --- what a test does to it ---

    async def disconnect(self, reason: str = "refresh_requested", *, closes: bool = True) -> None:
        """Announce the end: `warning` (ten seconds before), `refresh_requested`, `link_disabled`."""
        if reason != "warning":
            self.usable = False
        await self.say({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-test"}})
        if closes and reason != "warning":
            await self._ws.close()

    def freeze(self) -> None:
        """Neither read nor write any more, pings included; Slack still counts it, and sends events into it."""
        self.frozen = True
        if self._request.transport is not None:
            self._request.transport.pause_reading()

    def half_close(self) -> None:
        """Close one direction without a word: the app reads an end, and may still write."""
        self.usable = False
        if self._request.transport is not None:
            self._request.transport.write_eof()

    def cut(self) -> None:
        """Break the connection, without a closing frame."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def ping(self) -> None:
        """Ping the app, as Slack does now and then."""
        await self._ws.ping(b"Ping from applink-test")


class Sockets:
    """All sockets of an app; deliveries go to each in turn."""

    def __init__(self, app: App, root: str) -> None:
        self.open: list[Socket] = []
        self.ever: list[Socket] = []
        self.behaviour = "talks"
        """Of sockets from now on: `talks`; `silent` (accepts and says nothing, not even pongs), `deaf` (says hello
        and answers pings, but no event comes), `refuses` (503 instead of an upgrade)."""
        self._app = app
        self._root = root
        self._turn = itertools.count()
        self._came = asyncio.Event()
        self._tickets: dict[str, float] = {}

    def ticket(self) -> str:
        """A URL to connect to, once and soon: https://docs.slack.dev/reference/methods/apps.connections.open."""
        ticket = uuid.uuid4().hex
        self._tickets[ticket] = time.monotonic() + TICKET_LIVES_S
        return f"{self._root.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id={self._app.id}"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One connection, as long as it lasts."""
        if self.behaviour not in _BEHAVIOURS:
            raise ValueError(f"behaviour is one of {_BEHAVIOURS}")
        if self._tickets.pop(request.query.get("ticket", ""), 0.0) < time.monotonic():
            return web.Response(status=408, text="the ticket is unknown, used or too old")
        if self.behaviour == "refuses":
            return web.Response(status=503)
        ws = web.WebSocketResponse(autoping=False, timeout=0.2, max_msg_size=1 << 22)
        await ws.prepare(request)
        if self.behaviour == "silent":
            await asyncio.sleep(1e9)
        if len(self.open) >= SOCKETS_AT_MOST:
            await ws.send_str(json.dumps({"type": "disconnect", "reason": "too_many_websockets"}))
            await ws.close()
            return ws
        socket = Socket(self._app, ws, request, len(self.ever))
        self.open.append(socket)
        self.ever.append(socket)
        try:
            await socket.greet(len(self.open))
            socket.usable = self.behaviour != "deaf"
            self._came.set()
            self._app.changed()
            await socket.run()
        except (ConnectionError, RuntimeError):
            pass  # it was cut while something was said
        finally:
            self.open.remove(socket)
            socket.ended()
            self._app.changed()
        return ws

    async def send(self, delivery: Delivery, attempt: int, reason: str) -> Try:
        """One attempt over the next usable socket. An event waits for one; a press does so for three seconds."""
        at_s = time.monotonic()
        try:
            async with asyncio.timeout(None if delivery.retried else self._app.ack_within_s):
                while not (usable := [socket for socket in self.open if socket.usable]):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            return tried(at_s, "connection_failed")
        return await usable[next(self._turn) % len(usable)].send(delivery, attempt, reason)

    async def close(self) -> None:
        """Cut all of them."""
        for socket in list(self.open):
            with contextlib.suppress(ConnectionError):
                socket.cut()
