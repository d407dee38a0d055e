"""A small chat platform on loopback, the other side of `tests.support.channel`: tests speak through it to a daemon.

JSON lines over TCP. The channel connects; the platform pushes `event` frames until each is acknowledged, over
reconnects too, and answers `send` and `edit` frames. It keeps what people would see, and a log in one order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port


@dataclass(slots=True, kw_only=True)
class Shown:
    """One message as people see it."""

    id: str
    chat: str
    kind: str
    text: str
    rows: list[dict[str, Any]]
    repeated: bool
    edits: int = 0

    def handle(self, verb: str, row: int = 0) -> str:
        """The handle of a button on this message."""
        for button in self.rows[row]["buttons"]:
            if button["verb"] == verb:
                return button["handle"]
        raise LookupError(f"there is no button {verb} on {self.rows[row]}")


@dataclass(slots=True)
class FakePlatform:
    """The platform. Scripts: `answer_send` decides what a send is answered with."""

    port: int = 0
    shown: dict[str, Shown] = field(default_factory=dict[str, Shown])
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    toasts: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    answer_send: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda frame: {}
    """Given a `send` or `edit` frame: fields of the answer (`outcome` for a failure), or None for no answer at all."""
    _unacked: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    _ids: Any = field(default_factory=itertools.count)
    _writer: asyncio.StreamWriter | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[FakePlatform]:
        """Listen on a free port of loopback."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port or free_port(), limit=4_194_304)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            if self._writer is not None:
                self._writer.close()

    # --- what people do -----------------------------------------------------------------------

    async def say(self, user: str, text: str, *, chat: str | None = None, direct: bool = True, key: str = "") -> str:
        """Write as a person; returns the event's key at once. `chat` defaults to the direct chat with them."""
        return await self._event(
            {
                "type": "message",
                "user": user,
                "chat": chat or f"d{user}",
                "direct": direct,
                "addressed": True,
                "text": text,
            },
            key,
        )

    async def press(self, user: str, handle: str, *, chat: str | None = None, reason: str = "", key: str = "") -> str:
        """Press a button as a person; returns the event's key at once."""
        return await self._event(
            {"type": "press", "user": user, "chat": chat or f"d{user}", "handle": handle, "reason": reason}, key
        )

    async def acked(self, key: str) -> dict[str, Any]:
        """Wait until the daemon acknowledged an event; returns its answer."""
        await self.until(lambda: key in self.toasts)
        return self.toasts[key]

    # --- what people see ----------------------------------------------------------------------

    def in_chat(self, chat: str, kind: str | None = None) -> list[Shown]:
        """Messages of a chat in the order they appeared."""
        return [m for m in self.shown.values() if m.chat == chat and kind in (None, m.kind)]

    async def see(
        self, chat: str, kind: str, contains: str = "", *, count: int = 1, within_s: float = PATIENCE_S
    ) -> Shown:
        """Wait for the `count`-th message of a kind that contains a text; returns it."""

        def found() -> list[Shown]:
            return [m for m in self.in_chat(chat, kind) if contains in _all_text(m)]

        try:
            await self.until(lambda: len(found()) >= count, within_s)
        except TimeoutError:
            raise AssertionError(f"no {kind} with {contains!r} in {chat}: {self.in_chat(chat)}") from None
        return found()[count - 1]

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait until a condition holds. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(condition)

    # --- the wire -----------------------------------------------------------------------------

    async def _event(self, event: dict[str, Any], key: str) -> str:
        key = key or f"e{next(self._ids)}"
        frame = {"op": "event", "key": key, **event}
        self._unacked[key] = frame
        self.log.append(frame)
        await self._write(frame)
        return key

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            for frame in list(self._unacked.values()):
                await self._write(frame)
            while line := await reader.readline():
                await self._take(json.loads(line))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            if self._writer is writer:
                self._writer = None

    async def _take(self, frame: dict[str, Any]) -> None:
        self.log.append(frame)
        if frame["op"] == "ack":
            self._unacked.pop(frame["key"], None)
            self.toasts[frame["key"]] = frame
        else:
            answer = self.answer_send(frame)
            if answer is not None:
                answer = {"op": "answer", "seq": frame["seq"], **answer}
                if "outcome" not in answer:
                    answer["id"] = self._show(frame)
                await self._write(answer)
            elif frame.get("unanswered_but_shown", True):
                self._show(frame)
        async with self._changed:
            self._changed.notify_all()

    def _show(self, frame: dict[str, Any]) -> str:
        if frame["op"] == "edit":
            message = self.shown[frame["id"]]
            message.text, message.rows, message.edits = frame["text"], frame["rows"], message.edits + 1
            return message.id
        message = Shown(
            id=f"m{len(self.shown)}",
            chat=frame["chat"],
            kind=frame["kind"],
            text=frame["text"],
            rows=frame["rows"],
            repeated=frame["repeated"],
        )
        self.shown[message.id] = message
        return message.id

    async def _write(self, frame: dict[str, Any]) -> None:
        if self._writer is not None:
            try:
                self._writer.write(json.dumps(frame).encode() + b"\n")
                await self._writer.drain()
            except ConnectionError:
                self._writer = None


def _all_text(message: Shown) -> str:
    return "\n".join([message.text, *(f"{row['title']} {row['rendered']} {row['outcome']}" for row in message.rows)])
