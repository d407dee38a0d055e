"""Outputs of calls that are on other nodes: handed out to them, and fetched from them, over HTTP. Wired by `app`.

A request is signed with a key of all nodes, for one file and one minute. It names a session and a file of its outputs,
never a path. What was fetched is kept in the same place here, since an output never changes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gateway.domain.ids import SessionId
from gateway.domain.nodes import HomeHolder
from gateway.domain.tools import KEPT_BYTES
from gateway.errors import FileAway
from gateway.ports import Auth, Endpoint, Homes
from gateway.server.node_requests import FAILURES, NodeRequests, cure
from gateway.system.logging_setup import log

PATH = "/node/output"
NAMES = ("session", "file", "home")
"""Words of a request."""
_CHUNK = 262_144
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class NodeFiles:
    """Outputs of all nodes, as one of them finds them."""

    requests: NodeRequests
    home: str
    """Id of this node's place; empty for a store that no other node can open: then only what is here is found."""
    homes: Homes
    kept: Callable[[SessionId, str], Path | None]
    """Return an output that is here."""
    outputs: Callable[[SessionId], Path]
    """Return the folder of a session's outputs here."""
    largest: int = KEPT_BYTES
    """Bytes of the largest file that is fetched."""
    _log: Any = field(default_factory=lambda: log("node_files"))

    async def find(self, session: SessionId, name: str) -> Path | None:
        """Return the path of an output, fetched first when it is on another node. None when there is none.

        Raises `FileAway` with a sentence for people when it may be on a node that cannot be asked now.
        """
        path = self.kept(session, name)
        if path is not None or not self.home or Path(name).name != name:
            return path
        away: list[HomeHolder] = []
        for place in await self.homes.places_of(session):
            if place.home == self.home:
                continue
            try:
                if await self._fetched(place, session, name):
                    return self.kept(session, name)
            except (*FAILURES, OSError) as error:
                self._log.warning("file not fetched", node=place.name, session=session, error=str(error))
                away.append(place)
        if away:
            raise FileAway(f"The file is on the node {away[0].name}, which cannot be reached now.", cure=cure(away[0]))
        return None

    # --- asking -------------------------------------------------------------------------------

    async def _fetched(self, place: HomeHolder, session: SessionId, name: str) -> bool:
        """Fetch a file into the folder of outputs. False: it is not there. Raises what `find` catches."""
        async with self.requests.ask(place, session, name, place.home) as response:
            if response is None:
                return False
            await self._store(response, self.outputs(session), name)
        return True

    async def _store(self, response: aiohttp.ClientResponse, folder: Path, name: str) -> None:
        """Write a file whole or not at all."""
        part = folder / f".fetched-{secrets.token_hex(8)}"
        file = await asyncio.to_thread(_opened, part)
        try:
            size = 0
            async for chunk in response.content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > self.largest:
                    raise ValueError("the file is too large")
                await asyncio.to_thread(_write, file, chunk)
            await asyncio.to_thread(os.replace, part, folder / name)
        finally:
            os.close(file)
            with suppress(FileNotFoundError):
                await asyncio.to_thread(os.unlink, part)

    # --- answering ----------------------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the route for other nodes; none where there are none."""
        return [Endpoint(method="GET", path=PATH, handler=self._answer, auth=Auth.SIGNED)] if self.home else []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Return an output of this place to a node that has the key."""
        session, name, _ = self.requests.words_of(request, self.home)
        path = await asyncio.to_thread(self.kept, SessionId(session), name)
        if path is None:
            raise web.HTTPNotFound(reason="There is no such file.")
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})


def _opened(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, _NEW, 0o600)


def _write(file: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(file, chunk) :]
