"""The fake Slack itself: a server on loopback, a log of all calls, and what a test asks of both."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.ports import free_port
from tests.support.slack.app import ALL_SCOPES, App
from tests.support.slack.checks import Json, Refusal
from tests.support.slack.faults import Call, Fault, too_many
from tests.support.slack.methods import HANDLERS
from tests.support.slack.people import People
from tests.support.slack.pressing import Hooks, Pressing
from tests.support.slack.pushes import Pushes
from tests.support.slack.routes import Door
from tests.support.slack.sockets import Socket, Sockets
from tests.support.slack.telling import Teller
from tests.support.slack.watching import Hub, Watching, short
from tests.support.slack.wire import METHODS, read_arguments, typed
from tests.support.slack.world import Workspace


@dataclass(slots=True)
class Line:
    """An app's ways to hear: both are there, its configuration says which is used."""

    app: App
    sockets: Sockets
    pushes: Pushes


@dataclass(slots=True)
class Installed:
    """All workspaces and apps of one server."""

    teams: dict[str, FakeSlack] = field(default_factory=dict[str, "FakeSlack"])
    lines: dict[str, Line] = field(default_factory=dict[str, Line])
    """By the app's id."""

    def by_bot_token(self, token: str) -> FakeSlack | None:
        """Whose token it is."""
        return next((team for team in self.teams.values() if team.bot_token == token), None)

    def by_app_token(self, token: str) -> FakeSlack | None:
        """A workspace of the app whose token it is."""
        return next((team for team in self.teams.values() if team.app.app_token == token), None)


class FakeSlack(Watching, People, Pressing):
    """One app in one workspace. `async with FakeSlack().serve() as slack:`, then `slack.api_root` and the tokens."""

    def __init__(
        self,
        team: str = "T0AA",
        *,
        app: App | None = None,
        port: int = 0,
        hub: Hub | None = None,
        installed: Installed | None = None,
    ) -> None:
        """`app`, `hub` and `installed` are shared by several workspaces (`another_workspace`)."""
        self.hub = hub or Hub(port or free_port())
        self.installed = installed or Installed()
        self.app = app or self._new_app(team)
        self.world = Workspace(team, f"U0BOT{team[1:]}", f"B0BOT{team[1:]}", self.app.id, domain=f"ws-{team.lower()}")
        self.world.root, self.world.scopes = self.root, set(ALL_SCOPES)
        self.bot_token = f"xoxb-{team}-fake-bot-token"
        self.revoked = ""
        """The error that every call with the bot's token is answered with, as `token_revoked`; empty: none."""
        self.troubles = []
        self.hooks = Hooks()
        self.teller = Teller(self.world, self.app)
        self._bans: dict[tuple[str, str], float] = {}
        self.person(self.world.bot, "dragoman", bot=True)
        self.installed.teams[team] = self

    def _new_app(self, team: str) -> App:
        id = f"A0{team[1:]}"
        token, secret = f"xapp-1-{id}-fake-app-token", f"signing-secret-of-{id}"
        app = App(id, token, secret, self.hub.changed.set, self.hub.surprise)
        self.installed.lines[id] = Line(app, Sockets(app, self.root), Pushes(app))
        app.way = self.installed.lines[id].sockets
        return app

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[FakeSlack]:
        """Listen on loopback; close everything in the end. Entered again, it goes on where it was, on the same port."""
        runner = web.AppRunner(
            Door(self).application(), shutdown_timeout=0.1, handler_cancellation=True, access_log=None
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.hub.port).start()
        for line in self.installed.lines.values():
            line.app.resume()
        try:
            yield self
        finally:
            for line in self.installed.lines.values():
                await line.app.close()
                await line.pushes.close()
                await line.sockets.close()
            await runner.cleanup()

    def another_workspace(self, team: str, *, same_app: bool = False) -> FakeSlack:
        """A second workspace on the same server, with an app of its own unless told otherwise; the log is shared."""
        return FakeSlack(team, app=self.app if same_app else None, hub=self.hub, installed=self.installed)

    # --- where and who ---

    @property
    def root(self) -> str:
        """Return the address on which it listens."""
        return f"http://127.0.0.1:{self.hub.port}"

    @property
    def api_root(self) -> str:
        """Return the root for a client, in place of https://slack.com/api/."""
        return f"{self.root}/api/"

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self.hub.port

    @property
    def team(self) -> str:
        """The workspace's id."""
        return self.world.team

    @property
    def bot(self) -> str:
        """The bot's user id."""
        return self.world.bot

    @property
    def app_token(self) -> str:
        """For Socket Mode."""
        return self.app.app_token

    @property
    def signing_secret(self) -> str:
        """For HTTP."""
        return self.app.signing_secret

    @property
    def line(self) -> Line:
        """The app's sockets and posts."""
        return self.installed.lines[self.app.id]

    @property
    def sockets(self) -> list[Socket]:
        """The open sockets of the app, the oldest first."""
        return self.line.sockets.open

    @property
    def pushes(self) -> Pushes:
        """The app's posts."""
        return self.line.pushes

    # --- what a test does to it ---

    def use_http(self, events: str, *, interactivity: str = "", commands: str = "") -> None:
        """Deliver by posts to these URLs instead of sockets; one URL may serve for all."""
        self.app.socket_mode, self.app.way = False, self.pushes
        self.pushes.events_url = events
        self.pushes.interactivity_url, self.pushes.commands_url = interactivity, commands

    def use_sockets(self) -> None:
        """Deliver by Socket Mode, as it does from the start."""
        self.app.socket_mode, self.app.way = True, self.line.sockets

    def install(self, manifest: Json) -> None:
        """Configure the app, what its bot may do and where it hears of things, from a manifest.

        Raises `AssertionError` for a bad one.
        """
        self.world.scopes = set(self.app.install(manifest))
        if self.app.socket_mode:
            self.use_sockets()
            return
        settings, commands = manifest["settings"], manifest.get("features", {}).get("slash_commands", [])
        events = settings.get("event_subscriptions", {}).get("request_url", "")
        pressed = settings.get("interactivity", {}).get("request_url", "")
        self.use_http(events, interactivity=pressed, commands=commands[0]["url"] if commands else "")

    def script(
        self, before: Callable[[Call], Fault | None], after: Callable[[Call], Fault | None] | None = None
    ) -> None:
        """Let these decide about each call of all workspaces: once it is read, and once it acted (or was refused).

        A fault by `after` can no longer undo what the call did; it replaces the one by `before`.
        """
        self.hub.before = before
        self.hub.after = after

    def drop_before_reading(self, drops: Callable[[str], bool]) -> None:
        """Close connections of these methods before the call is read: nothing is logged."""
        self.hub.drops = drops

    def ban(self, seconds: float, *, method: str = "", channel: str = "") -> None:
        """Answer this method, in this channel (empty: any), with 429 for so long."""
        self._bans[method, channel] = time.monotonic() + seconds

    def uninstall(self) -> None:
        """Somebody removes the app from the workspace: its token is worthless, and it hears of that."""
        self.teller.event({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [self.bot]}})
        self.teller.event({"type": "app_uninstalled"})
        self.revoked = "account_inactive"

    # --- the wire ---

    async def take(self, request: web.Request, method: str) -> web.StreamResponse:
        """Answer one call whose token is good."""
        raw: Json = {}
        refusal: Refusal | None = None
        try:
            raw = await read_arguments(request, method)
            p = typed(method, raw)
        except Refusal as why:
            p, refusal = {key: value for key, value in raw.items() if key != "token"}, why
        named = str(p.get("channel") or p.get("channel_id") or "")
        call = Call(len(self.log), time.monotonic(), self.team, method, p, named)
        self.log.append(call)
        self.hub.changed.set()
        try:
            return await self._answer(request, call, refusal)
        finally:
            call.answered_s = time.monotonic()
            self.hub.changed.set()

    async def _answer(self, request: web.Request, call: Call, refusal: Refusal | None) -> web.StreamResponse:
        fault = call.fault = self.hub.before(call) or self._ban(call) or self.hub.pace.refused(call)
        if fault is not None and fault.wait_s:
            await asyncio.sleep(fault.wait_s)
        answer: Json = self._outcome(call, refusal) if fault is None or fault.acts else {}
        if self.hub.after is not None:
            fault = call.fault = self.hub.after(call) or fault
        if fault is not None:
            self.hub.changed.set()  # what it did is there to be seen, though nobody may be told
            if fault.hold_s:
                await asyncio.sleep(fault.hold_s)
            if fault.closes:
                return closed(request)
            if fault.tears:
                return await torn(request, answer)
            if fault.status:
                call.status, call.answer = fault.status, fault.answer()
                return web.Response(
                    status=fault.status, body=fault.body, content_type=fault.content_type, headers=dict(fault.headers)
                )
        call.status, call.answer = 200, answer
        return web.json_response(answer, headers=self._scope_headers(call.method))

    def _scope_headers(self, method: str) -> dict[str, str]:
        accepted = ",".join(METHODS[method].scope)
        return {"x-oauth-scopes": ",".join(sorted(self.world.scopes)), "x-accepted-oauth-scopes": accepted}

    def _outcome(self, call: Call, refusal: Refusal | None) -> Json:
        """Return the call's own effect, and the body of its answer."""
        try:
            self._permitted(call.method)
            if refusal is not None:
                raise refusal
            result = self._act(call)
        except Refusal as why:
            if why.surprise:
                self.hub.surprise(f"{call.method}: {why.surprise} {short(call.parameters)}")
            return why.answer()
        return {"ok": True, **result}

    def _permitted(self, method: str) -> None:
        known = METHODS[method]
        held = self.app.token_scopes if known.app_token else self.world.scopes
        if known.scope and not held & set(known.scope):
            provided = ",".join(sorted(held))
            raise Refusal("missing_scope", needed=",".join(known.scope), provided=provided)

    def _act(self, call: Call) -> Json:
        if call.method == "apps.connections.open":
            if not self.app.socket_mode:
                raise Refusal("socket_mode_not_enabled", surprise="Socket Mode is off in the app's configuration")
            result: Json = {"url": self.line.sockets.ticket()}
        else:
            try:
                result = HANDLERS[call.method](self.teller, call.parameters)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise Refusal("internal_error", surprise=f"this fake cannot read the arguments: {error!r}") from error
        call.acted = True
        return result

    def _ban(self, call: Call) -> Fault | None:
        names = [(m, c) for m in ("", call.method) for c in ("", call.channel)]
        left = max((self._bans.get(name, 0.0) for name in names), default=0.0) - time.monotonic()
        if left <= 0:
            return None
        self.during_ban.append(call)
        return too_many(math.ceil(left))


def closed(request: web.BaseRequest) -> web.StreamResponse:
    """The connection breaks."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def torn(request: web.BaseRequest, answer: Json) -> web.StreamResponse:
    """The connection ends in the middle of the body."""
    body = json.dumps(answer).encode()
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
