"""The fake Telegram itself: an HTTP server on loopback, a log of all calls, and what a test asks of both."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.telegram.checks import Json, Refusal, odd
from tests.support.telegram.faults import SHOWING, Call, Fault, too_many
from tests.support.telegram.methods import METHODS
from tests.support.telegram.people import People
from tests.support.telegram.updates import Updates
from tests.support.telegram.watching import Fetched, Hub, Watching, short
from tests.support.telegram.webhook import Webhook
from tests.support.telegram.wire import PARAMETERS, read_parameters, typed
from tests.support.telegram.world import Chats

TOKEN = "123456789:AAFakeTokenOfATestBot-0123456789abc"
CALL_AT_MOST = 60 * 1024 * 1024
_PATH = re.compile(r"/(?P<file>file/)?bot(?P<token>\d+:[A-Za-z0-9_-]{10,})/(?P<rest>[^?]+)")
_POLL_WITH_WEBHOOK = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)


class FakeTelegram(Watching, People):
    """Telegram as one bot meets it. `async with FakeTelegram().serve() as telegram:`, then `telegram.api_root`."""

    def __init__(
        self,
        token: str = TOKEN,
        username: str = "dragoman_test_bot",
        *,
        port: int = 0,
        first_update: int = 100_000_001,
        hub: Hub | None = None,
        bots: dict[str, FakeTelegram] | None = None,
    ) -> None:
        """The bot's id is the number in its token; `hub` and `bots` are shared by several (`another_bot`)."""
        bot: Json = {"id": int(token.split(":")[0]), "is_bot": True, "first_name": "Dragoman", "username": username}
        super().__init__(Chats(bot), Updates(first_update))
        self.token = token
        self.hub = hub or Hub(port)
        self._bots = bots if bots is not None else {}
        self._bots[token] = self
        self.webhook = Webhook(self.updates, self.hub.surprises.append, self.hub.changed.set)
        self._bans: dict[int | None, float] = {}

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[FakeTelegram]:
        """Listen on loopback; port 0 picks a free one."""
        runner = web.ServerRunner(_Door(self.hub, self._bots).server(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.hub.port or free_port()).start()
        self.hub.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            for bot in self._bots.values():
                await bot.webhook.close()
            await runner.cleanup()

    def another_bot(self, token: str, username: str) -> FakeTelegram:
        """A second bot on the same server, with chats of its own; the log and the surprises are shared."""
        return FakeTelegram(token, username, hub=self.hub, bots=self._bots)

    @property
    def api_root(self) -> str:
        """Return the root for a client, in place of https://api.telegram.org."""
        return f"http://127.0.0.1:{self.hub.port}"

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self.hub.port

    # --- what a test does to it ---

    def script(
        self, before: Callable[[Call], Fault | None], after: Callable[[Call], Fault | None] | None = None
    ) -> None:
        """Let these decide about each call of all bots: once it is read, and once it acted (or was refused).

        A fault by `after` can no longer undo what the call did; it replaces the one by `before`.
        """
        self.hub.before = before
        self.hub.after = after

    def drop_before_reading(self, drops: Callable[[str], bool]) -> None:
        """Close connections of these methods before the call is read: nothing is logged."""
        self.hub.drops = drops

    def ban(self, chat: int | None, seconds: float) -> None:
        """Answer whatever shows something there (None: anywhere) with 429 for so long."""
        self._bans[chat] = time.monotonic() + seconds

    async def jump(self, by: int = -(10**8), *, within_s: float = PATIENCE_S) -> None:
        """Go on with other update ids, as soon as the bot confirmed all there are."""
        await self.until(lambda: not self.updates.waiting, within_s)
        self.updates.jump(by)

    # --- the wire ---

    async def take(self, request: web.BaseRequest, method: str) -> web.StreamResponse:
        """Answer one call."""
        raw: Json = {}
        refusal: Refusal | None = None
        try:
            raw = await read_parameters(request)
            p = typed(method, raw) if method in PARAMETERS else raw
        except Refusal as why:
            p, refusal = raw, why
        call = Call(
            len(self.log),
            time.monotonic(),
            self.chats.bot["id"],
            method,
            p,
            p.get("chat_id", p.get("callback_query_id")),
        )
        self.log.append(call)
        self.hub.changed.set()
        try:
            return await self._answer(request, call, refusal)
        finally:
            call.answered_s = time.monotonic()
            self.hub.changed.set()

    async def _answer(self, request: web.BaseRequest, call: Call, refusal: Refusal | None) -> web.StreamResponse:
        fault = call.fault = self.hub.before(call) or self._ban(call)
        if fault is not None and fault.wait_s:
            await asyncio.sleep(fault.wait_s)
        status, answer = await self._outcome(call, refusal) if fault is None or fault.acts else (200, {})
        if self.hub.after is not None:
            fault = call.fault = self.hub.after(call) or fault
        if fault is not None:
            self.hub.changed.set()  # what it did is there to be seen, though nobody may be told
            if fault.hold_s:
                await asyncio.sleep(fault.hold_s)
            if fault.closes:
                return await _closed(request)
            if fault.status:
                call.status, call.answer = fault.status, fault.answer()
                return web.Response(status=fault.status, body=fault.body, content_type=fault.content_type)
        call.status, call.answer = status, answer
        body = json.dumps(answer, ensure_ascii=False).encode()
        return web.Response(status=status, body=body, content_type="application/json")

    async def _outcome(self, call: Call, refusal: Refusal | None) -> tuple[int, Json]:
        """Return the call's own effect, and the status and body of its answer."""
        try:
            if refusal is not None:
                raise refusal
            return 200, {"ok": True, "result": await self._act(call)}
        except Refusal as why:
            if why.surprise:
                self.surprises.append(f"{call.method}: {why.description} {short(call.parameters)}")
            return why.code, why.answer()

    def _ban(self, call: Call) -> Fault | None:
        if not self._bans or call.method not in SHOWING:
            return None
        chat = call.chat if isinstance(call.chat, int) else None
        left = max(self._bans.get(None, 0.0), self._bans.get(chat, 0.0)) - time.monotonic()
        if left <= 0:
            return None
        self.during_ban.append(call)
        return too_many(math.ceil(left))

    async def _act(self, call: Call) -> Any:
        handler = METHODS.get(call.method)
        if handler is not None:
            try:
                result = handler(self.chats, call.parameters)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise odd(f"this fake cannot read the parameters: {error!r}") from error
        elif call.method == "getUpdates":
            result = await self._get_updates(call.parameters)
        elif call.method in PARAMETERS:
            result = self._webhook(call)
        else:
            raise Refusal("Not Found", code=404, surprise=True)
        call.acted = True
        return result

    async def _get_updates(self, p: Json) -> list[Json]:
        if self.webhook.url:
            raise Refusal(_POLL_WITH_WEBHOOK, code=409)
        limit, timeout = p.get("limit", 100), p.get("timeout", 0)
        if not (1 <= limit <= 100 and 0 <= timeout <= 50):
            self.surprises.append(f"getUpdates: limit {limit} and timeout {timeout} are cut to 1 … 100 and 0 … 50")
        if "allowed_updates" in p:
            self.updates.allowed = p["allowed_updates"]
        return await self.updates.take(p.get("offset", 0), min(max(limit, 1), 100), min(max(timeout, 0), 50))

    def _webhook(self, call: Call) -> Any:
        if call.method == "setWebhook":
            return self.webhook.set(call.parameters)
        return self.webhook.delete(call.parameters) if call.method == "deleteWebhook" else self.webhook.info()


class _Door:
    """Finds the bot of a request. Without routes: it is on the path of benchmarks."""

    def __init__(self, hub: Hub, bots: Mapping[str, FakeTelegram]) -> None:
        self._hub = hub
        self._bots = bots

    def server(self) -> web.Server:
        """The handler of all requests."""

        def request(*args: Any) -> web.BaseRequest:
            return web.BaseRequest(*args, loop=asyncio.get_running_loop(), client_max_size=CALL_AT_MOST)

        return web.Server(self._handle, request_factory=request, handler_cancellation=True, access_log=None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return _refused(Refusal("Not Found", code=404))
        bot = self._bots.get(match["token"])
        if bot is None:
            return _refused(Refusal("Unauthorized", code=401))
        if match["file"]:
            self._hub.fetched.append(Fetched(match["rest"], request.headers.get("Accept-Encoding", "")))
            return await self._hub.give(request) if self._hub.give is not None else _file(bot, match["rest"])
        if self._hub.drops(match["rest"]):
            return await _closed(request)
        return await bot.take(request, match["rest"])


def _refused(refusal: Refusal) -> web.Response:
    return web.json_response(refusal.answer(), status=refusal.code)


def _file(bot: FakeTelegram, path: str) -> web.Response:
    document = bot.chats.files.get(path.rpartition("/")[2])
    if document is None:
        return _refused(Refusal("Not Found", code=404))
    return web.Response(body=document.content, content_type="application/octet-stream")


async def _closed(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
