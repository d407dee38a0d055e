"""This daemon as one node of a gateway: joins it, tells that it lives, and takes no work while it is drained.

Wired by `app.build`. The daemon's loops of work look at the gates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.durability import STRICT, StoreTerms
from gateway.domain.ids import OwnerName, Principal
from gateway.domain.live import NODES
from gateway.domain.nodes import Loss, NodeEntry, NodeLine, Role, Standing, differences, name_of
from gateway.errors import DragomanError, StoreError
from gateway.ports import EventBus, Node
from gateway.system.gate import Gate
from gateway.system.logging_setup import log

ALIVE_EVERY_S = 10.0
"""Seconds between two signs of life of this node, at most."""
SIGNS_OF_LIFE = 6
"""Signs of life, at least, in the time after which a silent node loses its sessions."""


def gates_of(roles: frozenset[Role]) -> dict[Role, Gate]:
    """Return a gate for each role, open for those of this node."""
    return {role: Gate(is_open=role in roles) for role in Role}


@dataclass(slots=True, kw_only=True)
class Membership:
    """Place of this daemon among the nodes of its store."""

    entry: NodeEntry
    node: Node
    events: EventBus
    owners: Mapping[OwnerName, Sequence[Principal]] = field(default_factory=dict[OwnerName, Sequence[Principal]])
    gates: dict[Role, Gate] = field(default_factory=lambda: gates_of(frozenset(Role)))
    drained: bool = False
    differs: Sequence[str] = ()
    """A sentence for each living node that is configured otherwise."""
    has_others: bool = False
    """Whether other nodes were there within a day."""
    trouble: str = ""
    """Why this node is no member of the gateway any more; empty while it is."""
    terms: StoreTerms = STRICT
    """What the store may lose."""
    loss: Loss | None = None
    """What the store lost last."""
    _log: Any = field(default_factory=lambda: log("membership"))

    def shown_name(self) -> str:
        """Return the name of this node for cards; empty where a name would tell nothing."""
        return name_of(self.entry.node) if self.has_others else ""

    def standing(self) -> Standing:
        """Return how this node stands now."""
        return Standing(
            name=name_of(self.entry.node),
            roles=self.entry.roles,
            drained=self.drained,
            trouble=self.trouble,
            differs=self.differs,
            loss=self.loss,
            terms=self.terms,
        )

    async def join(self) -> None:
        """Tell the store of this node. Raises `DragomanError` with its cure when it cannot be one of the gateway."""
        self._obey(await self.node.join(self.entry))
        await self._compare()
        await self._tell_loss()

    async def run(self) -> None:
        """Tell the store at least every ten seconds that this node lives, and look at once when an event says so."""
        every_s = min(ALIVE_EVERY_S, self.entry.away_after.total_seconds() / SIGNS_OF_LIFE)
        async with self.events.subscribe(NODES) as events:
            while True:
                try:
                    async with asyncio.timeout(every_s):
                        await anext(events)
                except TimeoutError:
                    pass
                await self._look()

    async def resign(self) -> None:
        """Take this node off the list. Call last."""
        try:
            await self.node.resign(self.entry.node)
        except StoreError as error:
            self._log.warning("this node stays on the list for a while", error=str(error))

    async def _look(self) -> None:
        try:
            line = await self.node.alive(self.entry.node)
            self._obey(await self.node.join(self.entry) if line is None else line)
            await self._compare()
            await self._tell_loss()
        except StoreError as error:
            self._log.error("heartbeat failed", error=str(error))
        except DragomanError as error:
            self.trouble = str(error)
            self._log.error("this node is no member of its gateway any more", error=str(error))
        except Exception:  # noqa: BLE001 - a sweep: without it other nodes would take this one for dead (house rule 9)
            self._log.exception("heartbeat failed")
        else:
            self.trouble = ""

    def _obey(self, line: NodeLine) -> None:
        if line.drained is not self.drained:
            says = "this node is drained: it takes no new work" if line.drained else "this node works again"
            self._log.warning(says, cure=f"dragoman nodes resume {line.name}" if line.drained else "")
        self.drained = line.drained
        for role, gate in self.gates.items():
            gate.set(role in self.entry.roles and not line.drained)

    async def _tell_loss(self) -> None:
        """Look for a loss of the store; the first node that sees it tells the owners."""
        loss = await self.node.tell_loss(self.owners)
        if loss is not None and loss != self.loss:
            self._log.error("the store lost changes", revisions=loss.revisions, life=loss.life)
        self.loss = loss

    async def _compare(self) -> None:
        """Look for nodes that are configured otherwise. Each difference is told once."""
        lines = await self.node.nodes()
        self.has_others = len(lines) > 1
        own = next((line for line in lines if line.node == self.entry.node), None)
        found = [] if own is None else differences(own, lines)
        for sentence in found:
            if sentence not in self.differs:
                self._log.warning(sentence, cure="Give all nodes the same configuration.")
        self.differs = found
