"""Changes of stored rows that no port offers."""

from __future__ import annotations

from typing import Any

from gateway.domain.ids import SessionId, SlotId, TurnId
from gateway.domain.routes import Route
from gateway.domain.slots import NewSlot
from gateway.store.kernel import messages, slots
from gateway.store.memory import MemoryStore


def add_slot(store: MemoryStore, new: NewSlot, session: SessionId | None, turn: TurnId | None) -> SlotId:
    """Store a slot, as a transition does."""
    return store.change(lambda part: slots.add_slot(part, new, session, turn))


def rewrite(store: MemoryStore, slot: SlotId, text: str, n: int | None) -> None:
    """Replace a slot's text, as its turn does."""
    store.change(lambda part: slots.rewrite(part, slot, text, n, early=part.slots[slot].early))


def set_slot(store: MemoryStore, slot: SlotId, **changes: Any) -> None:
    """Change fields of a stored slot."""
    store.change(lambda part: part.set_slot(slot, of_slot=changes))


def use_session(store: MemoryStore, route: Route) -> None:
    """Store the session of a route."""
    store.change(lambda part: messages.use_session(part, route))
