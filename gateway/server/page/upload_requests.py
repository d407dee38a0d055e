"""Upload requests of the page: one file each, streamed into `uploads`. Used by `adapter`.

The server has checked Host, Origin and sign-in before. A refusal is a status and a sentence for the person.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import unquote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.agent.attachments import FILE_AT_MOST, FILES_AT_MOST, MESSAGE_AT_MOST
from gateway.domain.text import media_type
from gateway.errors import BadRequest, StoreFull, TooLarge
from gateway.server.node_uploads import NodeUploads
from gateway.server.page import ids
from gateway.server.page.uploads import Uploads

PATH = "/api/uploads/{key}"
NAME_HEADER = "X-Dragoman-Name"
"""Header with the file's name, percent-encoded: an address would put it into logs."""
NAME_BYTES = 4_096
ALL_WITHIN_S = 900.0
"""Timeout in seconds for one upload."""
NEXT_WITHIN_S = 30.0
"""Timeout in seconds for the next piece of an upload."""
LIMITS = {"files": FILES_AT_MOST, "file": FILE_AT_MOST, "message": MESSAGE_AT_MOST}
"""Limits for the page, so that it refuses a file before it sends it."""
BROKEN = "The upload broke off; nothing of it is kept. Try again."


async def take(request: web.Request, uploads: NodeUploads) -> web.Response:
    """Store the file of a request, and answer once it is durable."""
    if "Origin" not in request.headers:
        return _refused(403, "Only Dragoman's own page may send files.")
    key = request.match_info["key"]
    if not ids.is_client_id(key):
        return _refused(400, "The key of an upload is 8 to 64 letters, digits, - or _.")
    name = unquote(request.headers.get(NAME_HEADER, "")[:NAME_BYTES], errors="replace")
    kind = media_type(request.headers.get("Content-Type", ""))
    request["allow_body_s"](ALL_WITHIN_S)
    try:
        found = await uploads.take(request["owner"], key, name, kind, _pieces(request), request.content_length or 0)
    except TooLarge as error:
        return _refused(413, str(error))
    except BadRequest as error:
        return _refused(400, str(error))
    except StoreFull as error:
        return _refused(507, str(error))
    except TimeoutError:
        return _refused(408, BROKEN)
    except (ConnectionError, web.RequestPayloadError, HttpProcessingError):
        return _refused(400, BROKEN)
    return web.json_response({"id": key, "name": found.name, "size": found.size})


async def drop(request: web.Request, uploads: Uploads) -> web.Response:
    """Remove a file that was added and taken back."""
    if "Origin" not in request.headers:
        return _refused(403, "Only Dragoman's own page may remove files.")
    if ids.is_client_id(key := request.match_info["key"]):
        uploads.drop(request["owner"], key)
    return web.Response(status=204)


async def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    """Yield the body. Raises `TimeoutError` when nothing comes for a while."""
    while True:
        async with asyncio.timeout(NEXT_WITHIN_S):
            piece = await request.content.readany()
        if not piece:
            return
        yield piece


def _refused(status: int, text: str) -> web.Response:
    """Return a refusal. The rest of the body is not waited for."""
    response = web.json_response({"error": text}, status=status)
    if status in (408, 413, 507):
        response.force_close()
    return response
