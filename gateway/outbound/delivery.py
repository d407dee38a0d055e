"""Delivery: claims due slots and has each shown by its message actor.

Last step of a message's path. All that must arrive passes here; `message_actor` calls the channel.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.events import SLOTS, SlotsDue
from gateway.domain.ids import NodeId, SlotId
from gateway.domain.slots import Slot, SlotKind
from gateway.errors import RowDamaged, StoreError
from gateway.outbound.message_actor import LOOK_EVERY_S, RETRY_S, STORE_RETRIES, MessageActors
from gateway.outbound.rate_limit import read_bans
from gateway.ports import EventBus
from gateway.system.gate import Gate
from gateway.system.logging_setup import log

AT_ONCE = 64
"""Concurrent sends of one channel; approximate where several channels send."""
SENDER_SURE_S = 10.0
"""Seconds after a claim in which no other node can have become the account's sender."""
CLAIM_FROM = 16
"""Free sends of a channel from which more slots are claimed for it: each claim is a commit."""


@dataclass(slots=True, kw_only=True)
class Delivery:
    """Sender of all content that must arrive."""

    node: NodeId
    events: EventBus
    messages: MessageActors
    gate: Gate = field(default_factory=Gate)
    """Closed while this node sends nothing new."""
    _draining: bool = False
    _flushing: bool = False
    _busy: dict[SlotId, str] = field(default_factory=dict[SlotId, str])
    """Slots being sent, with their channel."""
    _sends_for: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Monotonic time of the last claim for an account (channel, name)."""
    _log: Any = field(default_factory=lambda: log("delivery"))

    async def run(self) -> None:
        """Send until drained; return when nothing is being sent."""
        async with asyncio.TaskGroup() as group:
            while not self._draining:
                for slot in await self._claim():
                    self._busy[slot.id] = slot.conversation.channel
                    group.create_task(self._show(slot), name=f"slot {slot.id}")

    def drain(self) -> None:
        """Claim nothing more; slots that wait for the rate limiter go back to the store. Idempotent."""
        self._draining = True
        self.messages.limiter.close()
        self.events.publish_here(SLOTS, SlotsDue())

    async def flush(self) -> None:
        """Wait until nothing is due now or being sent, but not for bans to end. The caller sets the timeout.

        Slots of a channel that is no longer configured stay in the store until it is configured again.
        """
        self._flushing = True
        async with self.events.subscribe(SLOTS) as wakes:
            while self._busy or (self.gate.is_open and await self._any_due()):
                await anext(wakes)

    async def _any_due(self) -> bool:
        return await self.messages.outbox.any_due(list(self.messages.channels))

    def _room(self, channel: str) -> int:
        """Return how many more sends a channel may take. Counted by channel, so that one that hangs blocks no other."""
        room = AT_ONCE - sum(name == channel for name in self._busy.values())
        return room if room >= CLAIM_FROM else 0

    async def _claim(self) -> Sequence[Slot]:
        """Claim due slots of channels that have room; wait for slots or for room."""
        if not self.gate.is_open:
            await self._hand_over()
            await self.gate.wait(LOOK_EVERY_S)
            return []
        messages = self.messages
        rooms = {name: room for name in sorted(messages.channels) if (room := self._room(name))}
        try:
            claimed = await messages.outbox.claim_slots(
                self.node, list(rooms), max(rooms.values(), default=AT_ONCE), wait_s=LOOK_EVERY_S
            )
        except (StoreError, RowDamaged) as error:
            self._log.error("slots not claimed", error=str(error))
            await asyncio.sleep(LOOK_EVERY_S)
            return []
        await self._take_over({(slot.conversation.channel, slot.conversation.account) for slot in claimed})
        return claimed

    async def _hand_over(self) -> None:
        """Let other nodes send for the accounts of this one, once nothing is being sent here."""
        if not self._sends_for or self._busy:
            return
        try:
            await self.messages.outbox.stop_sending(self.node)
        except StoreError as error:
            self._log.error("other nodes take over only when the leases of this one have ended", error=str(error))
        self._sends_for.clear()
        self.events.send_for(())

    async def _take_over(self, accounts: Collection[tuple[str, str]]) -> None:
        """Get the events of their answers. Read the stored bans when this node may not have been their sender."""
        if accounts:
            self.events.send_for(accounts)
        messages, now = self.messages, self.messages.clock.monotonic()
        for _ in range(STORE_RETRIES):
            if all(now - self._sends_for.get(one, -math.inf) < SENDER_SURE_S for one in accounts):
                break
            try:
                await read_bans(messages.key_value, messages.limiter, messages.clock.now())
                break
            except StoreError as error:
                self._log.error("bans not read", error=str(error))
                await asyncio.sleep(RETRY_S)
        self._sends_for |= dict.fromkeys(accounts, now)

    async def _show(self, slot: Slot) -> None:
        """Show one version of one slot and record the outcome."""
        try:
            await self.messages.of(slot.id).deliver(slot)
        except (StoreError, RowDamaged) as error:
            # The sweep makes a slot that stayed SENDING due again.
            self._log.error("outcome of a send not stored", slot=slot.id, error=str(error))
        finally:
            full = not self._room(slot.conversation.channel)
            self._busy.pop(slot.id, None)
            # The store announces the conversation's next slot; only delivery knows that there is room again. Few
            # refusals are sent at a time, so the next one is due only when one has ended.
            if full or self._flushing or slot.kind is SlotKind.REFUSAL:
                self.events.publish_here(SLOTS, SlotsDue())
