"""The store in memory: rows in dicts, gone with the process. The smallest backend to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gateway.domain.durability import StoreTerms
from gateway.domain.events import SLOTS, TURNS
from gateway.domain.grants import Grant
from gateway.domain.ids import GrantId, InboundId, NodeId, SessionId, SlotId, TurnId, WaitId
from gateway.domain.slots import Slot
from gateway.domain.turns import Lease, TurnKind, company
from gateway.domain.views import Claimed
from gateway.ports import Clock
from gateway.store.answer_rules import together
from gateway.store.event_bus import LocalEventBus
from gateway.store.kernel import turns
from gateway.store.kernel.part import EventKey, FactKey, Part, StepKey
from gateway.store.kernel.rows import Fact, MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow
from gateway.store.memory.queries import MemoryQueries

K = TypeVar("K")
T = TypeVar("T")


class MemoryStore(MemoryQueries):
    """`ports.Store` in dicts. Transitions never await, so each is atomic."""

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        super().__init__(clock)
        self.local_bus = LocalEventBus()
        self.rev = 0
        self.events: dict[EventKey, str] = {}
        self.poison: dict[EventKey, tuple[str, str]] = {}

    @property
    def event_bus(self) -> LocalEventBus:
        """Return the store's event bus."""
        return self.local_bus

    @property
    def terms(self) -> StoreTerms:
        """Return its durability: all, without a notice."""
        return StoreTerms()

    async def probe(self) -> None:
        """Do nothing: a write to memory cannot fail."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    # --- transitions ------------------------------------------------------------------------

    async def run(self, transition: Callable[[Part], T]) -> T:
        """Run a transition."""
        return self.change(transition)

    def change(self, transition: Callable[[Part], T]) -> T:
        """Run a transition at once; publish its wake-ups."""
        part = Part(self, self.clock.now(), self.rev)
        result = transition(part)
        self.commit(part)
        return result

    def commit(self, part: Part) -> None:
        """Store the changes of a transition and publish its wake-ups."""
        self._apply(part)
        part.touched.publish(self.local_bus)

    async def claim_turns(
        self, take: Callable[[Part, TurnId], Claimed | None], limit: int, wait_s: float, home: str = ""
    ) -> list[Claimed]:
        """Claim ready turns; when there is none, wait for one."""
        claimed = self._claim(take, limit, home)
        if not claimed and wait_s > 0 and await self.local_bus.wait_for(TURNS, wait_s):
            claimed = self._claim(take, limit, home)
        return claimed

    def _claim(self, take: Callable[[Part, TurnId], Claimed | None], limit: int, home: str) -> list[Claimed]:
        claimed, most = list[Claimed](), limit
        while len(claimed) < most and (ready := self.ready_turns(self.clock.now(), 1, home)):
            taken = self.change(lambda part, turn=ready[0]: take(part, turn))
            assert taken is not None, "the index and the kernel agree"
            claimed.append(taken)
            most = min(most, company(taken.begun))
        return claimed

    async def claim_due(self, take: Callable[[Part], list[Slot]], limit: int, wait_s: float) -> list[Slot]:
        """Claim due slots; when there is none, wait for some."""
        taken = self.change(take)
        if not taken and wait_s > 0 and await self.local_bus.wait_for(SLOTS, wait_s):
            taken = self.change(take)
        return taken

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        """Lease turns that may run, the longest waiting first."""
        claimed = partial(self._claimed, history=history)
        return await self.lease_turns(node, home, limit, wait_s, claimed)

    def _claimed(self, part: Part, lease: Lease, history: int) -> Claimed:
        view = turns.view_of(part, lease.turn)
        asked = history and view.turn.kind is TurnKind.MODEL
        before = self.history_of(view.session.id, view.turn.epoch, history) if asked else None
        return Claimed(lease=lease, view=view, history=before)

    def _apply(self, part: Part) -> None:
        """Store the changes of a transition."""
        self.rev = part.rev
        self.events.update(_present(part.events.changed))
        for event in [key for key, outcome in part.events.changed.items() if outcome is None]:
            self.events.pop(event, None)
        for key, fact in part.facts.changed.items():
            if fact is None:
                self.all_facts.pop(key, None)
            else:
                self.all_facts[key] = fact
        if part.forgets_expired:
            facts = self.all_facts.items()
            self.all_facts = {key: one for key, one in facts if one.until is None or one.until > part.now}
        self.poison.update({key: (raw, why) for key, raw, why in part.poison})
        self.audit = [row for row in self.audit if row.seq not in part.audit_removed] + part.audit
        for spent in part.spent:
            key = (spent.day, spent.principal, spent.model)
            self.books[key] = together(self.books[key], spent) if key in self.books else spent
        self.grants.update(_present(part.grants.changed))
        self.sessions_by_id.update(_present(part.sessions.changed))
        self.cards_by_wait.update(_present(part.cards.changed))
        self.index_rows(part)
        self.drop_rows(part)
        # A finished slot makes room for the next one of its conversation.
        part.touched.slots_due |= any(place in self.unsent for place in part.freed)

    # --- rows for the kernel ----------------------------------------------------------------

    def session_row(self, key: SessionId) -> SessionRow | None:
        """Return a session."""
        return self.sessions_by_id.get(key)

    def turn_row(self, key: TurnId) -> TurnRow | None:
        """Return a turn."""
        return self.turns.get(key)

    def message_row(self, key: InboundId) -> MessageRow | None:
        """Return a message."""
        return self.messages.get(key)

    def step_row(self, key: StepKey) -> StepRow | None:
        """Return a step."""
        return self.steps.get(key)

    def wait_row(self, key: WaitId) -> WaitRow | None:
        """Return a wait."""
        return self.waits.get(key)

    def slot_row(self, key: SlotId) -> SlotRow | None:
        """Return a slot."""
        return self.slots.get(key)

    def cards_row(self, key: WaitId) -> tuple[SlotId, ...] | None:
        """Return the cards that show a wait."""
        return self.cards_by_wait.get(key)

    def event_row(self, key: EventKey) -> str | None:
        """Return the outcome of an event."""
        return self.events.get(key)

    def fact_row(self, key: FactKey) -> Fact | None:
        """Return a fact."""
        return self.all_facts.get(key)

    def fact_rows(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace, by key."""
        return sorted((key, fact) for (room, key), fact in self.all_facts.items() if room == namespace)

    def grant_row(self, key: GrantId) -> Grant | None:
        """Return a grant."""
        return self.grants.get(key)

    def is_whole(self, turn: TurnId) -> bool:
        """Return True: nothing here can be damaged."""
        del turn
        return True

    async def facts(self, keys: Sequence[FactKey]) -> list[Fact | None]:
        """Return stored facts."""
        return [self.all_facts.get(key) for key in keys]

    async def facts_in(self, namespace: str) -> list[tuple[str, Fact]]:
        """Return all facts of a namespace."""
        return self.fact_rows(namespace)


def _present(changed: dict[K, T | None]) -> dict[K, T]:
    return {key: row for key, row in changed.items() if row is not None}
