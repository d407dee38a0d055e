"""The store in memory: reference of every transition, and the tests' fake. Its rows end with the process."""

from __future__ import annotations

from gateway.store.event_bus import LocalEventBus
from gateway.store.memory.children import MemoryChildren
from gateway.store.memory.drops import MemoryDrops
from gateway.store.memory.engine import MemoryEngine
from gateway.store.memory.intake import MemoryIntake
from gateway.store.memory.outbox import MemoryOutbox
from gateway.store.memory.queries import MemoryQueries
from gateway.store.memory.records import MemoryRecords
from gateway.store.memory.sweeps import MemorySweeps


class MemoryStore(
    MemoryIntake,
    MemoryDrops,
    MemoryEngine,
    MemoryChildren,
    MemorySweeps,
    MemoryOutbox,
    MemoryRecords,
    MemoryQueries,
):
    """`ports.Store` in dicts. Transitions never await, so each is atomic."""

    @property
    def live(self) -> LocalEventBus:
        """Return the store's event bus."""
        return self.live_bus

    async def probe(self) -> None:
        """Do nothing: a write to memory cannot fail."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
