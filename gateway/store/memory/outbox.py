"""Outbox transitions in memory: claims and results of sending slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal, SlotId
from gateway.domain.live import SLOTS
from gateway.domain.messages import latest_chat, owner_page
from gateway.domain.routes import main_route
from gateway.domain.sessions import SessionKind
from gateway.domain.slots import REFUSALS_AT_ONCE, NewSlot, Slot, SlotKind, SlotState
from gateway.errors import NotFound
from gateway.store.constants import TOLD_EVERY
from gateway.store.memory.rows import SlotRow
from gateway.store.memory.turn_ops import TurnOps

EDITED = frozenset({SlotKind.ANSWER, SlotKind.STATUS})
"""Slot kinds that live edits change, outside of the outbox, while their turn runs."""


class MemoryOutbox(TurnOps):
    """`ports.Outbox`."""

    async def claim_slots(
        self, node: NodeId, channels: Sequence[str], limit: int, *, wait_s: float = 0
    ) -> Sequence[Slot]:
        """Claim the oldest due slot of each conversation; none overtakes an older one that awaits a retry."""
        taken = self._claim_slots(node, channels, limit)
        if not taken and wait_s > 0 and await self.live_bus.wait_for(SLOTS, wait_s):
            taken = self._claim_slots(node, channels, limit)
        return taken

    def _claim_slots(self, node: NodeId, channels: Sequence[str], limit: int) -> list[Slot]:
        with self.transition() as now:
            taken = self._claimable(channels, now)[:limit]
            for row in taken:
                row.node, row.sending_since = node, now
                self.put_slot(row, replace(row.slot, state=SlotState.SENDING, attempts=row.slot.attempts + 1))
            return [row.slot for row in taken]

    def _claimable(self, channels: Sequence[str], now: datetime) -> list[SlotRow]:
        idle = [here for here in self.unsent.values() if all(row.sending_since is None for row in here.values())]
        heads = [min(here.values(), key=self._place) for here in idle]
        due = [r for r in heads if r.slot.due_at <= now and r.slot.conversation.channel in channels]
        due.sort(key=lambda row: row.seq)
        found = [row for row in due if row.slot.kind is not SlotKind.REFUSAL]
        for channel in channels:
            refusals = [row for row in due if row.slot.kind is SlotKind.REFUSAL and _is_on(row, channel)]
            found += refusals[: REFUSALS_AT_ONCE - self._refusals_sent(channel)]
        return found

    def _place(self, row: SlotRow) -> tuple[bool, int]:
        """Return the sort key of a slot in its conversation: cards of sessions other than a main one come last."""
        session = None if row.slot.session is None else self.all_sessions[row.slot.session].session
        others = session is not None and session.root_kind is not SessionKind.MAIN
        return row.slot.kind is SlotKind.CARD and others, row.seq

    async def any_due(self, channels: Sequence[str]) -> bool:
        """Return whether a slot is due now."""
        return bool(self._claimable(channels, self.clock.now()))

    def _refusals_sent(self, channel: str) -> int:
        rows = [row for here in self.unsent.values() for row in here.values() if row.sending_since is not None]
        return sum(row.slot.kind is SlotKind.REFUSAL and _is_on(row, channel) for row in rows)

    async def slot_sent(self, slot: SlotId, version: int, platform_id: str, *, unsettled: bool = False) -> None:
        """Record the version that is shown."""
        with self.transition() as now:
            row = self._find(slot)
            newer = row.slot.version > version
            if unsettled or (row.shown_by is not None and row.node is not None and row.shown_by != row.node):
                self.may_be_overwritten(row, version - 1)
            edited = self.is_early(row) or (newer and row.slot.kind in EDITED)
            row.shown_by = (row.node or row.shown_by) if edited else None
            row.node, row.sending_since = None, None
            sent = replace(
                row.slot,
                state=SlotState.DUE if newer else SlotState.SENT,
                sent_version=max(version, row.slot.sent_version),
                platform_id=platform_id,
                attempts=0,
                uncertain=False,
                due_at=now,
            )
            self.put_slot(row, sent)

    async def slot_part(self, slot: SlotId, platform_id: str) -> None:
        """Record the messages shown so far."""
        with self.transition():
            row = self._find(slot)
            self.put_slot(row, replace(row.slot, platform_id=platform_id, uncertain=False))

    async def slot_retry(
        self, slot: SlotId, delay: timedelta, *, uncertain: bool, unsettled: bool = False, counted: bool = True
    ) -> None:
        """Schedule a retry."""
        with self.transition() as now:
            row = self._release(slot)
            if unsettled:
                self.edit_in_doubt(row)
            again = replace(
                row.slot,
                state=SlotState.DUE,
                attempts=row.slot.attempts if counted else max(0, row.slot.attempts - 1),
                uncertain=row.slot.uncertain or uncertain,
                due_at=now + delay,
            )
            self.put_slot(row, again)

    async def slot_dead(self, slot: SlotId, version: int, why: str) -> None:
        """Mark it dead, unless it changed meanwhile."""
        with self.transition() as now:
            row = self._release(slot)
            newer = row.slot.version > version
            state = SlotState.DUE if newer else SlotState.DEAD
            self.put_slot(row, replace(row.slot, state=state, attempts=0, due_at=now))

    async def slot_overwritten(self, slot: SlotId, version: int) -> bool:
        """Send the newer version once more."""
        with self.transition():
            row = self.slots.get(slot)
            if row is None or row.slot.version <= version:
                return False
            if row.slot.state in (SlotState.SENDING, SlotState.SENT):
                self.show_anew(row, once_more=True)
            return True

    async def tell_owners(self, key: str, text: str, owners: Mapping[OwnerName, Sequence[Principal]]) -> bool:
        """Notify every owner, at most once an hour per key."""
        with self.transition() as now:
            last = self.told_at.get(key)
            if last is not None and now - last < TOLD_EVERY:
                return False
            self.told_at[key] = now
            for owner, principals in owners.items():
                way = main_route(owner)
                self.use_session(way)
                page = NewSlot(conversation=owner_page(owner), kind=SlotKind.REPLY, text=text)
                self.add_slot(page, way.session, None)
                chat = latest_chat(self.people[who] for who in principals if who in self.people)
                if chat is not None:
                    # No session: its page shows the other slot.
                    self.add_slot(NewSlot(conversation=chat, kind=SlotKind.REPLY, text=text), None, None)
            return True

    def _release(self, slot: SlotId) -> SlotRow:
        row = self._find(slot)
        row.node, row.sending_since = None, None
        return row

    def _find(self, slot: SlotId) -> SlotRow:
        row = self.slots.get(slot)
        if row is None:
            raise NotFound(f"There is no slot {slot}.")
        return row


def _is_on(row: SlotRow, channel: str) -> bool:
    return row.slot.conversation.channel == channel
