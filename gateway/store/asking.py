"""How many approvals may open at once, for all stores. Pure: their transitions count and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.waits import NewWait, WaitKind


def within(
    waits: Sequence[NewWait], slots: Sequence[NewSlot], already: int, most: int | None
) -> tuple[Sequence[NewWait], Sequence[NewSlot]]:
    """Return the waits that may open, the first ones, and the slots without rows of the others.

    `already`: the requester's open approvals in the session. `most`: the limit; None is no limit.
    """
    if most is None or not any(wait.kind is WaitKind.APPROVAL for wait in waits):
        return waits, slots
    room = max(0, most - already)
    opened = waits[:room]
    left_out = frozenset(wait.id for wait in waits[room:])
    rest = [replace(slot, waits=tuple(wait for wait in slot.waits if wait not in left_out)) for slot in slots]
    kept = [slot for slot in rest if slot.waits or slot.kind is not SlotKind.CARD]
    return opened, kept if opened else ()
