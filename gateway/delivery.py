"""The way out: claim due slots, render them, let the channel show them, record what happened. Nothing else sends."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.approvals import Approvals
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.failpoints import FailPoints
from gateway.model.ids import NodeId
from gateway.model.live import SLOTS, SlotsDue
from gateway.model.slots import CardRow, Showing, Slot, SlotKind
from gateway.observe import Meters, Redactor, log
from gateway.ports import Channel, Clock, Live, Outbox, Views
from gateway.retry import Failure, GiveUp, RetryLimits, next_try

AT_ONCE = 64
LOOK_EVERY_S = 1.0
SEND_WITHIN_S = 60.0
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
    _busy: set[str] = field(default_factory=set[str])
    _log: Any = field(default_factory=lambda: log("delivery"))

    async def run(self) -> None:
        """Send until drained; returns when nothing is being sent."""
        names = sorted(self.channels)
        async with self.live.subscribe(SLOTS) as wakes, asyncio.TaskGroup() as group:
            while not self._draining:
                room = AT_ONCE - len(self._busy)
                slots = await self._claim(names, room)
                for slot in slots:
                    self._busy.add(slot.id)
                    group.create_task(self._show(slot), name=f"slot {slot.id}")
                if len(slots) < max(room, 1):  # what comes next is announced
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

    async def _claim(self, channels: list[str], room: int) -> list[Slot]:
        if room <= 0:
            return []
        try:
            return list(await self.outbox.claim_slots(self.node, channels, room))
        except StoreError as error:
            self._log.error("slots not claimed", error=str(error))
            return []

    async def _show(self, slot: Slot) -> None:
        """Show one version of one slot and record what came of it."""
        try:
            await self.points.hit("J16")
            await self._send(slot)
        except SendFailed as failed:
            await self._failed(slot, failed)
        except StoreError as error:
            # The sweep makes a slot that stayed SENDING due again.
            self._log.error("outcome of a send not stored", slot=slot.id, error=str(error))
        except Exception:  # the loop of delivery: a failure becomes a row (house rule 9)
            self._log.exception("a channel broke while sending", slot=slot.id)
            await self._failed(slot, SendFailed("The channel failed.", outcome=SendOutcome.UNCERTAIN))
        finally:
            full = len(self._busy) >= AT_ONCE
            self._busy.discard(slot.id)
            # The store announces the conversation's next slot; only here it is known that there is room again.
            if full or self._flushing:
                self.live.publish(SLOTS, SlotsDue())

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
            raise SendFailed("No answer within 60 s.", outcome=SendOutcome.UNCERTAIN) from error
        await self.points.hit("J18")
        await self.outbox.slot_sent(slot.id, slot.version, platform_id)
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
            await self.outbox.slot_dead(slot.id, slot.version, failed.message)
            return
        waited = (failed.until - self.clock.now()).total_seconds() if failed.until else None
        if outcome is SendOutcome.WAIT and waited is not None:
            await self.outbox.slot_retry(slot.id, slot.version, timedelta(seconds=max(waited, 0)), uncertain=False)
            return
        decision = next_try(slot.attempts, Failure(retryable=True), secrets.randbelow(1000) / 1000, LIMITS)
        if isinstance(decision, GiveUp):
            await self.outbox.slot_dead(slot.id, slot.version, failed.message)
        else:
            delay = timedelta(seconds=decision.delay_s)
            await self.outbox.slot_retry(slot.id, slot.version, delay, uncertain=uncertain)
