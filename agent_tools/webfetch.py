"""The tool `webfetch`: fetches one page or file from the web and returns its text. Asks once for each host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent_tools._web.reading_room import ReadingRoom
from agent_tools._web.settings import WebToolSettings
from agent_tools._web.urls import checked_url, host_and_port, scope_of
from gateway.domain.tools import (
    PICTURE_BYTES,
    PICTURES,
    Availability,
    CallScope,
    Destination,
    Effect,
    ResultStatus,
    Risk,
    SandboxPolicy,
    ToolResult,
    ToolSpec,
)
from gateway.domain.web import Fetched
from gateway.errors import BadRequest, NoAnswer
from gateway.ports import StatefulTool, ToolContext, ToolHost

SPEC = ToolSpec(
    name="webfetch",
    description="Fetch a web page or file and return its text. For pages that need scripts or clicks use the browser.",
    risk=Risk.NETWORK,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    timeout_s=30.0,
    max_timeout_s=120.0,
    sandbox=SandboxPolicy.AUTO,
    network=None,
    positional="url",
    shows="url",
    example="https://example.org",
    settings=WebToolSettings,
)
BYTES = 5 * 2**20
"""Bytes of the longest document."""
SECURE_S = 8.0
"""Longest wait in seconds for the https form of an http address."""
OFFICE = ("application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.")
"""Beginnings of the media types of office documents."""
_TEXT = frozenset({"application/json", "application/xml", "application/javascript", "application/x-ndjson", ""})


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(checked_url), Field(min_length=1)]
    format: Literal["markdown", "text", "html"] = "markdown"
    timeout: Annotated[float | None, Field(ge=1, le=120, description="Seconds, 30 when not given.")] = None


def scope(args: Args, settings: WebToolSettings) -> CallScope:
    """Return the host: one approval covers it until the session's history is reset."""
    host = scope_of(args.url)
    going = Destination(host=host_and_port(args.url), permitted=settings.hosts, setting="[tools.webfetch] hosts")
    return CallScope(risk=Risk.NETWORK, scope=host, destination=going, subjects=(f"host:{host}",), sends=(host,))


def create(host: ToolHost) -> StatefulTool:
    """Make the tool. Nothing is started before its first document."""
    return WebFetch(host)


class WebFetch:
    """The stateful tool (`ports.StatefulTool`): one reading room for the daemon."""

    def __init__(self, host: ToolHost) -> None:
        """Create the reading room without starting it."""
        self._settings = cast("WebToolSettings", host.settings)
        self._room = ReadingRoom(host)

    async def serve(self) -> None:
        """Keep the reading room until cancelled."""
        await self._room.serve()

    async def run(self, ctx: ToolContext, args: Args) -> ToolResult:
        """Fetch the document, and read it in the reading room."""
        found = await self._fetched(ctx, args)
        if found.media_type in PICTURES and len(found.data) <= PICTURE_BYTES and not found.cut:
            picture = await ctx.artifacts.picture(found.data, found.media_type)
            return ToolResult(status=ResultStatus.OK, text=_head(found), pictures=(picture,))
        if found.media_type == "application/pdf":
            return await self._read(ctx, found, "pdf", args)
        if found.media_type.startswith(OFFICE):
            return await self._read(ctx, found, "office", args)
        is_html = "html" in found.media_type or (not found.media_type and found.data.lstrip()[:1] == b"<")
        if is_html and args.format != "html":
            return await self._read(ctx, found, "html", args)
        if is_html or found.media_type.startswith("text/") or found.media_type in _TEXT or "+json" in found.media_type:
            return _told(found, found.data.decode(errors="replace"))
        raise BadRequest(f"{found.media_type[:80]} cannot be read as text.", cure="Download it with the browser.")

    async def _fetched(self, ctx: ToolContext, args: Args) -> Fetched:
        """Return the document. An http address is asked for by https first, which nobody on the way can change."""
        limit = args.timeout or SPEC.timeout_s
        began = asyncio.get_running_loop().time()
        if secure := by_tls(args.url, self._settings.hosts):
            try:
                return await ctx.net.fetch(secure, most=BYTES, within_s=min(SECURE_S, limit / 2))
            except NoAnswer:
                limit -= asyncio.get_running_loop().time() - began
        return await ctx.net.fetch(args.url, most=BYTES, within_s=limit, hosts=self._settings.hosts)

    async def _read(self, ctx: ToolContext, found: Fetched, kind: str, args: Args) -> ToolResult:
        made = await self._room.read(ctx, kind, found.data, form=args.format, url=found.url)
        text = str(made.get("text", "")).strip()
        if not text:
            hint = "The page shows nothing without scripts: open it with the browser."
            return ToolResult(status=ResultStatus.ERROR, text=_head(found), code="needs_browser", hint=hint)
        title, note = str(made.get("title", "")), str(made.get("note", ""))
        return _told(found, "\n\n".join(filter(None, [title and f"# {title}", text])), note)


def by_tls(url: str, permitted: Sequence[str]) -> str:
    """Return the https form of an http URL from `checked_url`; empty when it names a port, an address, or a permitted
    host: those lack trusted certificates.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_address = ":" in host or host.replace(".", "").isdigit()
    is_permitted = any(fnmatchcase(host, one.partition(":")[0]) for one in permitted)
    if parts.scheme != "http" or parts.port is not None or is_address or is_permitted:
        return ""
    return f"https{url.removeprefix('http')}"


def _told(found: Fetched, text: str, note: str = "") -> ToolResult:
    cut = f"Only the first {BYTES // 2**20} MB were read." if found.cut else ""
    whole = "\n".join(filter(None, [_head(found), note, cut, "", text]))
    if found.status >= 400:
        hint = f"The server answered {found.status}."
        return ToolResult(status=ResultStatus.ERROR, text=whole, code="http", hint=hint, untrusted=True)
    return ToolResult(status=ResultStatus.OK, text=whole, untrusted=True)


def _head(found: Fetched) -> str:
    kind = found.media_type or "unknown type"
    return f"{found.url} ({found.status}, {kind}, {len(found.data):,} bytes)"
