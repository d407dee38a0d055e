"""Outputs of calls that are on other nodes: handed out to them, and fetched from them, over HTTP. Wired by `app`.

A request is signed with a key of all nodes, for one file and one minute. It names a session and a file of its outputs,
never a path. What was fetched is kept in the same place here, since an output never changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from gateway.domain.ids import SessionId
from gateway.domain.nodes import Place
from gateway.domain.tools import KEPT_BYTES
from gateway.errors import FileAway
from gateway.ports import Auth, Clock, Endpoint, Homes
from gateway.system.logging_setup import log

PATH = "/node/output"
GOOD_FOR_S = 60
"""Seconds for which a request is good, clocks of nodes that differ by as much included."""
TIMEOUT = aiohttp.ClientTimeout(total=60.0, sock_connect=3.0, sock_read=10.0)
_CHUNK = 262_144
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class NodeFiles:
    """Outputs of all nodes, as one of them finds them."""

    key: bytes
    """Key of all nodes for this purpose alone."""
    home: str
    """Id of this node's place; empty for a store that no other node can open: then only what is here is found."""
    homes: Homes
    kept: Callable[[SessionId, str], Path | None]
    """Return an output that is here."""
    outputs: Callable[[SessionId], Path]
    """Return the folder of a session's outputs here."""
    client: aiohttp.ClientSession
    clock: Clock
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
        away: list[Place] = []
        for place in await self.homes.places_of(session):
            if place.home == self.home:
                continue
            try:
                if await self._fetched(place, session, name):
                    return self.kept(session, name)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                self._log.warning("file not fetched", node=place.name, session=session, error=str(error))
                away.append(place)
        if away:
            raise FileAway(f"The file is on the node {away[0].name}, which cannot be reached now.", cure=_cure(away[0]))
        return None

    # --- asking -------------------------------------------------------------------------------

    async def _fetched(self, place: Place, session: SessionId, name: str) -> bool:
        """Fetch a file into the folder of outputs. False: it is not there. Raises what `find` catches."""
        if not place.address:
            raise ValueError("it has no address")
        until = str(round(self.clock.now().timestamp()) + GOOD_FOR_S)
        asked = {"session": session, "file": name, "home": place.home, "until": until}
        asked["sig"] = self._signature(*asked.values())
        url = f"{place.address.rstrip('/')}{PATH}?{urlencode(asked)}"
        async with self.client.get(url, timeout=TIMEOUT, allow_redirects=False) as response:
            if response.status == 404:
                return False
            if response.status != 200:
                raise ValueError(f"it answered with status {response.status}")
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
        query = request.query
        session, name, home, until, sig = (query.get(one, "") for one in ("session", "file", "home", "until", "sig"))
        good = hmac.compare_digest(sig.encode(), self._signature(session, name, home, until).encode())
        if not good or home != self.home or not self._in_time(until):
            raise web.HTTPForbidden(reason="This is for other nodes of the gateway.")
        path = await asyncio.to_thread(self.kept, SessionId(session), name)
        if path is None:
            raise web.HTTPNotFound(reason="There is no such file.")
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    def _in_time(self, until: str) -> bool:
        left = int(until) - self.clock.now().timestamp() if until.isascii() and until.isdecimal() else -1
        return 0 <= left <= 2 * GOOD_FOR_S

    def _signature(self, *words: str) -> str:
        text = "\0".join(words)
        return hmac.new(self.key, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _cure(place: Place) -> str:
    if not place.address and place.alive_at is not None:
        return f"Set [cluster] address on {place.name}, so that other nodes can read its files."
    return f"Start {place.name} again."


def _opened(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, _NEW, 0o600)


def _write(file: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(file, chunk) :]
