"""Protocols for what a running tool leaves: output, files, posts. Implemented by `gateway.toolcalls`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from gateway.domain.ids import SessionId
from gateway.domain.posts import NewPost, Post
from gateway.domain.tools import Artifact, Picture

FindOutput: TypeAlias = Callable[[SessionId, str], Awaitable[Path | None]]
"""Return the path of an output of a session, fetched first when it is on another node. None when there is none.

Raises `FileAway` for one on a node that cannot be asked now.
"""


class Output(Protocol):
    """Output of a running tool: published live, head and tail kept for the result, all of it in a file when long."""

    def write(self, data: bytes) -> None:
        """Append some output. Cheap; never fails for size."""
        ...


class Artifacts(Protocol):
    """Pictures and files that a call keeps for people."""

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Store a picture, at most 10 MB. Put the return value into `ToolResult.pictures`."""
        ...

    async def file(self, path: Path, name: str, media_type: str) -> Artifact:
        """Store a copy of a workspace file, at most 50 MB. Put the return value into `ToolResult.files`.

        Raises `BadRequest` for a file that is too large, and for anything but a regular file of the workspace.
        """
        ...


class Messages(Protocol):
    """Posts to conversations, of tools of channels."""

    @property
    def name(self) -> str:
        """Name of the message that this call posts. A later call names it so."""
        ...

    async def post(self, channel: str, wanted: NewPost) -> Post:
        """Return a post that the call may make. Put it into `ToolResult.posts`: it leaves once the result is stored.

        Secrets are removed from its texts, and texts for another conversation are marked. Raises `BadRequest` where the
        channel cannot do that, and `Forbidden` for a chat that the owner never listed. Raises `NotFound` for a message
        that this session did not post there.
        """
        ...
