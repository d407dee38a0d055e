"""Node membership: join, heartbeat, and no new work while drained.

Wired by `app.build`. The daemon's work loops wait at the gates. `domain.nodes` has the time for which a node
counts as alive.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.app.shared_disk import SharedDisk
from gateway.domain.durability import STRICT, StoreTerms
from gateway.domain.events import NODES, NodesChanged
from gateway.domain.ids import OwnerName, Principal
from gateway.domain.nodes import Loss, NodeEntry, NodeLine, Role, Standing, differences, name_of
from gateway.errors import DragomanError, StoreError, UnseenNodes
from gateway.ports import EventBus, Node
from gateway.system.gate import Gate
from gateway.system.logging_setup import log

ALIVE_EVERY_S = 10.0
"""Seconds between two signs of life of this node, at most."""
ANSWER_WITHIN_S = 5.0
"""Seconds after its sign of life within which a node answers whether it has the same files. It does so right after."""
ASK_AGAIN_S = 0.1
"""Interval in seconds between checks for such answers."""
TRIES_PER_CALL = 10
"""Checks for answers after which the nodes are called again."""
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
    place: SharedDisk | None = None
    """Workspaces of this node; None where no other node can open the store."""
    answer_within_s: float = ANSWER_WITHIN_S
    owners: Mapping[OwnerName, Sequence[Principal]] = field(default_factory=dict[OwnerName, Sequence[Principal]])
    gates: dict[Role, Gate] = field(default_factory=lambda: gates_of(frozenset(Role)))
    drained: bool = False
    differs: Sequence[str] = ()
    """A sentence for each living node that is configured otherwise."""
    has_others: bool = False
    """True if another node gave a sign of life within a day."""
    trouble: str = ""
    """Why this node is no member of the gateway any more; empty while it is."""
    terms: Callable[[], StoreTerms] = lambda: STRICT
    """Returns the store's durability terms; they change on failover."""
    loss: Loss | None = None
    """Last loss of the store."""
    note: Callable[[], Awaitable[None]] | None = None
    """Notes the store's revision; None where the store is a file of this machine."""
    _log: Any = field(default_factory=lambda: log("membership"))

    def shown_name(self) -> str:
        """Return the name of this node for cards; empty where a name would be useless."""
        return name_of(self.entry.node) if self.has_others else ""

    def standing(self) -> Standing:
        """Return the present standing of this node."""
        return Standing(
            name=name_of(self.entry.node),
            roles=self.entry.roles,
            drained=self.drained,
            trouble=self.trouble,
            differs=self.differs,
            loss=self.loss,
            terms=self.terms(),
        )

    async def join(self) -> None:
        """Register this node in the store. Raises `DragomanError` with its cure if the gateway cannot have it."""
        self._obey(await self._enter())
        await self._compare()
        await self._tell_loss()

    async def _enter(self) -> NodeLine:
        """Join. Nodes that live at the same home are asked before whether they have the same files."""
        asked: Sequence[str] = ()
        while True:
            try:
                return await self.node.join(self.entry)
            except UnseenNodes as unseen:
                if self.place is None or unseen.names == asked:
                    raise
                asked = unseen.names
                seen = await self._ask(self.place, asked)
                self.entry = replace(self.entry, seen=self.entry.seen | seen)

    async def _ask(self, place: SharedDisk, names: Sequence[str]) -> frozenset[str]:
        """Return which of these nodes answered on the disk of this one. One that dies meanwhile is not waited for."""
        question = secrets.token_hex(16)
        async with place.ask(question, names):
            await self.node.join(replace(self.entry, home="", asks=question))
            first = {line.name: line.alive_at for line in await self.node.nodes()}
            clock, seen, late, silent = (
                asyncio.get_running_loop().time,
                frozenset[str](),
                dict[str, float](),
                set(names),
            )
            tries = 0
            while silent:
                if tries % TRIES_PER_CALL == 0:  # one that starts now did not hear the first calls
                    self.events.publish(NODES, NodesChanged())
                tries += 1
                await asyncio.sleep(ASK_AGAIN_S)
                seen = await place.answers(question, names)
                lives = {line.name: line for line in await self.node.nodes() if line.lives}
                for name in silent & lives.keys():
                    if lives[name].alive_at != first.get(name):
                        late.setdefault(name, clock() + self.answer_within_s)
                silent = {name for name in silent & lives.keys() - seen if clock() < late.get(name, math.inf)}
        return seen

    async def run(self) -> None:
        """Send a sign of life to the store at least every ten seconds, and at once after an event."""
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
            await self._note()
        except StoreError as error:
            self._log.warning("this node stays on the list for a while", error=str(error))

    async def _look(self) -> None:
        try:
            line = await self.node.alive(self.entry.node)
            self._obey(await self._enter() if line is None else line)
            await self._compare()
            await self._tell_loss()
            await self._note()
        except StoreError as error:
            self._log.error("heartbeat failed", error=str(error))
        except DragomanError as error:
            self.trouble = str(error)
            self._log.error("this node is no member of its gateway any more", error=str(error))
        except Exception:  # noqa: BLE001 - a sweep: without it other nodes would take this one for dead (house rule 9)
            self._log.exception("heartbeat failed")
        else:
            self.trouble = ""

    async def _note(self) -> None:
        if self.note is not None:
            await self.note()

    def _obey(self, line: NodeLine) -> None:
        if line.drained is not self.drained:
            says = "this node is drained: it takes no new work" if line.drained else "this node works again"
            self._log.warning(says, cure=f"dragoman nodes resume {line.name}" if line.drained else "")
        self.drained = line.drained
        for role, gate in self.gates.items():
            gate.set(role in self.entry.roles and not line.drained)

    async def _tell_loss(self) -> None:
        """Check for a loss of the store; the first node that finds one notifies the owners."""
        loss = await self.node.tell_loss(self.owners)
        if loss is not None and loss != self.loss:
            self._log.error("the store lost changes", revisions=loss.revisions, life=loss.life)
        self.loss = loss

    async def _compare(self) -> None:
        """Check for nodes that are configured otherwise. Each difference is reported once."""
        lines = await self.node.nodes()
        await self._answer(lines)
        self.has_others = len(lines) > 1
        own = next((line for line in lines if line.node == self.entry.node), None)
        found = [] if own is None else differences(own, lines)
        for sentence in found:
            if sentence not in self.differs:
                self._log.warning(sentence, cure="Give all nodes the same configuration.")
        self.differs = found

    async def _answer(self, lines: Sequence[NodeLine]) -> None:
        """Answer nodes that ask whether they have the files of this one: on the disk, where they see it if they do."""
        asking = {line.asks: line.name for line in lines if line.asks and line.lives and line.node != self.entry.node}
        if self.place is not None and asking:
            here = await self.place.answer(name_of(self.entry.node), asking)
            self.entry = replace(self.entry, seen=self.entry.seen | here)
