"""Server of a scripted model: takes requests, finds the script's reply, sends it, and records the outcome."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from aiohttp import web

from tests.support.model import wire
from tests.support.model.nonsense import made
from tests.support.model.scripts import Answering, Call, Question, Reply, Rule, Script, filled
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port


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
    at_once: int
    """Requests that were being answered when it came, this one included."""
    ended: str = "open"
    """`open`, `whole`, `cut` (by the script) or `left` (the client closed the connection)."""


class ScriptedModel:
    """The server. Its script may grow while it runs (`add`); `requests` is what was asked, in order.

    A question is answered by the first that has something to say: `answering`, a rule that fits, the replies for the
    model that is asked, the replies for any, an echo.
    """

    def __init__(
        self,
        replies: Iterable[Reply] = (),
        rules: Iterable[Rule] = (),
        *,
        models: Mapping[str, Iterable[Reply]] | None = None,
        answering: Answering | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Let in only `api_key` (None: everyone); port 0 picks a free one."""
        self.replies = deque(replies)
        self.models = {name: deque(own) for name, own in (models or {}).items()}
        self.rules = list(rules)
        self.requests: list[Asked] = []
        self.host = host
        self.port = port
        self.at_once = 0
        """Requests that are being answered now."""
        self._answering = answering
        self._used: dict[int, int] = {}
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
        """Return the value for `[model] base_url`."""
        return f"http://{self.host}:{self.port}/v1"

    @property
    def most_at_once(self) -> int:
        """The most requests that were ever answered at the same time."""
        return max((asked.at_once for asked in self.requests), default=0)

    def add(self, script: Script) -> None:
        """Append to the script."""
        self.replies.extend(script.replies)
        self.rules.extend(script.rules)
        for name, own in script.models.items():
            self.models.setdefault(name, deque()).extend(own)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something about `requests` is true; raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # --- handlers ---

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        self.at_once += 1
        asked = self._noted(request, body)
        try:
            response = await self._respond(request, body, asked)
        except (asyncio.CancelledError, ConnectionError):
            asked.ended = "left"
            raise
        else:
            asked.ended = "whole" if asked.ended == "open" else asked.ended
        finally:
            self.at_once -= 1
            self._changed.set()
        return response

    async def _models(self, _: web.Request) -> web.Response:
        names = ["scripted", *self.models]
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

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
        asked = Asked(len(self.requests), body, headers, right, time.monotonic(), self.at_once)
        self.requests.append(asked)
        self._changed.set()
        return asked

    def _reply(self, question: Question) -> Reply:
        if self._answering is not None and (said := self._answering(question)) is not None:
            return said
        for n, rule in enumerate(self.rules):
            if rule.fits(question) and (rule.times is None or self._used.get(n, 0) < rule.times):
                self._used[n] = self._used.get(n, 0) + 1
                return rule.reply
        own = self.models.get(question.model) or self.replies
        return own.popleft() if own else Reply(text="You said: {text}")

    async def _respond(self, request: web.Request, body: Mapping[str, Any], asked: Asked) -> web.StreamResponse:
        if not asked.key_is_right:
            wrong = Reply(error="Incorrect API key provided", code="invalid_api_key")
            return web.json_response(wire.error(wrong), status=401)
        question = Question.of(body)
        reply = made(filled(self._reply(question), question))
        await asyncio.sleep(reply.think_s)
        if reply.raw is not None:
            headers = {**reply.headers, "Content-Type": reply.content_type or "text/event-stream"}
            return web.Response(status=reply.status, body=reply.raw.encode(), headers=headers)
        if reply.status != 200:
            return web.json_response(wire.error(reply), status=reply.status, headers=reply.headers)
        calls = tuple(call if call.id is not None else self._with_id(call) for call in reply.calls)
        if (not reply.stream or not body.get("stream")) and not reply.endless:
            return web.json_response(wire.completion(reply, calls, question.model), headers=reply.headers)
        return await self._stream(request, reply, wire.events(reply, calls, question.model), asked)

    async def _stream(
        self, request: web.Request, reply: Reply, events: Iterable[bytes], asked: Asked
    ) -> web.StreamResponse:
        headers = {"Content-Type": reply.content_type or "text/event-stream", **reply.headers}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        sent = 0
        async for event in wire.paced(events, reply):
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
