"""The way out: claim due slots, render them, let the channel show them, record what happened. Nothing else sends."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.approvals import Approvals
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.failpoints import FailPoints
from gateway.model.ids import NodeId, SlotId
from gateway.model.live import SLOTS, SlotsDue
from gateway.model.slots import CardRow, Showing, Slot, SlotKind
from gateway.observe import Meters, Redactor, log
from gateway.ports import Channel, Clock, Live, Outbox, Views
from gateway.retry import Failure, GiveUp, RetryLimits, next_try

AT_ONCE = 64
"""Sends of one channel side by side, about: from there on it is given no more."""
LOOK_EVERY_S = 1.0
SEND_WITHIN_S = 45.0
"""Well below the 60 s after which a sweep takes a slot back: it must not be sent twice because a send hangs."""
STORE_AGAIN_S = 1.0
STORE_AGAIN_TIMES = 30
LIMITS = RetryLimits(attempts=6)


@dataclass(slots=True, kw_only=True)
class Delivery:
    """The only way that content leaves."""

    node: NodeId
    outbox: Outbox
    views: Views
    live: Live
    channels: Mapping[str, Channel]
    approvals: Approvals
    clock: Clock
    meters: Meters
    points: FailPoints
    redactor: Redactor
    _draining: bool = False
    _flushing: bool = False
    _busy: dict[SlotId, str] = field(default_factory=dict[SlotId, str])
    """What is being sent, and by which channel."""
    _log: Any = field(default_factory=lambda: log("delivery"))

    async def run(self) -> None:
        """Send until drained; returns when nothing is being sent."""
        names = sorted(self.channels)
        async with self.live.subscribe(SLOTS) as wakes, asyncio.TaskGroup() as group:
            while not self._draining:
                slots = await self._claim([name for name in names if not self._full(name)])
                for slot in slots:
                    self._busy[slot.id] = slot.conversation.channel
                    group.create_task(self._show(slot), name=f"slot {slot.id}")
                if len(slots) < AT_ONCE:  # what comes next is announced
                    try:
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await anext(wakes)
                    except TimeoutError:
                        pass

    def drain(self) -> None:
        """Claim nothing more. Twice is safe."""
        self._draining = True
        self.live.publish(SLOTS, SlotsDue())

    async def flush(self) -> None:
        """Wait until nothing is due or being sent. The caller sets the time limit."""
        self._flushing = True
        async with self.live.subscribe(SLOTS) as wakes:
            while self._busy or (await self.views.counts()).due_slots:
                await anext(wakes)

    def _full(self, channel: str) -> bool:
        """Whether a channel sends as much as it may: one that hangs leaves the others their room."""
        return len(self._busy) >= AT_ONCE and sum(name == channel for name in self._busy.values()) >= AT_ONCE

    async def _claim(self, channels: list[str]) -> list[Slot]:
        if not channels:
            return []
        try:
            return list(await self.outbox.claim_slots(self.node, channels, AT_ONCE))
        except StoreError as error:
            self._log.error("slots not claimed", error=str(error))
            return []

    async def _show(self, slot: Slot) -> None:
        """Show one version of one slot and record what came of it."""
        try:
            await self._try(slot)
        except StoreError as error:
            # The sweep makes a slot that stayed SENDING due again.
            self._log.error("outcome of a send not stored", slot=slot.id, error=str(error))
        finally:
            full = self._full(slot.conversation.channel)
            self._busy.pop(slot.id, None)
            # The store announces the conversation's next slot; only here it is known that there is room again.
            if full or self._flushing:
                self.live.publish(SLOTS, SlotsDue())

    async def _try(self, slot: Slot) -> None:
        try:
            await self.points.hit("J16")
            await self._send(slot)
        except SendFailed as failed:
            await self._failed(slot, failed)
        except StoreError:
            raise
        except Exception:  # the loop of delivery: a failure becomes a row (house rule 9)
            self._log.exception("a channel broke while sending", slot=slot.id)
            await self._failed(slot, SendFailed("The channel failed.", outcome=SendOutcome.UNCERTAIN))

    async def _record(self, slot: Slot, write: Callable[[], Awaitable[None]]) -> None:
        """Store what came of a send. It cannot be unsent, so a store that fails is asked again for a while."""
        for _ in range(STORE_AGAIN_TIMES):
            try:
                await write()
            except StoreError as error:
                self._log.error("outcome of a send not stored yet", slot=slot.id, error=str(error))
                await asyncio.sleep(STORE_AGAIN_S)
            else:
                return
        await write()

    async def _send(self, slot: Slot) -> None:
        channel = self.channels[slot.conversation.channel]
        showing = await self._render(slot)
        try:
            async with asyncio.timeout(SEND_WITHIN_S):
                if slot.platform_id:
                    await channel.edit(showing)
                    platform_id = slot.platform_id
                else:
                    platform_id = await channel.send(showing)
        except TimeoutError as error:
            raise SendFailed(f"No answer within {SEND_WITHIN_S:g} s.", outcome=SendOutcome.UNCERTAIN) from error
        await self.points.hit("J18")
        await self._record(slot, lambda: self.outbox.slot_sent(slot.id, slot.version, platform_id))
        await self.points.hit("J19")
        if slot.kind is SlotKind.CARD:
            await self.points.hit("J9")
        self.meters.sends.labels(slot.conversation.channel, "sent").inc()

    async def _render(self, slot: Slot) -> Showing:
        rows: list[CardRow] = []
        for wait_id in slot.waits:
            wait = await self.views.wait(wait_id)
            if wait is not None:
                rows.append(self.approvals.row(wait, slot.id))
        return Showing(slot=slot, text=self.redactor.text(slot.text), rows=tuple(rows))

    async def _failed(self, slot: Slot, failed: SendFailed) -> None:
        """Record a failure by its class: retry, wait, uncertain or dead."""
        outcome = failed.outcome
        self.meters.sends.labels(slot.conversation.channel, outcome.value).inc()
        self._log.warning("not sent", slot=slot.id, outcome=outcome.value, error=str(failed), attempt=slot.attempts)
        create = not slot.platform_id
        uncertain = outcome is SendOutcome.UNCERTAIN and create
        if outcome is SendOutcome.DEAD or (uncertain and slot.uncertain and slot.kind is not SlotKind.CARD):
            # An uncertain create is repeated once, marked; a second doubt is not worth a third copy.
            await self._record(slot, lambda: self.outbox.slot_dead(slot.id, slot.version, failed.message))
            return
        waited = (failed.until - self.clock.now()).total_seconds() if failed.until else None
        if outcome is SendOutcome.WAIT and waited is not None:
            await self._again(slot, max(waited, 0), uncertain=False)
            return
        decision = next_try(slot.attempts, Failure(retryable=True), secrets.randbelow(1000) / 1000, LIMITS)
        if isinstance(decision, GiveUp):
            await self._record(slot, lambda: self.outbox.slot_dead(slot.id, slot.version, failed.message))
        else:
            await self._again(slot, decision.delay_s, uncertain=uncertain)

    async def _again(self, slot: Slot, delay_s: float, *, uncertain: bool) -> None:
        delay = timedelta(seconds=delay_s)
        await self._record(slot, lambda: self.outbox.slot_retry(slot.id, slot.version, delay, uncertain=uncertain))
