"""Outbox transitions in SQLite: claims and results of sending slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from gateway.domain.ids import NodeId, OwnerName, Principal, SlotId
from gateway.domain.messages import latest_chat, owner_page
from gateway.domain.routes import main_route
from gateway.domain.slots import REFUSALS_AT_ONCE, NewSlot, Slot, SlotKind, SlotState
from gateway.errors import NotFound
from gateway.store.codec import MICROSECOND, dump_json, from_us, load_conversation
from gateway.store.constants import TOLD_EVERY
from gateway.store.sqlite.base import SqliteBase
from gateway.store.sqlite.rows import slot_of
from gateway.store.sqlite.slot_ops import add_slot, rev_of_slot, settled, show_slot_anew
from gateway.store.sqlite.tx import ReadTx, Tx


class SqliteOutbox(SqliteBase):
    """`ports.Outbox`."""

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Claim the oldest due slot of each conversation; none overtakes an older one that awaits a retry."""
        return await self.writer.claim_slots(lambda tx: _claim_slots(tx, node, channels, limit), limit, wait_s)

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether a slot is due now."""
        return await self.read(lambda reader: bool(_claimable(reader, channels, 1)))

    async def slot_sent(self, slot: SlotId, version: int, platform_id: str, *, unsettled: bool = False) -> None:
        """Record the version that is shown."""
        await self.write(lambda tx: _slot_sent(tx, slot, version, platform_id, unsettled=unsettled))

    async def slot_part(self, slot: SlotId, platform_id: str) -> None:
        """Record the messages shown so far."""
        await self.write(lambda tx: tx.run("slot_part", *_find(tx, slot), platform_id))

    async def slot_retry(
        self, slot: SlotId, delay: timedelta, *, uncertain: bool, unsettled: bool = False, counted: bool = True
    ) -> None:
        """Schedule a retry."""
        await self.write(
            lambda tx: _slot_retry(tx, slot, delay, uncertain=uncertain, unsettled=unsettled, counted=counted)
        )

    async def slot_dead(self, slot: SlotId, version: int, why: str) -> None:
        """Mark it dead, unless it changed meanwhile."""
        await self.write(lambda tx: _slot_dead(tx, slot, version, why))

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """Send the newer version once more. A version stored after this check is sent after the edit in question."""
        newer = await self.read(lambda reader: reader.one("slot_newer", slot, version))
        return newer is not None and await self.write(lambda tx: _slot_overwritten(tx, slot, version))

    async def tell_owners(self, key: str, text: str, owners: Mapping[OwnerName, Sequence[Principal]]) -> bool:
        """Notify every owner, at most once an hour per key."""
        return await self.write(lambda tx: _notify_owners(tx, key, text, owners))


def _claimable(reader: ReadTx, channels: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
    """Return place and session of the slots that may be sent now."""
    due = reader.run("claimable_slots", dump_json(list(channels)), reader.now, limit)
    for channel in channels:
        due += reader.run("claimable_refusals", channel, reader.now, limit - len(due), REFUSALS_AT_ONCE)
    return due


def _claim_slots(tx: Tx, node: NodeId, channels: Sequence[str], limit: int) -> list[Slot]:
    taken: list[Slot] = []
    for seq, session in _claimable(tx, channels, limit):
        (columns,) = tx.run("take_slot", node, tx.now, rev_of_slot(tx, session), seq)
        taken.append(slot_of(columns))
    return taken


def _slot_sent(tx: Tx, slot: SlotId, version: int, platform_id: str, *, unsettled: bool) -> None:
    seq, rev = _find(tx, slot)
    ((state, place),) = tx.run("slot_sent", seq, rev, version, platform_id, tx.now, settled(tx), unsettled)
    _make_room(tx, state, place)


def _slot_retry(tx: Tx, slot: SlotId, delay: timedelta, *, uncertain: bool, unsettled: bool, counted: bool) -> None:
    seq, rev = _find(tx, slot)
    at, taken_back = tx.now + delay // MICROSECOND, 0 if counted else 1
    tx.run("slot_retry", seq, rev, uncertain, at, taken_back, settled(tx) if unsettled else None)
    tx.touched.slots_due = True


def _slot_dead(tx: Tx, slot: SlotId, version: int, why: str) -> None:
    seq, rev = _find(tx, slot)
    ((state, place),) = tx.run("slot_dead", seq, rev, version, why, tx.now)
    _make_room(tx, state, place)


def _slot_overwritten(tx: Tx, slot: SlotId, version: int) -> bool:
    found = tx.one("slot_newer", slot, version)
    if found is not None and found[2] in (SlotState.SENDING, SlotState.SENT):
        show_slot_anew(tx, *found, once_more=True)
    return found is not None


def _notify_owners(tx: Tx, key: str, text: str, owners: Mapping[OwnerName, Sequence[Principal]]) -> bool:
    if not tx.run("tell", key, tx.now, tx.now - TOLD_EVERY // MICROSECOND):
        return False
    for owner, principals in owners.items():
        way = main_route(owner)
        tx.run("make_session", way.session, way.kind, way.origin, way.owner, way.title, tx.now)
        add_slot(tx, NewSlot(conversation=owner_page(owner), kind=SlotKind.REPLY, text=text), way.session, None)
        used = [found for who in principals if (found := tx.one("person", who)) is not None]
        chat = latest_chat((load_conversation(place), from_us(at)) for place, at in used)
        if chat is not None:
            # No session: its page shows the other slot.
            add_slot(tx, NewSlot(conversation=chat, kind=SlotKind.REPLY, text=text), None, None)
    return True


def _find(tx: Tx, slot: SlotId) -> tuple[int, int | None]:
    """Return a slot's place in the outbox and its next revision. Raises `NotFound`."""
    found = tx.one("slot_brief", slot)
    if found is None:
        raise NotFound(f"There is no slot {slot}.")
    return found[0], rev_of_slot(tx, found[1])


def _make_room(tx: Tx, state: str, place: str) -> None:
    """Wake claims when a finished slot makes room for the next one of its conversation."""
    tx.touched.slots_due |= state == SlotState.DUE or tx.run("is_unsent", place) == [(1,)]
