"""Port of the homes of sessions: where their files are. Beside the store's other ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.domain.ids import NodeId, SessionId
from gateway.domain.nodes import HomeHolder


class Homes(Protocol):
    """Places that hold the files of sessions (decision 74). Called by `gateway.app` and by readers of files."""

    async def astray(self, node: NodeId) -> Sequence[SessionId]:
        """Return families with unended turns whose home is away, at most 500.

        A home is away when no undrained worker there gave a sign of life for `NodeEntry.away_after`, of this node and
        of each node there. After a drain or an orderly end the time is ten times as long. Nothing for a node that is no
        worker, is drained, or was itself silent within that time.
        """
        ...

    async def say_awaited(self, node: NodeId) -> int:
        """Say in the chats of turns that wait for a home what they wait for. Return the number of notified turns.

        A home is awaited when no undrained worker there gave a sign of life for half of `NodeEntry.away_after`, or for
        30 s. A REPLY comes after five seconds, once in each conversation of a family none of whose turns is held. Any
        node may call it.
        """
        ...

    async def take_over(self, node: NodeId, session: SessionId) -> bool:
        """Make this node's place the home of a family that `astray` named. Its workspace there must be empty.

        Undecided approvals become SUPERSEDED and their calls PLANNED; a call that was started gets an UNKNOWN result. A
        REPLY in each conversation, and a message to each model, name the files and their place.

        Return False, and change nothing, when the home is not away, and while one of its turns is held.
        """
        ...

    async def places_of(self, session: SessionId) -> Sequence[HomeHolder]:
        """Return the places that hold, or held, files of a session, its home first."""
        ...

    async def node_named(self, name: str) -> HomeHolder | None:
        """Return the node with this name, which can be asked for files; None when it was silent for a day."""
        ...
