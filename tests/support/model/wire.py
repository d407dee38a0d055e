"""Wire form of a reply: the events of a stream, or one JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from tests.support.model.scripts import Call, Reply, UsageFigures


def events(reply: Reply, calls: tuple[Call, ...], model: str) -> Iterable[bytes]:
    """Yield the events of a stream, each whole."""
    yield _chunk(model, {"role": reply.role, "content": ""})
    if reply.reasoning:
        yield _chunk(model, {"reasoning_content": reply.reasoning})
    while True:
        for piece in _pieces(reply.text, reply.chunks):
            yield _chunk(model, {"content": piece})
        if not reply.endless:
            break
    for delta in _call_deltas(calls, reply.fragments):
        yield _chunk(model, {"tool_calls": [delta]})
    if reason := _finish(reply):
        yield _chunk(model, {}, finish=reason)
    if reply.usage is not None:
        yield _event({"model": model, "object": "chat.completion.chunk", "choices": [], "usage": _usage(reply.usage)})
    if reply.done:
        yield b"data: [DONE]\n\n"


def count_events(reply: Reply) -> int:
    """Return how many events a reply is, for a test that cuts it after each."""
    return sum(1 for _ in events(reply, reply.calls, "m"))


async def paced(sent: Iterable[bytes], reply: Reply) -> AsyncIterator[bytes]:
    """Yield events as fast as the reply says; an endless one leaves others their turn."""
    count = 0
    for event in sent:
        if count == reply.stall_after:
            await asyncio.sleep(reply.stall_s)
        if reply.delay_s or reply.endless:
            await asyncio.sleep(reply.delay_s or 0.001)
        yield event
        count += 1
    if count == reply.stall_after:
        await asyncio.sleep(reply.stall_s)


def completion(reply: Reply, calls: tuple[Call, ...], model: str) -> dict[str, Any]:
    """Return the whole answer."""
    message: dict[str, Any] = {"role": reply.role, "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    usage = {"usage": _usage(reply.usage)} if reply.usage is not None else {}
    return {"object": "chat.completion", "model": model, "choices": [choice], **usage}


def error(reply: Reply) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": {"message": reply.error, "type": "scripted", "code": reply.code}}


def _call_deltas(calls: tuple[Call, ...], fragments: int) -> Iterable[dict[str, Any]]:
    for index, call in enumerate(calls):
        known = {"id": call.id} if call.id else {}
        yield {"index": index, **known, "type": "function", "function": {"name": call.name, "arguments": ""}}
    split = [_pieces(call.arguments, fragments) for call in calls]
    for turn in range(fragments):
        for index, pieces in enumerate(split):
            if turn < len(pieces):
                yield {"index": index, "function": {"arguments": pieces[turn]}}


def _finish(reply: Reply) -> str:
    if reply.finish is not None:
        return reply.finish
    return "tool_calls" if reply.calls else "stop"


def _usage(usage: UsageFigures) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _chunk(model: str, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"model": model, "object": "chat.completion.chunk", "choices": [choice]})


def _event(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]
