"""Uploads of the page that are on another node: handed out to it, and fetched from it, over HTTP. Wired by `app`.

A message carries the node that took its files. A request names an owner and the key of a file, never a path.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from gateway.agent.attachments import FILES_AT_MOST
from gateway.domain.ids import OwnerName
from gateway.domain.messages import Attachment
from gateway.domain.nodes import HomeHolder
from gateway.errors import FetchFailed, StoreError
from gateway.ports import Auth, Endpoint, Homes, KeyValue
from gateway.server.node_requests import FAILURES, NodeRequests, cure
from gateway.server.page import ids
from gateway.server.page.uploads import GONE, KEPT_FOR, PIECE, Uploads
from gateway.system.logging_setup import log

PATH = "/node/upload"
NAMES = ("owner", "file", "node")
"""Words of a request."""
AWAY = "It was uploaded to a machine that cannot be reached now; send it again."
"""Reason why a file is missing. Only owners read the names of nodes, so it has none."""
CLOSED = "It was uploaded to a machine whose files the others cannot read; its `[cluster] address` is not set."
"""Reason where sending it again would not help."""
NAMESPACE = "uploads"
_AT = "@"
"""Character between key and node; no key has it."""


@dataclass(slots=True, kw_only=True)
class NodeUploads:
    """Uploads of all nodes, as one of them finds them."""

    requests: NodeRequests
    node: str
    """Name of this node; empty for a store that no other node can open: then only what is here is found."""
    homes: Homes
    known: KeyValue
    """Names of uploads, shared by all nodes."""
    here: Uploads
    _log: Any = field(default_factory=lambda: log("node_uploads"))

    async def take(
        self, owner: OwnerName, key: str, name: str, media_type: str, body: AsyncIterable[bytes], size: int = 0
    ) -> Attachment:
        """Store a file here, and let the other nodes know: its message may reach any. Raises as `Uploads.take`."""
        found = await self.here.take(owner, key, name, media_type, body, size)
        if self.node:
            told = json.dumps({"node": self.node, "name": found.name, "type": found.media_type, "size": found.size})
            try:
                await self.known.put(NAMESPACE, self._fact(owner, key), told, KEPT_FOR)
            except StoreError as error:  # its message still finds it on this node
                self._log.warning("other nodes do not know of an upload", error=str(error))
        return found

    async def claim(self, owner: OwnerName, keys: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the files of a message with the node that has each. Raises as `Uploads.claim`."""
        if not self.node:
            return self.here.claim(owner, keys)
        elsewhere = dict[str, Attachment]()
        for key in keys[:FILES_AT_MOST]:
            if not self.here.known(owner, key) and (one := await self._elsewhere(owner, key)) is not None:
                elsewhere[key] = one
        found = self.here.claim(owner, keys, elsewhere)
        return tuple(
            one if _AT in one.source else replace(one, source=f"{one.source}{_AT}{self.node}") for one in found
        )

    async def _elsewhere(self, owner: OwnerName, key: str) -> Attachment | None:
        """Return a file that another node took."""
        told = await self.known.get(NAMESPACE, self._fact(owner, key))
        if told is None:
            return None
        row = json.loads(told)
        return Attachment(source=f"{key}{_AT}{row['node']}", name=row["name"], media_type=row["type"], size=row["size"])

    def _fact(self, owner: OwnerName, key: str) -> str:
        return f"{self.here.folder_of(owner).name}/{key}"

    async def fetch(self, owner: OwnerName, source: str, write: Callable[[bytes], None]) -> None:
        """Pass a file to `write` in pieces. Raises `FetchFailed`, and the errors of `write`."""
        key, _, node = source.partition(_AT)
        if not self.node or node in ("", self.node) or self.here.known(owner, key):
            await self.here.fetch(owner, key, write)
            return
        place = await self.homes.node_named(node) or HomeHolder(home="", name=node, address="", alive_at=None)
        try:
            await self._fetched(place, owner, key, write)
        except FAILURES as error:
            self._log.warning("upload not fetched", node=node, error=str(error), cure=cure(place))
            why = CLOSED if place.alive_at is not None and not place.address else AWAY
            raise FetchFailed(why, cure=cure(place), retryable=bool(place.address)) from error

    async def _fetched(self, place: HomeHolder, owner: OwnerName, key: str, write: Callable[[bytes], None]) -> None:
        async with self.requests.ask(place, owner, key, place.name) as response:
            if response is None:
                raise FetchFailed(GONE, cure="Send it again.")
            async for piece in response.content.iter_chunked(PIECE):
                write(piece)

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the route for other nodes; none where there are none."""
        return [Endpoint(method="GET", path=PATH, handler=self._answer, auth=Auth.SIGNED)] if self.node else []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Return an upload of this node to a node that has the key."""
        named, key, _ = self.requests.words_of(request, self.node)
        owner = OwnerName(named)
        if not ids.is_client_id(key):
            raise web.HTTPNotFound(reason=GONE)
        try:
            file = self.here.opened(owner, key)
        except FetchFailed as gone:
            raise web.HTTPNotFound(reason=GONE) from gone
        with file:
            content = await asyncio.to_thread(file.read)  # at most `FILE_AT_MOST`
        self.here.fetched(owner, key)
        return web.Response(body=content, content_type="application/octet-stream")
