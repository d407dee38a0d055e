"""Files that people sent, which are in workspaces of other nodes: handed out, and fetched, over HTTP. Wired by `app`.

A request names a session and a file of the inbox in its workspace, never a path. Nothing that was fetched is kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gateway.agent.attachments import FILE_AT_MOST
from gateway.domain.ids import SessionId
from gateway.domain.nodes import HomeHolder
from gateway.domain.tools import INBOX
from gateway.errors import FileAway
from gateway.ports import Auth, Endpoint, Homes
from gateway.server.node_requests import FAILURES, NodeRequests, cure
from gateway.system.logging_setup import log
from gateway.system.safe_open import open_beneath

PATH = "/node/inbox"
NAMES = ("session", "file", "home")
"""Words of a request."""
ABSENT = "There is no such file."


@dataclass(slots=True, kw_only=True)
class NodeInbox:
    """Files that people sent, as one of the nodes finds them."""

    requests: NodeRequests
    home: str
    """Id of this node's place; empty for a store that no other node can open: then only what is here is found."""
    homes: Homes
    workspace: Callable[[SessionId], Path]
    """Return the folder of a session's tools, which need not exist."""
    _log: Any = field(default_factory=lambda: log("node_inbox"))

    async def read(self, session: SessionId, path: str) -> bytes | None:
        """Return a file of the inbox by its path in the workspace; None when there is none, or it is too large.

        `session`: the one that the workspace belongs to. Raises `FileAway` with a sentence for people when the file may
        be on a node that cannot be asked now.
        """
        folder, _, name = path.partition("/")
        if folder != INBOX:
            return None
        found = await asyncio.to_thread(self._here, session, name)
        if found is not None or not self.home:
            return found
        away: list[HomeHolder] = []
        for place in await self.homes.places_of(session):
            if place.home == self.home:
                continue
            try:
                if (found := await self._fetched(place, session, name)) is not None:
                    return found
            except FAILURES as error:
                self._log.warning("file not fetched", node=place.name, session=session, error=str(error))
                away.append(place)
        if away:
            raise FileAway(f"The file is on the node {away[0].name}, which cannot be reached now.", cure=cure(away[0]))
        return None

    async def _fetched(self, place: HomeHolder, session: SessionId, name: str) -> bytes | None:
        async with self.requests.ask(place, session, name, place.home) as response:
            return None if response is None else await _all_of(response)

    def _here(self, session: SessionId, name: str) -> bytes | None:
        """Return a file of the inbox here. A tool may have put anything there: no link is followed."""
        try:
            with os.fdopen(open_beneath(self.workspace(session), (INBOX, name)), "rb") as file:
                data = file.read(FILE_AT_MOST + 1)
        except (OSError, ValueError):
            return None
        return data if len(data) <= FILE_AT_MOST else None

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the route for other nodes; none where there are none."""
        return [Endpoint(method="GET", path=PATH, handler=self._answer, auth=Auth.SIGNED)] if self.home else []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Return a file of an inbox here to a node that has the key."""
        session, name, _ = self.requests.words_of(request, self.home)
        found = await asyncio.to_thread(self._here, SessionId(session), name)
        if found is None:
            raise web.HTTPNotFound(reason=ABSENT)
        return web.Response(body=found, content_type="application/octet-stream")


async def _all_of(response: aiohttp.ClientResponse) -> bytes:
    """Return the body. Raises `ValueError` when it is too large."""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > FILE_AT_MOST:
            raise ValueError("the file is too large")
    return bytes(found)
