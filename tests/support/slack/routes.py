"""Routes of the fake: finds the workspace of a request by its token, and refuses tokens as Slack does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from aiohttp import web

from tests.support.slack.checks import Json, Refusal, as_json
from tests.support.slack.files import FILE_AT_MOST, give_download, take_upload
from tests.support.slack.messages import respond
from tests.support.slack.watching import Fetched
from tests.support.slack.wire import METHODS

if TYPE_CHECKING:
    from tests.support.slack.server import FakeSlack, Installed


class Door:
    """The routes of all workspaces on one server."""

    def __init__(self, slack: FakeSlack) -> None:
        self._hub = slack.hub
        self._installed: Installed = slack.installed

    def application(self) -> web.Application:
        """Return the served application."""
        application = web.Application(client_max_size=FILE_AT_MOST)
        application.router.add_route("*", "/api/{method}", self._call)
        application.router.add_get("/link/", self._socket)
        application.router.add_post("/upload/v1/{team}-{file}", self._upload)
        application.router.add_get("/files-pri/{team}-{file}/{rest:.+}", self._download)
        application.router.add_post("/response/{team}/{hook}", self._respond)
        return application

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        if self._hub.drops(method):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if method not in METHODS:
            self._hub.surprise(f"{method}: this fake knows no such method")
            return web.json_response({"ok": False, "error": "unknown_method", "req_method": method})
        try:
            slack = self._owner(await _token(request), METHODS[method].app_token)
        except Refusal as why:
            return web.json_response(why.answer())
        return await slack.take(request, method)

    def _owner(self, token: str, wants_app_token: bool) -> FakeSlack:
        """The workspace of a token. Raises `Refusal`; the codes: https://docs.slack.dev/reference/methods/auth.test."""
        if not token:
            raise Refusal("not_authed")
        by_bot, by_app = self._installed.by_bot_token(token), self._installed.by_app_token(token)
        if by_bot is None and by_app is None:
            raise Refusal("invalid_auth")
        if (by_app is None) is wants_app_token:
            raise Refusal("not_allowed_token_type")
        slack = by_app or by_bot
        assert slack is not None
        if slack.revoked and not wants_app_token:
            raise Refusal(slack.revoked)
        return slack

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        line = self._installed.lines.get(request.query.get("app_id", ""))
        return await line.sockets.serve(request) if line is not None else web.Response(status=404)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        slack = self._installed.teams.get(request.match_info["team"])
        if slack is None:
            return web.Response(status=404)
        if self._hub.drops("upload"):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        answer = await take_upload(slack.teller, request.match_info["file"], request, self._hub.surprise)
        self._hub.changed.set()
        return answer

    async def _download(self, request: web.Request) -> web.StreamResponse:
        slack = self._installed.teams.get(request.match_info["team"])
        token = _bearer(request)
        asked = Fetched(request.path, token, request.headers.get("Accept-Encoding", ""))
        self._hub.fetched.append(asked)
        if self._hub.give is not None:
            return await self._hub.give(request)
        good = slack is not None and not slack.revoked and token == slack.bot_token
        saved = request.match_info["rest"].startswith("download/")
        return give_download(slack.teller if slack else None, request.match_info["file"], allowed=good, saved=saved)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        slack = self._installed.teams.get(request.match_info["team"])
        hook = slack.hooks.given.get(request.match_info["hook"]) if slack else None
        if slack is None or hook is None:
            return web.json_response({"ok": False, "error": "expired_url"}, status=404)
        try:
            content: Json = as_json((await request.read()).decode(), "request", dict, "invalid_payload")
            respond(slack.teller, hook, content)
        except Refusal as why:
            if why.surprise:
                self._hub.surprise(f"response_url: {why.surprise}")
            return web.json_response(why.answer(), status=404 if why.error in ("used_url", "expired_url") else 400)
        finally:
            self._hub.changed.set()
        return web.Response(text="ok")


def _bearer(request: web.BaseRequest) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind == "Bearer" else ""


async def _token(request: web.BaseRequest) -> str:
    """Return the token of a request: in a header, or an argument of a form; in a URL it would be logged everywhere."""
    if token := _bearer(request):
        return token
    if request.content_type != "application/x-www-form-urlencoded":
        return ""
    return dict(parse_qsl((await request.read()).decode(errors="replace"))).get("token", "")
