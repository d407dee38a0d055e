"""The store in memory: the reference of every transition, and the tests' fake. What it holds ends with the process."""

from __future__ import annotations

from gateway.store.event_bus import LocalEventBus
from gateway.store.memory.children import MemoryChildren
from gateway.store.memory.drops import MemoryDrops
from gateway.store.memory.engine import MemoryEngine
from gateway.store.memory.intake import MemoryIntake
from gateway.store.memory.outbox import MemoryOutbox
from gateway.store.memory.records import MemoryRecords
from gateway.store.memory.sweeps import MemorySweeps
from gateway.store.memory.views import MemoryQueries


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
    """`ports.Store`, in dicts. Every method runs without awaiting, so that it is atomic."""

    @property
    def live(self) -> LocalEventBus:
        """The store's wake-ups."""
        return self.live_bus

    async def probe(self) -> None:
        """Nothing can fail here."""

    async def close(self) -> None:
        """Nothing to close."""
