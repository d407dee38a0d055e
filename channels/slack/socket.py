"""Socket Mode client: two monitored connections that deliver payloads. Run by `account`.

Built on aiohttp, not on slack_sdk's client. That client starts unawaited tasks and so loses the order within a channel.
It acknowledges an envelope on the connection that is current by then. It closes the old connection before it has a new
one, opens its own session, and logs payloads. It uses the wall clock: a clock change looks like a dead connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from channels._shared.fields import json_object
from channels._shared.http import by_proxy, unconnected
from channels.slack.request import SlackFailure
from channels.slack.webhook import SlackAck, Take
from gateway.domain.proxy import Proxy, through
from gateway.ports import Clock

SOCKETS = 2
"""Connections; one continues while the other is replaced. Slack allows ten for all machines of an app."""
IN_FLIGHT = 64
"""Payloads per connection processed at once; further ones wait in the connection."""
MESSAGE_BYTES = 4_194_304
"""Bytes of one WebSocket message, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timeouts in seconds of a connection."""

    connect: float = 10.0
    """Timeout for connecting."""
    hello: float = 10.0
    """Timeout for Slack's hello; a connection without it is dead."""
    ping: float = 10.0
    """Silence before a ping."""
    pings: int = 2
    """Unanswered pings before a connection is dead, 30 s after its last message."""
    told_after: float = 10.0
    """Time without any connection before trouble is reported: a replacement takes a while."""
    one_told_after: float = 20.0
    """Time with only one connection before trouble is reported. A dead one is found within a minute."""
    close: float = 3.0
    """Timeout for closing."""


class Dead(Exception):
    """Error for a broken or silent connection."""


class LinkDisabled(Exception):
    """Error for Socket Mode that was switched off."""


@dataclass(slots=True)
class _Line:
    """State of one connection."""

    up: bool = False
    """True from Slack's hello until the connection ends."""
    since: float = 0.0
    """Monotonic time of the last change of `up`."""

    def mark_up(self, now: float) -> None:
        """Record that the connection works."""
        self.up, self.since = True, now

    def mark_down(self, now: float) -> float:
        """Record that the connection ended, and return its lifetime in seconds; 0 if it never worked."""
        if not self.up:
            return 0.0
        stood_s, self.up, self.since = now - self.since, False, now
        return stood_s


@dataclass(slots=True, kw_only=True)
class Sockets:
    """Socket Mode connections of one account."""

    name: str
    """Account name, for tasks and the log."""
    open: Callable[[], Awaitable[str]]
    """Requests the URL for a connection; raises `SlackFailure`."""
    back_off: Callable[[Exception | None, float], Awaitable[None]]
    """Reports the end of a connection and waits for the backoff. Takes the error (None: Slack asked for a new
    connection) and the connection's lifetime in seconds."""
    reset_failures: Callable[[], None]
    """Called when a connection works."""
    take: Take
    client: aiohttp.ClientSession
    clock: Clock
    fail_point: Callable[[str], Awaitable[None]]
    proxy: Proxy | None = None
    timing: Timing = field(default_factory=Timing)
    _lines: list[_Line] = field(default_factory=list[_Line])
    _log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))

    async def run(self) -> None:
        """Serve until cancelled."""
        now = self.clock.monotonic()
        self._lines = [_Line(since=now) for _ in range(SOCKETS)]
        async with asyncio.TaskGroup() as group:
            for n, line in enumerate(self._lines):
                group.create_task(self._keep(line), name=f"slack {self.name} socket {n}")

    def trouble(self) -> str:
        """Return which connections are missing; empty when none is."""
        now = self.clock.monotonic()
        down = [now - line.since for line in self._lines if not line.up]
        if down and len(down) == len(self._lines) and min(down) > self.timing.told_after:
            return f"No connection to Slack has stood for {min(down):.0f} s."
        if down and max(down) > self.timing.one_told_after:
            return f"One of {SOCKETS} connections to Slack has not stood for {max(down):.0f} s."
        return ""

    def stand(self) -> bool:
        """Return True if at least one connection works."""
        return any(line.up for line in self._lines)

    async def _keep(self, line: _Line) -> None:
        """Keep one connection open until cancelled."""
        while True:
            error: Exception | None = None
            try:
                await self._serve(line)
            except* (SlackFailure, Dead, LinkDisabled, aiohttp.ClientError, OSError, TimeoutError) as failed:
                error = _without_url(_first(failed), self.proxy)
            await self.back_off(error, line.mark_down(self.clock.monotonic()))

    async def _serve(self, line: _Line) -> None:
        """Connect and process payloads until Slack asks for a new connection; finish those that arrived."""
        url = await self.open()
        async with asyncio.timeout(self.timing.connect):
            proxy = through(self.proxy)
            socket = await self.client.ws_connect(url, autoping=False, max_msg_size=MESSAGE_BYTES, proxy=proxy)
        try:
            async with asyncio.TaskGroup() as group:
                await self._listen(line, socket, group)
        finally:
            with suppress(TimeoutError):  # a dead peer does not close either
                async with asyncio.timeout(self.timing.close):
                    await socket.close()

    async def _listen(self, line: _Line, socket: aiohttp.ClientWebSocketResponse, group: asyncio.TaskGroup) -> None:
        places = asyncio.Semaphore(IN_FLIGHT)
        await self._expect_hello(socket)
        line.mark_up(self.clock.monotonic())
        self.reset_failures()
        while True:
            said = await self._next(socket)
            kind = said.get("type")
            if kind == "disconnect":
                self._leave(said)
                return
            envelope = said.get("envelope_id")
            if not isinstance(envelope, str):
                self._log.info("account %s: a message without an envelope: %r", self.name, str(kind)[:64])
                continue
            if said.get("retry_attempt"):
                self._log.info("account %s: Slack redelivers an event: %r", self.name, said.get("retry_reason"))
            await places.acquire()
            # Tasks start in the order of creation, so each enters its channel's queue in order.
            handling = group.create_task(self._handle(socket, envelope, said), name=f"slack {self.name} envelope")
            handling.add_done_callback(lambda _: places.release())

    def _leave(self, said: dict[str, Any]) -> None:
        reason = said.get("reason")
        self._log.info("account %s: Slack asks for a new connection: %r", self.name, str(reason)[:64])
        if reason == "link_disabled":
            raise LinkDisabled

    async def _expect_hello(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.timeout(self.timing.hello):
            while (kind := (said := await self._next(socket)).get("type")) != "hello":
                if kind == "disconnect":
                    self._leave(said)
                    raise Dead("Slack wants no connection now.")

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        """Return the next message. Raises `Dead`; any frame, a pong too, proves that the connection lives."""
        unanswered = 0
        while True:
            try:
                async with asyncio.timeout(self.timing.ping):
                    got = await socket.receive()
            except TimeoutError:
                if unanswered >= self.timing.pings:
                    raise Dead("A connection to Slack fell silent.") from None
                unanswered += 1
                await self._send(socket.ping())
                continue
            unanswered = 0
            if got.type is aiohttp.WSMsgType.PING:
                await self._send(socket.pong(got.data))
            elif got.type is aiohttp.WSMsgType.TEXT:
                return json_object(got.data)
            elif got.type is not aiohttp.WSMsgType.PONG:
                raise Dead("A connection to Slack was closed.")

    async def _handle(self, socket: aiohttp.ClientWebSocketResponse, envelope: str, said: dict[str, Any]) -> None:
        """Store a payload, then acknowledge it on its own connection; an unacknowledged one is redelivered."""
        answer = await self._stored(said.get("payload"))
        if not answer.stored or socket.closed:
            return
        body = {"payload": answer.body} if answer.body and said.get("accepts_response_payload") is True else {}
        try:
            await self._send(socket.send_str(json.dumps({"envelope_id": envelope} | body)))
        except (Dead, aiohttp.ClientError, OSError):
            return  # the redelivery of a stored event is a duplicate
        await self.fail_point("J3")

    async def _stored(self, payload: object) -> SlackAck:
        try:
            return await self.take(payload)
        except Exception:  # the loop of an account: one payload must not end the connection (house rule 9)
            logging.getLogger(__name__).exception("account %s: a payload could not be taken", self.name)
            return SlackAck(stored=False)

    async def _send(self, sending: Awaitable[object]) -> None:
        """Write to a connection; one whose writes time out is dead."""
        try:
            async with asyncio.timeout(self.timing.ping):
                await sending
        except TimeoutError:
            raise Dead("A write to a connection to Slack timed out.") from None


def _first(failed: BaseExceptionGroup[Exception]) -> Exception:
    found: Exception | BaseExceptionGroup[Exception] = failed
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _without_url(error: Exception, proxy: Proxy | None) -> Exception:
    """Return an error of our own: others contain the URL, which is a ticket."""
    if isinstance(error, SlackFailure | Dead | LinkDisabled):
        return error
    return Dead(by_proxy(error, proxy) or unconnected("Slack", error))
