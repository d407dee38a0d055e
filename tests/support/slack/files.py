"""Files: the three steps of an upload, and downloads with a token.

https://docs.slack.dev/messaging/working-with-files.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable

from aiohttp import web
from aiohttp.multipart import BodyPartReader

from tests.support.slack.checks import Json, Refusal, odd
from tests.support.slack.telling import Teller
from tests.support.slack.world import File, Shown

FILE_AT_MOST = 1_000_000_000
"""1 GB: https://slack.com/help/articles/201330736."""
SIGN_IN_PAGE = "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body>Sign in to continue</body></html>"


def announce(team: Teller, p: Json) -> Json:
    """Return an upload URL for a file of so many bytes."""
    if p["length"] < 1:
        raise Refusal("missing_argument")
    if p["length"] > FILE_AT_MOST:
        raise Refusal("file_upload_size_restricted")
    if len(p.get("alt_txt", "")) > 1_000:
        raise Refusal("alt_txt_too_large")
    world = team.world
    file = File(id=world.new_id("F"), name=p["filename"], user=world.bot, length=p["length"])
    file.mimetype = mimetypes.guess_type(file.name)[0] or file.mimetype
    world.files[file.id] = file
    return {"upload_url": f"{world.root}/upload/v1/{world.team}-{file.id}", "file_id": file.id}


def complete(team: Teller, p: Json) -> Json:
    """Share what was put there. The answer does not say which message shows it: `files.info` or the history do."""
    if "blocks" in p:
        raise odd("this fake takes an initial_comment, no blocks")
    given = [_uploaded(team, one) for one in p["files"]]
    if not given:
        raise Refusal("invalid_arguments", "[ERROR] must contain at least 1 items [json-pointer:/files]")
    names = [*filter(None, [p.get("channel_id"), *p.get("channels", "").split(",")])]
    channels = [team.world.open_channel(name) for name in names]
    threads = [team.world.thread(channel, p) for channel in channels]
    for file, title in given:
        file.complete, file.title = True, title
    shared = [file for file, _ in given]
    for channel, thread in zip(channels, threads, strict=True):
        shown = Shown(channel=channel.id, ts=team.world.ts(), by=team.world.bot, wire=p.get("initial_comment", ""))
        shown.thread, shown.subtype, shown.files = thread, "file_share", shared
        team.world.put(shown)
        for file in shared:
            file.shares.append((channel.id, shown.ts))
        team.message(shown)
    return {"files": [{"id": file.id, "title": file.title} for file in shared]}


def _uploaded(team: Teller, one: Json) -> tuple[File, str]:
    file = team.world.files.get(one.get("id", ""))
    if file is None or file.content is None:
        raise Refusal("file_not_found")
    if file.user != team.world.bot or file.complete:
        raise Refusal("access_denied")
    return file, one.get("title", "")


def info(team: Teller, p: Json) -> Json:
    """Return a file's facts, with the messages that show it."""
    file = team.world.files.get(p["file"])
    if file is None:
        raise Refusal("file_not_found")
    if file.deleted:
        raise Refusal("file_deleted")
    shares: Json = {}
    for channel, ts in file.shares:
        public = team.world.channels[channel].kind == "channel"
        shares.setdefault("public" if public else "private", {}).setdefault(channel, []).append({"ts": ts})
    return {"file": {**file.payload(team.world.root, team.world.team), "shares": shares}}


# --- the bytes -------------------------------------------------------------------------------------


async def take_upload(team: Teller, id: str, request: web.BaseRequest, surprise: Callable[[str], None]) -> web.Response:
    """The bytes of an announced file, raw or as a form."""
    file = team.world.files.get(id)
    if file is None or file.content is not None:
        return web.Response(status=404, text="no such upload")
    content = await _body(request)
    if len(content) != file.length:
        surprise(f"upload of {len(content)} bytes where {file.length} were announced")
        return web.Response(status=400, text="the length differs from what was announced")
    file.content = content
    return web.Response(text=f"OK - {len(content)}")


async def _body(request: web.BaseRequest) -> bytes:
    if request.content_type != "multipart/form-data":
        return await request.read()
    async for part in await request.multipart():
        if isinstance(part, BodyPartReader) and part.filename is not None:
            return bytes(await part.read())
    return b""


def give_download(team: Teller | None, id: str, *, allowed: bool, saved: bool) -> web.Response:
    """The bytes of a file, to be saved or looked at. Without a good token Slack answers 200 with its sign-in page, and
    so does this."""
    if team is None or not allowed or "files:read" not in team.world.scopes:
        return web.Response(text=SIGN_IN_PAGE, content_type="text/html")
    file = team.world.files.get(id)
    if file is None or file.deleted or file.content is None:
        return web.Response(status=404, text="file_not_found")
    headers = {"Content-Disposition": "attachment"} if saved else {}
    return web.Response(body=file.content, content_type=file.mimetype, headers=headers)
