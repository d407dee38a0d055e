"""Stands in for providers that are not OpenAI's kind: their event streams, written by hand from their documentation.

Anthropic: "Streaming Messages" and "Errors" of its API reference; Google: `streamGenerateContent` of the Gemini API.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.support.ports import free_port

Event = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer of a provider: events in order, or an error."""

    events: Sequence[Event] = ()
    cut_after: int | None = None
    """Events that are sent before the connection is closed, as if that were the end."""
    silent_s: float = 0.0
    """Seconds of silence after them."""
    status: int = 200
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class FakeProvider:
    """A server on loopback that gives its answers in order, and keeps what it was asked."""

    def __init__(self, *answers: Said) -> None:
        """Take what to answer, in order."""
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._runner: web.AppRunner | None = None
        self._over = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        """Start."""
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        port = free_port()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        assert self._runner is not None
        self._over.set()  # whoever was silent has nobody left to be silent for
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("authorization") or request.headers.get("x-goog-api-key", ""))
        said = self._answers.pop(0)
        if said.status != 200:
            return web.json_response(dict(said.body), status=said.status, headers=dict(said.headers))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for name, data in said.events[: said.cut_after]:
            head = f"event: {name}\n" if name else ""
            await response.write(f"{head}data: {json.dumps(data)}\n\n".encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(said.silent_s):
                await self._over.wait()
        return response


# --- Anthropic ------------------------------------------------------------------------------


def anthropic_text(text: str, *, stop: str = "end_turn") -> list[Event]:
    """A text in two pieces."""
    half = len(text) // 2
    return [
        _message_start(),
        *_block(
            0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in (text[:half], text[half:])]
        ),
        *_message_end(stop),
    ]


def anthropic_calls(*calls: tuple[str, str, str], thinking: str = "", stop: str = "tool_use") -> list[Event]:
    """Calls (id, tool, JSON of the arguments in two pieces), after some signed thinking."""
    blocks: list[Event] = []
    n = 0
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ]
        blocks += _block(n, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        n += 1
    for id_, tool, arguments in calls:
        half = len(arguments) // 2
        pieces = ["", arguments[:half], arguments[half:]]
        start: dict[str, Any] = {"type": "tool_use", "id": id_, "name": tool, "input": {}}
        blocks += _block(n, start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
        n += 1
    return [_message_start(), *blocks, *_message_end(stop)]


def _message_start() -> Event:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 1, "cache_read_input_tokens": 5},
    }
    return "message_start", {"type": "message_start", "message": message}


def _block(n: int, start: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]) -> list[Event]:
    begin: Event = ("content_block_start", {"type": "content_block_start", "index": n, "content_block": start})
    end: Event = ("content_block_stop", {"type": "content_block_stop", "index": n})
    middle: list[Event] = [
        ("content_block_delta", {"type": "content_block_delta", "index": n, "delta": delta}) for delta in deltas
    ]
    return [begin, *middle, end]


def _message_end(stop: str) -> list[Event]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        ("message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 12}}),
        ("message_stop", {"type": "message_stop"}),
    ]


# --- Google ---------------------------------------------------------------------------------


def google(*parts: Mapping[str, Any], finish: str = "STOP") -> list[Event]:
    """Parts, one chunk each; the last one says why it ended."""
    events: list[Event] = []
    for n, part in enumerate(parts, 1):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [dict(part)]}, "index": 0}
        if n == len(parts):
            candidate["finishReason"] = finish
        usage = {"promptTokenCount": 20, "candidatesTokenCount": 12, "totalTokenCount": 32}
        events.append(("", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3"}))
    return events
