"""Web page: serves the page, receives messages and presses over a WebSocket, and streams sessions.

The page shows the rows themselves, so a slot on the page counts as sent once it is stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from aiohttp import WSMsgType, web

from gateway.domain.events import SESSIONS, SIGN_INS, Changed, LookAgain, OutputDelta, TextDelta, session_topic
from gateway.domain.ids import InboundId, OwnerName, SessionId, TurnId
from gateway.domain.messages import Attachment, Conversation
from gateway.domain.slots import CardRow, QuestionCard, RateLimit, RenderedSlot
from gateway.domain.tools import PICTURES
from gateway.domain.views import SessionLine
from gateway.domain.waits import PRESSED_TEXT, PressResult, Wait
from gateway.errors import BadRequest, DragomanError, FileAway, Forbidden, SendFailed, SendOutcome, StoreError
from gateway.ports import COOKIE, ArtifactKind, Auth, Clock, Credential, Endpoint, Progress, Recordings, Sink, WebApi
from gateway.server.node_uploads import NodeUploads
from gateway.server.page import ids, inbound, outbound, upload_requests
from gateway.server.page.assets import ASK_EACH_TIME, Asset, page_assets

FRAME_AT_MOST = 1_048_576
"""Bytes of a frame from the page, at most."""
SIGN_IN_AT_MOST = 4096
"""Bytes of an unauthenticated sign-in request that are parsed, at most: a code has fewer than a hundred."""
PING_S = 15.0
"""Interval in seconds of WebSocket pings and of recorded visits."""
ASK_AGAIN_S = 2.0
"""Interval in seconds between checks of the page's sign-in."""
LIST_EVERY_S = 0.3
"""Debounce in seconds for changes of the session list."""
SEND_WITHIN_S = 20.0
"""Timeout in seconds for sending a frame."""
CLOSE_WITHIN_S = 0.5
"""Timeout in seconds for closing a socket."""
SWEEP_S = 3600.0
"""Interval in seconds of sweeps of uploads."""
OPEN_AT_MOST = 20
"""Sessions that a page follows, at most: main, active ones below it, the shown one with its own, a few for a moment."""
PICTURE = r"/api/output/{turn}/{n:\d+}/{k:\d+}"
SHOWN = {ending: kind for kind, ending in PICTURES.items()}
"""Media types of pictures served for display, by file extension."""
FILE = r"/api/output/{turn}/{n:\d+}/file/{k:\d+}"
SPOKEN = r"/api/output/{turn}/{n:\d+}/spoken"
RECORDING = r"/api/recording/{turn}/{message}/{k:\d+}"
ABSENT = "There is no such file of this call."

PRESSED = {
    **PRESSED_TEXT,
    PressResult.ASK_REASON: "Say why, and it is denied.",
    PressResult.NOT_VALID: "This button is not valid here. Reload the page.",
}


class WebChannel:
    """The page's `ports.HttpChannel`."""

    name = ids.CHANNEL

    def __init__(
        self,
        *,
        web_api: WebApi,
        recordings: Recordings,
        clock: Clock,
        signed_in_for: timedelta,
        uploads: NodeUploads,
        fail_point: Callable[[str], Awaitable[None]],
    ) -> None:
        """Take the web API. Sockets are accepted once `run` was called.

        `signed_in_for`: lifetime of the cookie. `uploads`: files until their message is read.
        """
        self._web_api = web_api
        self._recordings = recordings
        self._clock = clock
        self._fail_point = fail_point
        self._lasts_s = int(signed_in_for.total_seconds())
        self._assets = page_assets()
        self.uploads = uploads
        self._sink: Sink | None = None
        self._pages: set[_Page] = set()

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the routes of the page, its sign-in and its socket."""
        return [
            Endpoint(method="GET", path="/", handler=self._index, auth=Auth.PUBLIC),
            Endpoint(method="GET", path="/static/{path:.+}", handler=self._static, auth=Auth.PUBLIC),
            Endpoint(method="POST", path="/api/signin", handler=self._sign_in, auth=Auth.PUBLIC),
            Endpoint(method="POST", path="/api/signout", handler=self._sign_out, auth=Auth.COOKIE),
            Endpoint(method="GET", path="/api/me", handler=self._me, auth=Auth.COOKIE),
            Endpoint(method="GET", path=r"/api/output/{turn}/{n:\d+}", handler=self._output, auth=Auth.COOKIE),
            Endpoint(method="GET", path=PICTURE, handler=self._picture, auth=Auth.COOKIE),
            Endpoint(method="GET", path=FILE, handler=self._file, auth=Auth.COOKIE),
            Endpoint(method="GET", path=SPOKEN, handler=self._spoken, auth=Auth.COOKIE),
            Endpoint(method="GET", path=RECORDING, handler=self._recording, auth=Auth.COOKIE),
            Endpoint(method="PUT", path=upload_requests.PATH, handler=self._upload, auth=Auth.COOKIE),
            Endpoint(method="DELETE", path=upload_requests.PATH, handler=self._drop_upload, auth=Auth.COOKIE),
            Endpoint(method="GET", path="/ws", handler=self._socket, auth=Auth.COOKIE),
        ]

    async def run(self, sink: Sink) -> None:
        """Accept messages until cancelled; then close the sockets of all open pages."""
        self._sink = sink
        try:
            while True:
                await asyncio.to_thread(self.uploads.here.sweep)
                await asyncio.sleep(SWEEP_S)
        finally:
            self._sink = None
            for page in list(self._pages):
                page.stop()

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Raise `SendFailed`; never called, since a slot on the page counts as sent once it is stored."""
        raise SendFailed("The page shows rows, not sends.", outcome=SendOutcome.DEAD)

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Read an upload, here or on the node that took it."""
        await self.uploads.fetch(OwnerName(conversation.chat), file.source, write)

    async def typing(self, conversation: Conversation) -> None:
        """Do nothing: the page sees the running turn itself."""

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """Return no limits: nothing is sent."""
        return ()

    @property
    def streams(self) -> bool:
        """Return False: the page receives the deltas, and needs no slot before the answer's end."""
        return False

    def trouble(self) -> str:
        """Return no trouble: the page works while its server works."""
        return ""

    # --- files and sign-in --------------------------------------------------------------------

    async def _index(self, request: web.Request) -> web.Response:
        return _file(request, self._assets.index, ASK_EACH_TIME)

    async def _static(self, request: web.Request) -> web.Response:
        found = self._assets.find(request.match_info["path"])
        if found is None:
            raise web.HTTPNotFound(reason="The page has no such file now. Reload the page.")
        return _file(request, *found)

    async def _sign_in(self, request: web.Request) -> web.Response:
        code = await _code(request)
        try:
            found = await self._web_api.sign_in(code, request["source"]) if code else None
        except Forbidden as error:
            return web.json_response({"error": str(error)}, status=429)
        if found is None:
            text = "This link was used or has expired. Run `dragoman link` (in a clone `./run link`) for a new one."
            return web.json_response({"error": text}, status=401)
        owner, made = found
        response = web.json_response({"owner": owner, "key": made.key})
        secure = request.headers.get("Origin", "").startswith("https://")
        response.set_cookie(
            COOKIE, made.cookie, max_age=self._lasts_s, httponly=True, samesite="Strict", secure=secure, path="/"
        )
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        await self._web_api.sign_out(request["credential"])
        for page in [page for page in self._pages if page.signed_in_by == request["credential"]]:
            page.stop()
        response = web.Response(status=204)
        response.del_cookie(COOKIE, path="/")
        return response

    async def _me(self, request: web.Request) -> web.Response:
        return web.json_response({"owner": request["owner"]})

    async def _output(self, request: web.Request) -> web.StreamResponse:
        path = await self._artifact(request, ArtifactKind.PRINTED)
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{path.name}"',
        }
        return web.FileResponse(path, headers=headers)

    async def _picture(self, request: web.Request) -> web.StreamResponse:
        path = await self._artifact(request, ArtifactKind.PICTURE)
        if path.suffix not in SHOWN:
            raise web.HTTPNotFound(reason=ABSENT)
        return web.FileResponse(path, headers={"Content-Type": SHOWN[path.suffix]})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """Return a call's file as a download, never for display: a tool or a stranger chose its content."""
        path = await self._artifact(request, ArtifactKind.FILE)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{outbound.header_name(path.name)}"',
            "X-Content-Type-Options": "nosniff",
        }
        return web.FileResponse(path, headers=headers)

    async def _spoken(self, request: web.Request) -> web.StreamResponse:
        path = await self._artifact(request, ArtifactKind.SPOKEN)
        return web.FileResponse(path, headers={"Content-Type": "audio/ogg"})

    async def _recording(self, request: web.Request) -> web.StreamResponse:
        """Return a recording that a person sent."""
        named = request.match_info
        turn, message = TurnId(named["turn"]), InboundId(named["message"])
        try:
            found = await self._recordings.recording(request["owner"], turn, message, int(named["k"][:9]))
        except FileAway as away:
            raise web.HTTPServiceUnavailable(reason=str(away)) from away
        if found is None:
            raise web.HTTPNotFound(reason=ABSENT)
        return web.Response(body=found.data, headers={"Content-Type": found.media_type})

    async def _upload(self, request: web.Request) -> web.Response:
        return await upload_requests.take(request, self.uploads)

    async def _drop_upload(self, request: web.Request) -> web.Response:
        return await upload_requests.drop(request, self.uploads.here)

    async def _artifact(self, request: web.Request, what: ArtifactKind) -> Path:
        """Return the path of the artifact that a request names; answer 404 where there is none."""
        named = request.match_info
        n, k = int(named["n"][:9]), int(named.get("k", "0")[:9])
        try:
            path = await self._web_api.output(request["owner"], TurnId(named["turn"]), n, what, k)
        except FileAway as away:
            raise web.HTTPServiceUnavailable(reason=str(away)) from away
        if path is None:
            raise web.HTTPNotFound(reason=ABSENT)
        return path

    # --- the socket ---------------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        if self._sink is None:
            raise web.HTTPServiceUnavailable(reason="Dragoman is starting or stopping.")
        if "Origin" not in request.headers:
            raise web.HTTPForbidden(reason="Only Dragoman's own page opens this socket.")
        socket = web.WebSocketResponse(heartbeat=PING_S, max_msg_size=FRAME_AT_MOST, protocols=[COOKIE])
        await socket.prepare(request)
        page = _Page(
            channel=self,
            socket=socket,
            owner=request["owner"],
            signed_in_by=request["credential"],
            signed_in=request["signed_in"],
        )
        self._pages.add(page)
        try:
            await page.serve()
        finally:
            self._pages.discard(page)
            await page.close()
            await self.saw(page.owner)
        return socket

    async def saw(self, owner: OwnerName) -> None:
        """Record a visit of the owner. A full disk does not close the page."""
        with suppress(StoreError):
            await self._web_api.saw(owner)

    async def take(self, page: _Page, frame: dict[str, Any]) -> None:
        """Execute the request in a frame."""
        match inbound.parse(frame, page.owner, self._clock.now()):
            case inbound.Open(session, after):
                page.follow(session, after)
            case inbound.Close(session):
                page.leave(session)
            case inbound.Older(session, before):
                found = await self._web_api.older(page.owner, session, before)
                await page.send_all(outbound.newest(found, page.card, older=True))
            case inbound.Say(id, message, files):
                found = await self.uploads.claim(page.owner, files)
                await self._open_sink().message(replace(message, attachments=inbound.with_speech(message.text, found)))
                await page.send({"op": "said", "id": id, "ok": True, "error": None})
                await self._fail_point("J3")
            case inbound.PagePress(id, press):
                pressed = await self._open_sink().press(press)
                answer = {"result": pressed.result.value, "text": PRESSED[pressed.result]}
                await page.send({"op": "pressed", "id": id, **answer})

    def _open_sink(self) -> Sink:
        if self._sink is None:
            # No refusal, which would be final: the page keeps unanswered frames and sends them again.
            raise ConnectionError("Dragoman is stopping.")
        return self._sink

    @property
    def web_api(self) -> WebApi:
        """Return the web API that the pages read from."""
        return self._web_api


@dataclass(eq=False, slots=True, kw_only=True)
class _Page:
    """Session of one open page."""

    channel: WebChannel
    socket: web.WebSocketResponse
    owner: OwnerName
    signed_in_by: Credential
    signed_in: Callable[[], Awaitable[OwnerName | None]]
    """Returns the owner of the page's cookie now: a sign-in may end while its page is open."""
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _followed: dict[SessionId, asyncio.Task[None]] = field(default_factory=dict[SessionId, asyncio.Task[None]])
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    async def serve(self) -> None:
        """Serve the page until it disconnects."""
        try:
            async with self._group as group:
                works = {
                    "list": self._list(),
                    "visits": self._visits(),
                    "sign-in": self._until_signed_out(),
                    "reader": self._read(),
                }
                for name, work in works.items():
                    self._tasks.append(group.create_task(work, name=f"page {self.owner} {name}"))
        except* (ConnectionError, TimeoutError):
            pass  # the page disconnected; it reconnects by itself
        except* StoreError:
            pass  # nothing can be read: the page reconnects and continues from its revision

    def stop(self) -> None:
        """Cancel this page's tasks; the socket closes after them."""
        for task in [*self._tasks, *self._followed.values()]:
            task.cancel()

    async def close(self) -> None:
        """Close the socket. An unresponsive page, such as one on a sleeping device, must not delay a shutdown."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self.socket.close()

    async def send(self, frame: outbound.Json) -> None:
        """Send a frame; drop a page that does not read for 20 s."""
        async with asyncio.timeout(SEND_WITHIN_S):
            await self.socket.send_json(frame)

    async def send_all(self, frames: Iterable[outbound.Json]) -> None:
        """Send frames, each built after the one before it is sent; yield to other tasks between them."""
        for frame in frames:
            await self.send(frame)
            await asyncio.sleep(0)

    def card(self, wait: Wait) -> CardRow | QuestionCard:
        """Return an approval with the buttons for this page."""
        return self.channel.web_api.card(self.owner, wait)

    def follow(self, session: SessionId, after: int | None) -> None:
        """Send a session's rows from a revision on, and follow its changes."""
        self.leave(session)
        if len(self._followed) >= OPEN_AT_MOST:
            raise BadRequest(f"At most {OPEN_AT_MOST} sessions are open at once.")
        work = self._show(session, after)
        self._followed[session] = self._group.create_task(work, name=f"page {self.owner} {session}")

    def leave(self, session: SessionId) -> None:
        """Stop following a session."""
        task = self._followed.pop(session, None)
        if task is not None:
            task.cancel()

    async def _read(self) -> None:
        try:
            async for message in self.socket:
                if message.type is WSMsgType.TEXT:
                    await self._take(cast(str, message.data))
        finally:
            self.stop()

    async def _take(self, text: str) -> None:
        frame: dict[str, Any] = {}
        try:
            frame = inbound.unpack(text)
            await self.channel.take(self, frame)
        except DragomanError as error:
            await self.send(_refused(frame, str(error)))

    async def _list(self) -> None:
        """Keep the session list current; a burst of changes becomes one frame with the changed lines."""
        web_api = self.channel.web_api
        shown: Mapping[SessionId, SessionLine] | None = None
        while True:
            # A new subscription each time, before the read: changes that piled up count as one.
            async with web_api.watch(SESSIONS) as events:
                lines = {line.session.id: line for line in await web_api.sessions(self.owner)}
                if shown is None:
                    await self.send(outbound.welcome(web_api.welcome(self.owner), [*lines.values()]))
                elif lines != shown:
                    await self.send(outbound.lines(lines, shown))
                shown = lines
                await anext(events)
            await asyncio.sleep(LIST_EVERY_S)

    async def _visits(self) -> None:
        """Record a visit now and every 15 s."""
        while True:
            await self.channel.saw(self.owner)
            await asyncio.sleep(PING_S)

    async def _until_signed_out(self) -> None:
        """Close the page when its sign-in ends: at once after a sign-out on any node, else within two seconds."""
        async with self.channel.web_api.watch(SIGN_INS) as events:
            while await self.signed_in() == self.owner:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S):
                        await anext(events)
        self.stop()

    async def _show(self, session: SessionId, after: int | None) -> None:
        web_api = self.channel.web_api
        try:
            async with web_api.watch(session_topic(session)) as events:
                rev = await self._catch_up(session, after, answer=True)
                async for event in events:
                    if isinstance(event, Changed | LookAgain):
                        rev = await self._catch_up(session, rev)
                    elif isinstance(event, TextDelta | OutputDelta):
                        await self.send(outbound.delta(event))
        except StoreError:
            raise
        except DragomanError as error:
            self._followed.pop(session, None)  # a refused session is not open
            await self.send({"op": "error", "text": str(error)})

    async def _catch_up(self, session: SessionId, after: int | None, *, answer: bool = False) -> int:
        """Send the newest rows, or all after a revision; return the revision reached.

        With `answer`, a frame is sent even without new rows: a page without an answer assumes a dead connection.
        """
        web_api = self.channel.web_api
        if after is None:
            found = await web_api.older(self.owner, session, None)
            await self.send_all(outbound.newest(found, self.card, older=False))
            return found.rev
        rev = after
        while True:
            found = await web_api.changes(self.owner, session, rev)
            if found.rows or answer:
                await self.send_all(outbound.changed(found, self.card))
                answer = False
            rev = found.rev
            if not found.more:
                return rev


def _refused(frame: dict[str, Any], error: str) -> outbound.Json:
    """Return the answer to a refused frame, with its id if it has one, so that the page can match it."""
    op, id = frame.get("op"), frame.get("id")
    if op == "say" and isinstance(id, str):
        return {"op": "said", "id": id, "ok": False, "error": error}
    if op == "press" and isinstance(id, str):
        return {"op": "pressed", "id": id, "result": "not_valid", "text": error}
    return {"op": "error", "text": error}


async def _code(request: web.Request) -> str:
    """Return the sign-in code in a request; empty if there is no plausible one."""
    text = await request.read()
    if len(text) > SIGN_IN_AT_MOST:
        return ""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    code = cast(dict[str, Any], body).get("code") if isinstance(body, dict) else None
    return code if isinstance(code, str) and code.isascii() and len(code) <= 200 else ""


def _file(request: web.Request, asset: Asset, cache: str) -> web.Response:
    headers = {"Cache-Control": cache, "ETag": f'"{asset.etag}"', "Content-Type": asset.content_type}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    response = web.Response(body=asset.body, headers=headers)
    response.enable_compression()
    return response
