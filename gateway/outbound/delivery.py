"""Delivery: claims due slots, waits for the rate limiter, lets the channel show them, records the outcome.

Last step of a message's path, and the only sender of what must arrive; `live_edits` edits the messages made here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from gateway.approvals import Approvals
from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId, SlotId
from gateway.domain.live import SLOTS, SlotsDue
from gateway.domain.slots import CardRow, RenderedSlot, Slot, SlotKind, file_may_take_s
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.outbound.live_edits import LiveEdits
from gateway.outbound.rate_limit import PATIENCE_S, RateLimiter, SendPath, SendPriority, read_bans, write_bans
from gateway.policy.retry import Failure, GiveUp, RetryLimits, next_try
from gateway.ports import Channel, Clock, EventBus, KeyValue, Outbox, Queries
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor

AT_ONCE = 64
"""Concurrent sends of one channel; approximate where several channels send."""
CLAIM_FROM = 16
"""Free sends of a channel from which more slots are claimed for it: each claim is a commit."""
LOOK_EVERY_S = 1.0
SEND_WITHIN_S = 45.0
"""Timeout in seconds for one send; files have longer ones.

This, 4 s for the rate limit and 5 s for a live edit (`LiveEdits.finish`) add up to less than 60 s. After 60 s a sweep
reclaims the slot, and a send that still hangs would be repeated.
"""
PARTS_WITHIN_S = 25.0
"""Seconds that the parts of one slot wait for the rate limiter; the rest goes with the next attempt."""
LONGEST_DELAY_S = 86_400.0
"""Longest delay in seconds before a retry: dates have an end, and limits and bans may have been lifted."""
STORE_RETRY_S = 1.0
STORE_RETRIES = 30
LIMITS = RetryLimits(attempts=6)
_NAMES = {
    SlotKind.CARD: "a question about a tool call",
    SlotKind.NOTE: "a note",
    SlotKind.REPLY: "a reply",
    SlotKind.FILE: "a file",
}


@dataclass(slots=True, kw_only=True)
class Delivery:
    """Sender of all content that must arrive."""

    node: NodeId
    outbox: Outbox
    key_value: KeyValue
    queries: Queries
    events: EventBus
    channels: Mapping[str, Channel]
    approvals: Approvals
    clock: Clock
    metrics: Metrics
    points: FailPoints
    redactor: Redactor
    owners: Mapping[OwnerName, Sequence[Principal]]
    """Owners to notify of undeliverable slots, with their principals."""
    limiter: RateLimiter
    live_edits: LiveEdits
    kept: Callable[[SessionId, str], Path | None]
    """Return the path of an artifact of a session, or None."""
    send_within_s: float = SEND_WITHIN_S
    """Timeout in seconds for one attempt, besides the time allowed for a file."""
    _knows_bans: bool = False
    _draining: bool = False
    _flushing: bool = False
    _busy: dict[SlotId, str] = field(default_factory=dict[SlotId, str])
    """Slots being sent, with their channel."""
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
        self.limiter.close()
        self.events.publish(SLOTS, SlotsDue())

    async def flush(self) -> None:
        """Wait until nothing is due now or being sent, but not for bans to end. The caller sets the timeout.

        Slots of a channel that is no longer configured stay in the store until it is configured again.
        """
        self._flushing = True
        async with self.events.subscribe(SLOTS) as wakes:
            while self._busy or await self.outbox.any_due(list(self.channels)):
                await anext(wakes)

    def _room(self, channel: str) -> int:
        """Return how many more sends a channel may take. Counted by channel, so that one that hangs blocks no other."""
        room = AT_ONCE - sum(name == channel for name in self._busy.values())
        return room if room >= CLAIM_FROM else 0

    async def _claim(self) -> Sequence[Slot]:
        """Claim due slots of channels that have room; wait for slots or for room."""
        rooms = {name: room for name in sorted(self.channels) if (room := self._room(name))}
        try:
            if not self._knows_bans:
                await read_bans(self.key_value, self.limiter, self.clock.now())
                self._knows_bans = True
            return await self.outbox.claim_slots(
                self.node, list(rooms), max(rooms.values(), default=AT_ONCE), wait_s=LOOK_EVERY_S
            )
        except StoreError as error:
            self._log.error("slots not claimed", error=str(error))
            await asyncio.sleep(LOOK_EVERY_S)
            return []

    async def _show(self, slot: Slot) -> None:
        """Show one version of one slot and record the outcome."""
        try:
            await self._try(slot)
        except StoreError as error:
            # The sweep makes a slot that stayed SENDING due again.
            self._log.error("outcome of a send not stored", slot=slot.id, error=str(error))
        finally:
            full = not self._room(slot.conversation.channel)
            self._busy.pop(slot.id, None)
            # The store announces the conversation's next slot; only delivery knows that there is room again. Few
            # refusals are sent at a time, so the next one is due only when one has ended.
            if full or self._flushing or slot.kind is SlotKind.REFUSAL:
                self.events.publish(SLOTS, SlotsDue())

    async def _try(self, slot: Slot) -> None:
        channel = self.channels[slot.conversation.channel]
        sending = _Sending(delivery=self, slot=slot, send_path=SendPath.to(slot.conversation, ()))
        try:
            sending.send_path = SendPath.to(slot.conversation, channel.rate_limits(slot.conversation))
            if unsettled_s := await self.live_edits.finish(slot.id):
                await self._retry(slot, unsettled_s, counted=False)
                self.live_edits.returned_to_store(slot.id)
            else:
                await sending.wait(PATIENCE_S)
                await self.points.hit("J16")
                await self._send(channel, sending)
        except _RateLimited as limited:
            # A little early, since due slots are looked for only every second.
            await self._retry(slot, max(limited.delay_s - LOOK_EVERY_S, 0), counted=False)
        except SendFailed as failed:
            await self._failed(sending, failed)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - the loop of delivery: a failure becomes a row (house rule 9)
            self._log.exception("a channel broke while sending", slot=slot.id)
            await self._failed(sending, sending.doubt("The channel failed."))

    async def record(self, slot: Slot, write: Callable[[], Awaitable[object]]) -> None:
        """Store the outcome of a send. A send cannot be undone, so a failing write is retried for 30 s.

        Raises `StoreError` after that.
        """
        for _ in range(STORE_RETRIES):
            try:
                await write()
            except StoreError as error:
                self._log.error("outcome of a send not stored yet", slot=slot.id, error=str(error))
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return
        await write()

    async def _send(self, channel: Channel, sending: _Sending) -> None:
        slot = sending.slot
        rendered = await self._render(slot)
        within_s = self.send_within_s + file_may_take_s(_length(rendered.path))
        try:
            async with asyncio.timeout(within_s):
                platform_id = await channel.show(rendered, sending)
        except TimeoutError as error:
            raise sending.doubt(f"No answer within {within_s:.0f} s.") from error
        self.live_edits.shown(slot, platform_id)
        await self.points.hit("J18")
        unsettled = self.live_edits.in_doubt(slot.id)
        await self.record(slot, lambda: self.outbox.slot_sent(slot.id, slot.version, platform_id, unsettled=unsettled))
        await self.points.hit("J19")
        if slot.kind is SlotKind.CARD:
            await self.points.hit("J9")
        self.metrics.sends.labels(slot.conversation.channel, "sent").inc()

    async def _render(self, slot: Slot) -> RenderedSlot:
        rows: list[CardRow] = []
        for wait_id in slot.waits:
            wait = await self.queries.wait(wait_id)
            if wait is not None:
                rows.append(self.approvals.row(wait, slot.id))
        return RenderedSlot(slot=slot, text=self.redactor.text(slot.text), rows=tuple(rows), path=self._path(slot))

    def _path(self, slot: Slot) -> Path | None:
        """Return the path of a slot's file, or None if it is gone."""
        if slot.file is None or slot.session is None:
            return None
        return self.kept(slot.session, slot.file.file)

    async def _failed(self, sending: _Sending, failed: SendFailed) -> None:
        """Record a failure by its outcome: retry, wait, uncertain or dead."""
        slot, outcome = sending.slot, failed.outcome
        self.metrics.sends.labels(slot.conversation.channel, outcome.value).inc()
        self._log.warning("not sent", slot=slot.id, outcome=outcome.value, error=str(failed), attempt=slot.attempts)
        if outcome is SendOutcome.WAIT:
            await self._wait(sending, failed)
            return
        uncertain = outcome is SendOutcome.UNCERTAIN and failed.creating
        second = uncertain and slot.uncertain and not sending.went_on and not failed.answered
        if outcome is SendOutcome.DEAD or (second and slot.kind is not SlotKind.CARD):
            # An uncertain create is repeated once, marked; a second one without an answer is not worth a third copy.
            await self._give_up(slot, failed.message)
            return
        decision = next_try(slot.attempts, Failure(retryable=True), secrets.randbelow(1000) / 1000, LIMITS)
        if isinstance(decision, GiveUp):
            await self._give_up(slot, failed.message)
        else:
            unsettled = outcome is SendOutcome.UNCERTAIN and not failed.creating
            await self._retry(slot, decision.delay_s, uncertain=uncertain, unsettled=unsettled)

    async def _wait(self, sending: _Sending, refused: SendFailed) -> None:
        """Ban the refused scope, also in the store, and retry when the ban ends. Does not count as an attempt."""
        slot, now = sending.slot, self.clock.now()
        bans = self.limiter.apply_retry_after(sending.send_path, refused)
        await self.record(slot, lambda: write_bans(self.key_value, bans, now))
        delay_s = (max(bans.values()) - now).total_seconds()
        await self._retry(slot, delay_s, unsettled=refused.unsettled, counted=False)

    async def _retry(
        self, slot: Slot, delay_s: float, *, uncertain: bool = False, unsettled: bool = False, counted: bool = True
    ) -> None:
        retry, delay = self.outbox.slot_retry, timedelta(seconds=min(delay_s, LONGEST_DELAY_S))
        await self.record(
            slot, lambda: retry(slot.id, delay, uncertain=uncertain, unsettled=unsettled, counted=counted)
        )

    async def _give_up(self, slot: Slot, why: str) -> None:
        """Record a slot as undeliverable and notify the owners, once an hour for a chat with all its topics.

        No notice for a stranger's refusal, for such a notice itself (it could repeat for ever), or for a status line
        (nothing is lost). A slot that was only to be shown once more counts as sent.
        """
        if slot.stands:
            await self.record(slot, lambda: self.outbox.slot_sent(slot.id, slot.version, slot.platform_id))
            return
        await self.record(slot, lambda: self.outbox.slot_dead(slot.id, slot.version, why))
        if slot.session is None or slot.kind is SlotKind.STATUS:
            return
        text = self.redactor.text(_not_shown(slot, why))
        key = f"dead/{SendPath.to(slot.conversation, ()).chat}"
        await self.record(slot, lambda: self.outbox.tell_owners(key, text, self.owners))


class _RateLimited(SendFailed):
    """Held back by our own rate limit; nothing was sent."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(outcome=SendOutcome.WAIT, creating=False)
        self.delay_s = delay_s


@dataclass(slots=True, kw_only=True)
class _Sending:
    """One attempt to show a slot; the channel's `Progress`. Each part waits for the rate limiter."""

    delivery: Delivery
    slot: Slot
    send_path: SendPath
    _waited_s: float = 0.0
    _parts: int = 0

    @property
    def went_on(self) -> bool:
        """Return whether a part was shown in this attempt, so that a doubt is about another part than before."""
        return self._parts > 0

    async def __call__(self, platform_id: str) -> None:
        """Store the parts shown so far, then wait to send the next one. Raises `SendFailed` if that takes too long."""
        self._parts += 1
        delivery, slot = self.delivery, self.slot
        await delivery.record(slot, lambda: delivery.outbox.slot_part(slot.id, platform_id))
        await self.wait(PARTS_WITHIN_S - self._waited_s)

    async def wait(self, patience_s: float) -> None:
        """Wait for the rate limiter to allow one message. Raises `SendFailed` if that would take too long."""
        began = self.delivery.clock.monotonic()
        priority = SendPriority.of(self.slot.kind)
        delay_s = await self.delivery.limiter.acquire(self.send_path, priority, patience_s=patience_s)
        self._waited_s += self.delivery.clock.monotonic() - began
        if delay_s:
            raise _RateLimited(delay_s)

    def doubt(self, why: str) -> SendFailed:
        """Return an uncertain failure: of a create, unless this was an edit that had added no message yet."""
        creating = not self.slot.platform_id or self.went_on
        return SendFailed(why, outcome=SendOutcome.UNCERTAIN, creating=creating)


def _length(path: Path | None) -> int:
    try:
        return path.stat().st_size if path is not None else 0
    except OSError:  # it was removed meanwhile
        return 0


def _not_shown(slot: Slot, why: str) -> str:
    what = _NAMES.get(slot.kind, "an answer")
    cure = "It can be decided" if slot.kind is SlotKind.CARD else "It can be read"
    return (
        f"In {slot.conversation.key} {what} could not be shown: {why.rstrip(' .')}. {cure} on the web page. "
        "To keep using that chat, make sure that the bot is still in it and may write."
    )
