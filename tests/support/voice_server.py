"""Stands in for a server of recordings on loopback: speaks `/v1/audio/transcriptions` and
`/v1/audio/speech` as strictly as OpenAI's.

`async with VoiceServer(["hello"]) as server:` and ask `server.base_url`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import BodyPartReader, web

FORMATS = (".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm")
FIELDS = frozenset({"model", "language", "prompt", "response_format", "temperature", "file"})
OGG = b"OggS\x00\x02" + b"\x00" * 40


@dataclass(frozen=True, slots=True)
class Odd:
    """A response that is no transcript."""

    status: int = 200
    body: str = ""
    kind: str = "application/json"
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class Transcription:
    """A request that was taken."""

    model: str
    language: str
    filename: str
    data: bytes
    key: str


@dataclass(slots=True)
class VoiceServer:
    """Server that gives these outcomes in turn, the last one again and again."""

    outcomes: Sequence[str | Odd]
    api_key: str = ""
    """Key that it wants; empty for none."""
    port: int = 0
    asked: list[Transcription] = field(default_factory=list[Transcription])
    spoken: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Model, voice and text of each speech."""
    speech: bytes = OGG
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    on_request: Callable[[], None] = lambda: None
    """Called for each request, before it is answered."""
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """Address for `[voice] base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> VoiceServer:
        """Listen on loopback."""
        app = web.Application(client_max_size=30_000_000)
        app.router.add_post("/v1/audio/transcriptions", self._transcriptions)
        app.router.add_post("/v1/audio/speech", self._speech)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = cast("Any", site)._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _transcriptions(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.api_key and key != self.api_key:
            return _error(401, f"Incorrect API key provided: {key}.")
        if request.content_type != "multipart/form-data":
            return _error(415, "multipart/form-data is wanted")
        fields, name, data = await _form(request)
        if unknown := {*fields} - FIELDS or {"model", "file"} - {*fields}:
            return _error(400, f"Unknown or missing parameters: {sorted(unknown)}")
        if not name.endswith(FORMATS):
            return _error(400, f"Invalid file format. Supported formats: {FORMATS}")
        if fields.get("response_format", "json") != "json":
            return _error(400, "response_format")
        taken = Transcription(fields["model"], fields.get("language", ""), name, data, key)
        self.asked.append(taken)
        self.arrived.set()
        self.on_request()
        return await self._answer(self.outcomes[min(len(self.asked), len(self.outcomes)) - 1])

    async def _speech(self, request: web.Request) -> web.StreamResponse:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return _error(401, "Incorrect API key provided.")
        asked: dict[str, str] = await request.json()
        if {*asked} != {"model", "voice", "input", "response_format"} or asked["response_format"] != "opus":
            return _error(400, f"Unknown or missing parameters: {sorted(asked)}")
        self.spoken.append((asked["model"], asked["voice"], asked["input"]))
        return web.Response(body=self.speech, content_type="audio/ogg")

    async def _answer(self, outcome: str | Odd) -> web.StreamResponse:
        if isinstance(outcome, str):
            return web.json_response({"text": outcome})
        if outcome.hangs:
            await self._closing.wait()
        return web.Response(status=outcome.status, text=outcome.body, content_type=outcome.kind)


async def _form(request: web.Request) -> tuple[dict[str, str], str, bytes]:
    """Return the fields, and the file's name and content. A field may stand once."""
    fields: dict[str, str] = {}
    name, data = "", b""
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader) or part.name is None or part.name in fields:
            raise web.HTTPBadRequest(text="a field stands twice, or has no name")
        if part.name == "file":
            name, data = part.filename or "", bytes(await part.read())
            fields["file"] = name
        else:
            fields[part.name] = await part.text()
    return fields, name, data


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)
