"""Sweep transitions in memory: expiry, timers, recovery after a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.domain.ids import NodeId, OwnerName, SessionId, SlotId, child_session
from gateway.domain.messages import NEXT_PART_WITHIN
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState, shown_when_stored
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnState
from gateway.domain.waits import DECISION_GOOD_FOR_S, Wait, WaitKind, WaitState
from gateway.store.child_rules import NOBODY_WAITS
from gateway.store.constants import AT_ONCE, FILE_SENDING_AT_MOST, HELD, SENDING_AT_MOST
from gateway.store.memory.rows import SlotRow, TurnRow
from gateway.store.memory.turn_ops import TurnOps


class MemorySweeps(TurnOps):
    """`ports.Sweeps`."""

    async def expire_waits(self) -> int:
        """Expire waits that nobody decided or used in time."""
        with self.transition() as now:
            due = [wait for wait in self.undecided.values() if self._expired(wait, now)][:AT_ONCE]
            expired = 0
            for wait in due:
                if wait.id not in self.undecided:
                    continue  # of a child that an earlier one of the loop stopped
                expired += 1
                self.put_wait(replace(wait, state=WaitState.EXPIRED))
                if wait.kind is WaitKind.CHILD:
                    self.stop_below(child_session(wait.turn, wait.n), NOBODY_WAITS)
                self.wake(self.turns[wait.turn])
            return expired

    def _expired(self, wait: Wait, now: datetime) -> bool:
        if wait.state is WaitState.OPEN:
            return wait.expires_at <= now and wait.kind is not WaitKind.TIMER
        held = self.turns[wait.turn].turn.state in HELD
        decided_at = wait.decided_at or wait.opened_at
        return not held and now - decided_at > timedelta(seconds=DECISION_GOOD_FOR_S)

    async def reclaim(self) -> int:
        """Take back turns and slots of dead holders, and stop orphans."""
        with self.transition() as now:
            turns = [row for row in self._held() if row.lease_until is not None and row.lease_until <= now]
            slots = [row for row in self._sending() if _too_long(row, now)]
            orphans = self._orphans()[: max(0, AT_ONCE - len(turns) - len(slots))]
            for orphan in orphans:
                self.stop_below(orphan, NOBODY_WAITS)
            return self._take_back(turns, slots) + len(orphans)

    def _orphans(self) -> list[SessionId]:
        """Return live children whose waiting turn has ended and that nobody stopped."""
        found: list[SessionId] = []
        for id_, row in self.live_children.items():
            wait = None if row.parent_wait is None else self.waits[row.parent_wait]
            task = None if row.task is None else self.unended.get(row.task)
            gone = wait is not None and wait.turn not in self.unended
            if gone and task is not None and task.turn.state is not TurnState.STOPPING:
                found.append(id_)
        return found

    async def void_leases(self, machine: str) -> int:
        """Void the leases of this machine's earlier processes."""
        with self.transition() as now:
            for row in self.holding.values():
                if row.turn.state is TurnState.QUEUED and row.turn.started_at is None:
                    row.held_until = now + NEXT_PART_WITHIN
            self.holds = {name: held for name, held in self.holds.items() if not _of(held[0], machine)}
            turns = [row for row in self._held() if _of(row.node, machine)]
            return self._take_back(turns, [row for row in self._sending() if _of(row.node, machine)])

    def _held(self) -> list[TurnRow]:
        """Return held turns in the order in which they return to the queue."""
        rows = self.held_turns.values()
        return sorted(rows, key=lambda row: (row.held_since or row.queued_at, row.queued_rev))

    def _sending(self) -> list[SlotRow]:
        return [row for here in self.unsent.values() for row in here.values() if row.slot.state is SlotState.SENDING]

    def _take_back(self, turns: list[TurnRow], slots: list[SlotRow]) -> int:
        turns = turns[:AT_ONCE]
        slots = slots[: AT_ONCE - len(turns)]
        for row in turns:
            self.touched.turns.add(row.turn.id)  # a holder that is only late checks at once, and stops
            if row.turn.state is TurnState.STOPPING:
                self.end_stopped(row)
            else:
                self.queue(row)
        for slot_row in slots:
            self._unsend(slot_row)
        return len(turns) + len(slots)

    def _unsend(self, row: SlotRow) -> None:
        slot, create = row.slot, row.slot.sent_version == 0
        row.node, row.sending_since = None, None
        self.edit_in_doubt(row)
        self.put_slot(
            row, replace(slot, state=SlotState.DUE, uncertain=slot.uncertain or create, due_at=self.clock.now())
        )

    async def fire_timers(self) -> int:
        """Copy answers to a chat when nobody had the page open, and resend slots that a late edit may have hidden."""
        with self.transition() as now:
            timers = [wait for wait in self.undecided.values() if wait.kind is WaitKind.TIMER]
            due = [wait for wait in timers if wait.expires_at <= now][:AT_ONCE]
            for wait in due:
                fired = "copy_of" not in wait.payload or self._copy(wait)
                self.put_wait(replace(wait, state=WaitState.ANSWERED if fired else WaitState.CANCELLED))
                self.wake(self.turns[wait.turn])
            return len(due) + self._show_again(now, AT_ONCE - len(due))

    def _show_again(self, now: datetime, most: int) -> int:
        found = [row for row in self.slots.values() if row.again_at is not None and row.again_at <= now]
        found = sorted(found, key=lambda row: row.seq)[:most]
        for row in found:
            newer, row.again_at = row.slot.version > row.again_over, None
            if newer and not self.is_early(row) and row.slot.state in (SlotState.SENDING, SlotState.SENT):
                self.show_anew(row, once_more=True)
        return len(found)

    def _copy(self, wait: Wait) -> bool:
        owner = OwnerName(str(wait.payload["owner"]))
        seen, place = self.page_seen.get(owner), self.owner_chats.get(owner)
        original = self.slots.get(SlotId(str(wait.payload["copy_of"])))
        if place is None or original is None or (seen is not None and seen >= wait.opened_at):
            return False
        copy = NewSlot(conversation=place, kind=SlotKind.COPY, text=original.slot.text, n=original.slot.n)
        self.add_slot(copy, wait.session, wait.turn)
        return True

    async def offer_again(self) -> int:
        """Show open cards again after a downtime; ask again for approvals that expired meanwhile."""
        with self.transition() as now:
            undecided = self.undecided.values()
            is_open = [w for w in undecided if w.kind is WaitKind.APPROVAL and w.state is WaitState.OPEN]
            expired = [wait for wait in is_open if wait.expires_at <= now]
            for wait in expired:
                self._ask_anew(wait)
            again = self._shown([wait for wait in is_open if wait.expires_at > now])
            for slot in again:
                new = NewSlot(conversation=slot.conversation, kind=SlotKind.CARD, waits=slot.waits)
                self.add_slot(new, slot.session, slot.turn)
            return len(expired) + len(again)

    def _shown(self, waits: list[Wait]) -> list[Slot]:
        """Return the cards that show one of these in a chat: one for each place, however often it was offered before.

        A card that was never shown is left out: it is still due.
        """
        cards = [self.slots[slot].slot for wait in waits for slot in self.cards.get(wait.id, ())]
        shown = [slot for slot in cards if slot.sent_version > 0 and not shown_when_stored(slot.conversation)]
        return list({(slot.conversation, slot.waits): slot for slot in shown}.values())

    def _ask_anew(self, wait: Wait) -> None:
        row = self.turns[wait.turn]
        step = row.steps[wait.n]
        if step.asked_anew:
            self.put_wait(replace(wait, state=WaitState.EXPIRED))
        else:
            self.put_wait(replace(wait, state=WaitState.SUPERSEDED))
            self.put_step(row, replace(step, state=StepState.PLANNED, asked_anew=True))
        self.wake(row)


def _too_long(row: SlotRow, now: datetime) -> bool:
    at_most = FILE_SENDING_AT_MOST if row.slot.kind is SlotKind.FILE else SENDING_AT_MOST
    return row.sending_since is not None and now - row.sending_since > at_most


def _of(node: NodeId | None, machine: str) -> bool:
    return node is not None and node.rpartition("#")[0] == machine
