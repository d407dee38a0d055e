"""Outbox transitions in SQLite: slots on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gateway.errors import NotFound
from gateway.model.ids import NodeId, SlotId
from gateway.model.slots import Slot, SlotState
from gateway.store.codec import MICROSECOND, dump_json
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.moves import rev_of_slot
from gateway.store.sqlite.rows import slot_of
from gateway.store.sqlite.tx import Tx


class SqliteOutbox(SqliteBase):
    """`ports.Outbox`."""

    async def claim_slots(self, node: NodeId, channels: Sequence[str], limit: int) -> Sequence[Slot]:
        """Take due slots, the oldest of each conversation: a newer one never overtakes one to be tried again."""
        return await self.write(lambda tx: _claim_slots(tx, node, channels, limit))

    async def slot_sent(self, slot: SlotId, version: int, platform_id: str) -> None:
        """Record what is shown."""
        await self.write(lambda tx: _slot_sent(tx, slot, version, platform_id))

    async def slot_retry(self, slot: SlotId, version: int, delay: timedelta, *, uncertain: bool) -> None:
        """Send it again later."""
        await self.write(lambda tx: _slot_retry(tx, slot, delay, uncertain=uncertain))

    async def slot_dead(self, slot: SlotId, version: int, why: str) -> None:
        """Give it up, unless it changed meanwhile."""
        await self.write(lambda tx: _slot_dead(tx, slot, version, why))


def _claim_slots(tx: Tx, node: NodeId, channels: Sequence[str], limit: int) -> list[Slot]:
    taken: list[Slot] = []
    for seq, session in tx.run("claimable_slots", dump_json(list(channels)), tx.now, limit):
        (columns,) = tx.run("take_slot", node, tx.now, rev_of_slot(tx, session), seq)
        taken.append(slot_of(columns))
    return taken


def _slot_sent(tx: Tx, slot: SlotId, version: int, platform_id: str) -> None:
    seq, rev = _find(tx, slot)
    ((state, place),) = tx.run("slot_sent", seq, rev, version, platform_id, tx.now)
    _make_room(tx, state, place)


def _slot_retry(tx: Tx, slot: SlotId, delay: timedelta, *, uncertain: bool) -> None:
    seq, rev = _find(tx, slot)
    tx.run("slot_retry", seq, rev, uncertain, tx.now + delay // MICROSECOND)
    tx.touched.slots_due = True


def _slot_dead(tx: Tx, slot: SlotId, version: int, why: str) -> None:
    seq, rev = _find(tx, slot)
    ((state, place),) = tx.run("slot_dead", seq, rev, version, why, tx.now)
    _make_room(tx, state, place)


def _find(tx: Tx, slot: SlotId) -> tuple[int, int | None]:
    """Return a slot's place in the outbox and its next revision. Raises `NotFound`."""
    found = tx.one("slot_brief", slot)
    if found is None:
        raise NotFound(f"There is no slot {slot}.")
    return found[0], rev_of_slot(tx, found[1])


def _make_room(tx: Tx, state: str, place: str) -> None:
    """A slot that is through makes room for the next one of its conversation."""
    tx.touched.slots_due |= state == SlotState.DUE or tx.run("is_unsent", place) == [(1,)]
