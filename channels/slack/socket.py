"""The way in by Socket Mode: two connections that Slack sends payloads over, each watched and replaced when it is dead.

On aiohttp, not on the client of slack_sdk: that one works in tasks that nobody awaits and so loses the order within a
channel, answers an envelope on whatever connection it has by then, closes the old one before it has a new one, opens a
session of its own, and logs what it hears. Its wall clock would take a jump of the time for a dead connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp

from channels._shared.http import by_proxy
from channels.slack.request import SlackFailure
from channels.slack.web import SlackAck, Take
from gateway.domain.proxy import Proxy, through
from gateway.ports import Clock

SOCKETS = 2
"""One goes on while the other is replaced. Slack allows ten for all machines of an app."""
IN_FLIGHT = 64
"""Payloads of one connection that are being stored; what comes then waits in the connection."""
MESSAGE_BYTES = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds."""

    connect: float = 10.0
    hello: float = 10.0
    """Slack says hello on a connection that works; one without it is dead."""
    ping: float = 10.0
    """After so long without a word we ask, with a ping."""
    pings: int = 2
    """So many without any answer: the connection is dead, 30 s after its last word."""
    told_after: float = 10.0
    """So long without any connection is no trouble yet: it is being replaced."""
    one_told_after: float = 20.0
    """So long with one connection only is no trouble yet: a dead one shows within a minute of its last word."""
    close: float = 3.0


class Dead(Exception):
    """A connection broke, or says nothing any more."""


class LinkDisabled(Exception):
    """Somebody switched Socket Mode off."""


@dataclass(slots=True)
class _Line:
    """One of the connections."""

    up: bool = False
    """It said hello, and nothing bad is known of it."""
    since: float = 0.0
    """When it came up, or went down."""

    def rose(self, now: float) -> None:
        """It stands from now on."""
        self.up, self.since = True, now

    def fell(self, now: float) -> float:
        """It stands no more, or never did. Return for how long it stood."""
        if not self.up:
            return 0.0
        stood_s, self.up, self.since = now - self.since, False, now
        return stood_s


@dataclass(slots=True, kw_only=True)
class Sockets:
    """The connections of one account."""

    name: str
    """The account's, for tasks and the log."""
    open: Callable[[], Awaitable[str]]
    """Asks Slack where to connect to; raises `SlackFailure`."""
    bear: Callable[[Exception | None, float], Awaitable[None]]
    """Says what is wrong, and waits as long as that is worth before the next try. Told why a connection ended (None:
    Slack asked for another one) and for how many seconds it stood."""
    well: Callable[[], None]
    """Told when a connection stands."""
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
        """Why nothing, or not all, is heard now; empty when all is well."""
        now = self.clock.monotonic()
        down = [now - line.since for line in self._lines if not line.up]
        if down and len(down) == len(self._lines) and min(down) > self.timing.told_after:
            return f"No connection to Slack has stood for {min(down):.0f} s."
        if down and max(down) > self.timing.one_told_after:
            return f"One of {SOCKETS} connections to Slack has not stood for {max(down):.0f} s."
        return ""

    def stand(self) -> bool:
        """Whether anything is heard now: one connection is enough for that."""
        return any(line.up for line in self._lines)

    async def _keep(self, line: _Line) -> None:
        """Have one connection, always."""
        while True:
            error: Exception | None = None
            try:
                await self._serve(line)
            except* (SlackFailure, Dead, LinkDisabled, aiohttp.ClientError, OSError, TimeoutError) as failed:
                error = _told(_first(failed), self.proxy)
            await self.bear(error, line.fell(self.clock.monotonic()))

    async def _serve(self, line: _Line) -> None:
        """Connect and take what comes, until Slack wants another connection. What it brought is finished."""
        url = await self.open()
        async with asyncio.timeout(self.timing.connect):
            proxy = through(self.proxy)
            socket = await self.client.ws_connect(url, autoping=False, max_msg_size=MESSAGE_BYTES, proxy=proxy)
        try:
            async with asyncio.TaskGroup() as group:
                await self._listen(line, socket, group)
        finally:
            with suppress(TimeoutError):  # whoever is dead does not close either
                async with asyncio.timeout(self.timing.close):
                    await socket.close()

    async def _listen(self, line: _Line, socket: aiohttp.ClientWebSocketResponse, group: asyncio.TaskGroup) -> None:
        places = asyncio.Semaphore(IN_FLIGHT)
        await self._expect_hello(socket)
        line.rose(self.clock.monotonic())
        self.well()
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
                self._log.info("account %s: Slack sends something again: %r", self.name, said.get("retry_reason"))
            await places.acquire()
            # Tasks begin in the order in which they are made, so each finds its place in its channel's queue.
            handling = group.create_task(self._handle(socket, envelope, said), name=f"slack {self.name} envelope")
            handling.add_done_callback(lambda _: places.release())

    def _leave(self, said: dict[str, Any]) -> None:
        reason = said.get("reason")
        self._log.info("account %s: Slack wants another connection: %r", self.name, str(reason)[:64])
        if reason == "link_disabled":
            raise LinkDisabled

    async def _expect_hello(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.timeout(self.timing.hello):
            while (kind := (said := await self._next(socket)).get("type")) != "hello":
                if kind == "disconnect":
                    self._leave(said)
                    raise Dead("Slack wants no connection now.")

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        """Return the next message. Raises `Dead`; anything that comes, a pong too, is a sign of life."""
        unanswered = 0
        while True:
            try:
                async with asyncio.timeout(self.timing.ping):
                    got = await socket.receive()
            except TimeoutError:
                if unanswered >= self.timing.pings:
                    raise Dead("A connection to Slack said nothing any more.") from None
                unanswered += 1
                await self._send(socket.ping())
                continue
            unanswered = 0
            if got.type is aiohttp.WSMsgType.PING:
                await self._send(socket.pong(got.data))
            elif got.type is aiohttp.WSMsgType.TEXT:
                return _object(got.data)
            elif got.type is not aiohttp.WSMsgType.PONG:
                raise Dead("A connection to Slack was closed.")

    async def _handle(self, socket: aiohttp.ClientWebSocketResponse, envelope: str, said: dict[str, Any]) -> None:
        """Store, then acknowledge, on the connection that it came over: what is not acknowledged comes again."""
        answer = await self._stored(said.get("payload"))
        if not answer.stored or socket.closed:
            return
        body = {"payload": answer.body} if answer.body and said.get("accepts_response_payload") is True else {}
        try:
            await self._send(socket.send_str(json.dumps({"envelope_id": envelope} | body)))
        except (Dead, aiohttp.ClientError, OSError):
            return  # what is stored is known when it comes again
        await self.fail_point("J3")

    async def _stored(self, payload: object) -> SlackAck:
        try:
            return await self.take(payload)
        except Exception:  # the loop of an account: one payload must not end the connection (house rule 9)
            logging.getLogger(__name__).exception("account %s: a payload could not be taken", self.name)
            return SlackAck(stored=False)

    async def _send(self, sending: Awaitable[object]) -> None:
        """Write to a connection. One that takes nothing for long is dead."""
        try:
            async with asyncio.timeout(self.timing.ping):
                await sending
        except TimeoutError:
            raise Dead("A connection to Slack takes nothing any more.") from None


def _object(text: str) -> dict[str, Any]:
    """Read a message; one that is no JSON object says nothing."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _first(failed: BaseExceptionGroup[Exception]) -> Exception:
    found: Exception | BaseExceptionGroup[Exception] = failed
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _told(error: Exception, proxy: Proxy | None) -> Exception:
    """Return one of ours: others say in their text where they connected to, and that is a ticket."""
    if isinstance(error, SlackFailure | Dead | LinkDisabled):
        return error
    if why := by_proxy(error, proxy):
        return Dead(why)
    what = "too late" if isinstance(error, TimeoutError) else type(error).__name__
    return Dead(f"No connection to Slack: {what}.")
