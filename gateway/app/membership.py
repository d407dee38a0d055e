"""This daemon as one node of a gateway: it joins before it does anything else. Wired by `app.build`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.nodes import NodeEntry
from gateway.ports import Node


@dataclass(slots=True, kw_only=True)
class Membership:
    """Place of this daemon among the nodes of its store."""

    entry: NodeEntry
    node: Node

    async def join(self) -> None:
        """Tell the store of this node. Raises `ConfigError` with its cure when it cannot be one of the gateway."""
        await self.node.join(self.entry)
