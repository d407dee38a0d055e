"""Stands in for a model's server: speaks OpenAI-compatible chat completions, and answers from a script.

In a test: `async with ScriptedModel(replies=[Reply(text="Hi")]) as server:` and ask `server.base_url`.
As a program: `python -m tests.support.model_server --port 0 --script file.json`; the first line it prints is
`{"port": …, "base_url": …}`. While it runs, `GET /_log` lists the requests and `POST /_script` adds replies and rules.

A script is `{"replies": [Reply…], "rules": [{"text": regex, "results": number, "reply": Reply}…]}`, where a Reply has
the fields of `Reply` below. A question takes the first rule that fits, else the next of the replies, else it is echoed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from tests.support.ports import free_port

# --- scripts --------------------------------------------------------------------------------


class Part(BaseModel):
    """A piece of a script; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(Part):
    """A tool call. `arguments` is JSON text, sent as it is, so that it may be malformed."""

    name: str
    arguments: str = "{}"
    id: str | None = None
    """None: a fresh one. Empty: none is sent."""


class UsageFigures(Part):
    """What the answer says it cost."""

    prompt: int = 10
    completion: int = 5
    cached: int = 0


class Reply(Part):
    """One answer, and what goes wrong with it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: UsageFigures | None = UsageFigures()
    finish: str | None = None
    """The finish reason; None: `tool_calls` or `stop`. Empty: none is sent."""

    chunks: int = Field(default=8, ge=1)
    """Events that the text is split into."""
    fragments: int = Field(default=1, ge=1)
    """Events that each call's arguments are split into; the calls' fragments take turns."""
    think_s: float = 0.0
    """Seconds before the first byte."""
    delay_s: float = 0.0
    """Seconds before each event."""

    stall_after: int | None = None
    """Events sent before it falls silent for `stall_s`."""
    stall_s: float = 3600.0
    cut_after: int | None = None
    """Events sent before the connection is closed."""
    done: bool = True
    """Ends with `[DONE]`."""
    stream: bool = True
    """False: a whole completion in one JSON, whatever was asked for."""
    status: int = 200
    """Another one: an error response with `error` as its message, or with `raw`."""
    error: str = "scripted failure"
    code: str | None = None
    headers: dict[str, str] = {}
    raw: str | None = None
    """The body instead of all the above, with `content_type`."""
    content_type: str | None = None


class Rule(Part):
    """A reply for every question that fits."""

    text: str = ""
    """A regular expression to be found in the last user message."""
    results: int | None = None
    """The number of tool results after it; None: any."""
    reply: Reply

    def fits(self, question: Question) -> bool:
        """Say whether this rule answers the question."""
        return self.results in (None, question.results) and re.search(self.text, question.text) is not None


class Script(Part):
    """Replies in order, and rules."""

    replies: tuple[Reply, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What a request asks, as far as scripts look at it."""

    text: str
    results: int

    @staticmethod
    def of(body: Mapping[str, Any]) -> Question:
        """Read the last user message and count the tool results after it."""
        results = 0
        for message in reversed(body.get("messages") or []):
            if message.get("role") == "user":
                return Question(text=str(message.get("content") or ""), results=results)
            results += message.get("role") == "tool"
        return Question(text="", results=results)


@dataclass(slots=True)
class Asked:
    """One request as it came, and how it ended."""

    index: int
    body: dict[str, Any]
    headers: dict[str, str]
    """Lower case; without the key."""
    key_is_right: bool
    at_s: float
    """Seconds on the server's own monotonic clock."""
    ended: str = "open"
    """`open`, `whole`, `cut` (by the script) or `left` (the client closed the connection)."""


# --- the server -----------------------------------------------------------------------------


class ScriptedModel:
    """The server. Its script may grow while it runs (`add`); `requests` is what was asked, in order."""

    def __init__(
        self,
        replies: Iterable[Reply] = (),
        rules: Iterable[Rule] = (),
        *,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Let in only `api_key` (None: everyone); port 0 picks a free one."""
        self.replies = deque(replies)
        self.rules = list(rules)
        self.requests: list[Asked] = []
        self.host = host
        self.port = port
        self._api_key = api_key
        self._runner: web.AppRunner | None = None
        self._calls = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/_log", self._log)
        app.router.add_post("/_script", self._extend)
        # A handler whose client left is cancelled, and the request is marked so.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port or free_port()).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; what is still being answered is cut."""
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """What `[model] base_url` is set to."""
        return f"http://{self.host}:{self.port}/v1"

    def add(self, script: Script) -> None:
        """Append to the script."""
        self.replies.extend(script.replies)
        self.rules.extend(script.rules)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something about `requests` is true; raises `TimeoutError` after 5 s."""
        async with asyncio.timeout(5):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # --- handlers ---

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        asked = self._noted(request, body)
        if not asked.key_is_right:
            return _error(Reply(status=401, error="Incorrect API key provided", code="invalid_api_key"))
        reply = self._reply(Question.of(body))
        try:
            await asyncio.sleep(reply.think_s)
            response = await self._respond(request, body, reply, asked)
        except (asyncio.CancelledError, ConnectionError):
            asked.ended = "left"
            raise
        else:
            asked.ended = "whole" if asked.ended == "open" else asked.ended
        finally:
            self._changed.set()
        return response

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def _log(self, _: web.Request) -> web.Response:
        return web.json_response([asdict(asked) for asked in self.requests])

    async def _extend(self, request: web.Request) -> web.Response:
        try:
            self.add(Script.model_validate_json(await request.read()))
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(status=204)

    # --- answering ---

    def _noted(self, request: web.Request, body: dict[str, Any]) -> Asked:
        headers = {name.lower(): value for name, value in request.headers.items()}
        key = headers.pop("authorization", "")
        right = self._api_key is None or key == f"Bearer {self._api_key}"
        asked = Asked(len(self.requests), body, headers, right, time.monotonic())
        self.requests.append(asked)
        self._changed.set()
        return asked

    def _reply(self, question: Question) -> Reply:
        for rule in self.rules:
            if rule.fits(question):
                return rule.reply
        if self.replies:
            return self.replies.popleft()
        return Reply(text=f"You said: {question.text}")

    async def _respond(
        self, request: web.Request, body: Mapping[str, Any], reply: Reply, asked: Asked
    ) -> web.StreamResponse:
        if reply.raw is not None:
            content_type = reply.content_type or "text/event-stream"
            headers = {**reply.headers, "Content-Type": content_type}
            return web.Response(status=reply.status, body=reply.raw.encode(), headers=headers)
        if reply.status != 200:
            return _error(reply)
        model = str(body.get("model"))
        calls = tuple(call if call.id is not None else self._with_id(call) for call in reply.calls)
        if not reply.stream or not body.get("stream"):
            return web.json_response(_completion(reply, calls, model), headers=reply.headers)
        response = web.StreamResponse(
            headers={"Content-Type": reply.content_type or "text/event-stream", **reply.headers}
        )
        await response.prepare(request)
        sent = 0
        async for event in _paced(_events(reply, calls, model), reply):
            if sent == reply.cut_after:
                break
            await response.write(event)
            sent += 1
        if reply.cut_after is not None and request.transport is not None:
            asked.ended = "cut"
            request.transport.close()
            return response
        await response.write_eof()
        return response

    def _with_id(self, call: Call) -> Call:
        self._calls += 1
        return call.model_copy(update={"id": f"call_scripted_{self._calls}"})


def _error(reply: Reply) -> web.Response:
    body = {"error": {"message": reply.error, "type": "scripted", "code": reply.code}}
    return web.json_response(body, status=reply.status, headers=reply.headers)


# --- what goes over the wire ----------------------------------------------------------------


async def _paced(events: Iterable[bytes], reply: Reply) -> AsyncIterator[bytes]:
    sent = 0
    for event in events:
        if sent == reply.stall_after:
            await asyncio.sleep(reply.stall_s)
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        yield event
        sent += 1
    if sent == reply.stall_after:
        await asyncio.sleep(reply.stall_s)


def _events(reply: Reply, calls: tuple[Call, ...], model: str) -> Iterable[bytes]:
    yield _chunk(model, {"role": "assistant", "content": ""})
    if reply.reasoning:
        yield _chunk(model, {"reasoning_content": reply.reasoning})
    for piece in _pieces(reply.text, reply.chunks):
        yield _chunk(model, {"content": piece})
    for delta in _call_deltas(calls, reply.fragments):
        yield _chunk(model, {"tool_calls": [delta]})
    if reason := _finish(reply):
        yield _chunk(model, {}, finish=reason)
    if reply.usage is not None:
        yield _event({"model": model, "object": "chat.completion.chunk", "choices": [], "usage": _usage(reply.usage)})
    if reply.done:
        yield b"data: [DONE]\n\n"


def _call_deltas(calls: tuple[Call, ...], fragments: int) -> Iterable[dict[str, Any]]:
    for index, call in enumerate(calls):
        known = {"id": call.id} if call.id else {}
        yield {"index": index, **known, "type": "function", "function": {"name": call.name, "arguments": ""}}
    split = [_pieces(call.arguments, fragments) for call in calls]
    for turn in range(fragments):
        for index, pieces in enumerate(split):
            if turn < len(pieces):
                yield {"index": index, "function": {"arguments": pieces[turn]}}


def _completion(reply: Reply, calls: tuple[Call, ...], model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    usage = {"usage": _usage(reply.usage)} if reply.usage is not None else {}
    return {"object": "chat.completion", "model": model, "choices": [choice], **usage}


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


# --- as a program ---------------------------------------------------------------------------


async def _serve(port: int, script: Script, api_key: str | None) -> None:
    async with ScriptedModel(replies=script.replies, rules=script.rules, api_key=api_key, port=port) as server:
        sys.stdout.write(json.dumps({"port": server.port, "base_url": server.base_url}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An OpenAI-compatible model server that answers from a script.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--script", type=Path, help="a JSON file; without it every question is echoed")
    parser.add_argument("--api-key", help="the only key that is let in")
    options = parser.parse_args()
    script = Script.model_validate_json(options.script.read_bytes()) if options.script else Script()
    try:
        asyncio.run(_serve(options.port, script, options.api_key))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
