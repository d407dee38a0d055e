"""One store under the state machine: things are named by the order in which they appeared, so that two stores compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.model.ids import OwnerName, SessionId, TurnId, WaitId
from gateway.model.messages import Inbound
from gateway.model.sessions import Lease, Turn
from gateway.model.slots import Slot
from gateway.model.tools import Step
from gateway.model.views import Row, TurnView
from gateway.model.waits import Start
from gateway.ports import Store
from tests.support.makers import ANN_TELEGRAM, BOB, route, sha

MINTED = re.compile(r"\b[tio][0-9a-f]{16}\b")
SESSIONS = (route(), route(SessionId("chat:g")))
EVERYTHING = 1_000_000
T = TypeVar("T")


@dataclass(slots=True)
class World:
    """A store, what was taken from it, and a name for each of its ids."""

    open: Callable[[], Store]
    """Open the store, again after a crash."""
    store: Store
    leases: list[Lease] = field(default_factory=list[Lease])
    claimed: list[Slot] = field(default_factory=list[Slot])
    messages: list[Inbound] = field(default_factory=list[Inbound])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def said(self, result: object) -> str:
        """A result as text, minted ids replaced by names in the order of their first appearance."""
        return MINTED.sub(lambda found: self.names.setdefault(found[0], f"#{len(self.names)}"), repr(result))

    async def snapshot(self) -> Snapshot:
        """Everything that can be read, as objects for the invariants and as text to compare."""
        rows: list[Row] = []
        text: list[str] = []
        for way in SESSIONS:
            page = await self.store.older(way.session, None, EVERYTHING)
            rows += page.rows
            # By kind and then by place: in which order one transition stores rows of different kinds is its own affair.
            items = sorted(page.rows, key=lambda row: (type(row.item).__name__, row.ord))
            text += [self.said(row.item) for row in items]
        turns = [row.item for row in rows if isinstance(row.item, Turn)]
        views = {turn.id: await self.store.turn(turn.id) for turn in turns}
        return Snapshot(rows=rows, views=views, text=[*text, *await self._rest(views)])

    async def _rest(self, views: dict[TurnId, TurnView]) -> list[str]:
        store = self.store
        lines = [(line.session, line.waiting, line.running, line.queued) for line in await store.sessions()]
        history = [
            [view.turn.id for view in await store.history(way.session, epoch, 5)]
            for way in SESSIONS
            for epoch in (0, 1)
        ]
        cards = [
            [slot.id for slot in await store.card_slots(wait.id)] for view in views.values() for wait in view.waits
        ]
        return [
            *(self.said(view) for view in views.values()),
            self.said(sorted(lines, key=lambda line: line[0].id)),
            self.said(history),
            self.said(cards),
            self.said(await store.counts()),
            self.said([wait.id for wait in await store.open_approvals()]),
            self.said(await store.reach(OwnerName("ann"), [ANN_TELEGRAM, BOB])),
        ]

    def lease(self, back: int) -> Lease | None:
        """One of the last leases that were taken, perhaps a stale one."""
        return _pick(self.leases, back)

    def slot(self, back: int) -> Slot | None:
        """One of the last slots that were claimed, as it was then."""
        return _pick(self.claimed, back)

    def message(self, back: int) -> Inbound | None:
        """One of the last messages."""
        return _pick(self.messages, back)

    async def steps(self, lease: Lease) -> Sequence[Step]:
        """The tool calls of the leased turn."""
        return [step for step in (await self.store.turn(lease.turn)).steps if step.call is not None]

    async def start(self, lease: Lease, step: Step, wait: WaitId | None, *, right: bool) -> Start:
        """Start a call, bound to its action or to another one."""
        return await self.store.start_step(lease, step.n, wait, sha(step.n) if right else "other")


@dataclass(slots=True)
class Snapshot:
    """What a store held at one moment."""

    rows: list[Row]
    views: dict[TurnId, TurnView]
    text: list[str]


def _pick(things: Sequence[T], back: int) -> T | None:
    return things[-1 - back % min(len(things), 4)] if things else None
