"""Changes of stored rows that no port offers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.domain.ids import SessionId, SlotId, TurnId
from gateway.domain.messages import Inbound
from gateway.domain.routes import Route
from gateway.domain.slots import NewSlot
from gateway.domain.turns import TurnKind
from gateway.store.kernel import messages, slots, turns
from gateway.store.kernel.part import Part
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


def begin_turn(store: MemoryStore, route: Route, message: Inbound, id: TurnId) -> None:
    """Store the session of a route with a queued turn of this id."""

    def begin(part: Part) -> None:
        row = messages.use_session(part, route)
        turns.add_turn(part, replace(turns.new_turn(row, TurnKind.MODEL, message, message.principal, part), id=id))

    store.change(begin)
