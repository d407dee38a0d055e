"""The way out: claim due slots, wait for a turn, let the channel show them, record what happened.

Nothing else sends what must arrive; `streams` shows beginnings of answers on the messages that were made here.
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
"""Sends of one channel side by side; about, where several channels send."""
GIVEN_FROM = 16
"""A channel is given more when it has room for so many: each claim is a commit."""
LOOK_EVERY_S = 1.0
SEND_WITHIN_S = 45.0
"""Timeout in seconds for one send.

Together with the wait before it (4 s for the rate limit, 5 s for a live edit, see `LiveEdits.finish`) it stays below
the 60 s after which a sweep reclaims the slot: a send that hangs must not be repeated. Files have longer limits."""
PARTS_WITHIN_S = 25.0
"""How long the parts of one slot wait for their turns; what is left then goes on with the next try."""
LOOKED_AT_AGAIN_S = 86_400.0
"""What would have to wait longer is tried once a day: times have an end, and limits and bans may have been lifted."""
STORE_AGAIN_S = 1.0
STORE_AGAIN_TIMES = 30
LIMITS = RetryLimits(attempts=6)
_NAMES = {
    SlotKind.CARD: "a question about a tool call",
    SlotKind.NOTE: "a note",
    SlotKind.REPLY: "a reply",
    SlotKind.FILE: "a file",
}


@dataclass(slots=True, kw_only=True)
class Delivery:
    """The only way that content leaves."""

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
    """Who is told what could not be shown, and who they are in chats."""
    limiter: RateLimiter
    live_edits: LiveEdits
    kept: Callable[[SessionId, str], Path | None]
    """Where a file of a session's call is."""
    send_within_s: float = SEND_WITHIN_S
    """Of one try, besides what a file may take."""
    _knows_bans: bool = False
    _draining: bool = False
    _flushing: bool = False
    _busy: dict[SlotId, str] = field(default_factory=dict[SlotId, str])
    """What is being sent, and by which channel."""
    _log: Any = field(default_factory=lambda: log("delivery"))

    async def run(self) -> None:
        """Send until drained; returns when nothing is being sent."""
        async with asyncio.TaskGroup() as group:
            while not self._draining:
                for slot in await self._claim():
                    self._busy[slot.id] = slot.conversation.channel
                    group.create_task(self._show(slot), name=f"slot {slot.id}")

    def drain(self) -> None:
        """Claim nothing more; what waits for its turn goes back into the store. Twice is safe."""
        self._draining = True
        self.limiter.close()
        self.events.publish(SLOTS, SlotsDue())

    async def flush(self) -> None:
        """Wait until nothing is due now or being sent: bans are not waited for. The caller sets the time limit.

        What is for a channel that is not configured any more is kept until it is again.
        """
        self._flushing = True
        async with self.events.subscribe(SLOTS) as wakes:
            while self._busy or await self.outbox.any_due(list(self.channels)):
                await anext(wakes)

    def _room(self, channel: str) -> int:
        """How much more a channel is given: one that hangs leaves the others their room."""
        room = AT_ONCE - sum(name == channel for name in self._busy.values())
        return room if room >= GIVEN_FROM else 0

    async def _claim(self) -> Sequence[Slot]:
        """Claim what is due on channels that have room, or wait for it, or for room."""
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
        """Show one version of one slot and record what came of it."""
        try:
            await self._try(slot)
        except StoreError as error:
            # The sweep makes a slot that stayed SENDING due again.
            self._log.error("outcome of a send not stored", slot=slot.id, error=str(error))
        finally:
            full = not self._room(slot.conversation.channel)
            self._busy.pop(slot.id, None)
            # The store announces the conversation's next slot; only here it is known that there is room again. Of
            # refusals few are under way at a time, so that there is none until one has ended.
            if full or self._flushing or slot.kind is SlotKind.REFUSAL:
                self.events.publish(SLOTS, SlotsDue())

    async def _try(self, slot: Slot) -> None:
        channel = self.channels[slot.conversation.channel]
        sending = _Sending(delivery=self, slot=slot, way=SendPath.to(slot.conversation, ()))
        try:
            sending.way = SendPath.to(slot.conversation, channel.rate_limits(slot.conversation))
            if unsettled_s := await self.live_edits.finish(slot.id):
                await self._again(slot, unsettled_s, counted=False)
                self.live_edits.gave_back(slot.id)
            else:
                await sending.turn(PATIENCE_S)
                await self.points.hit("J16")
                await self._send(channel, sending)
        except _Later as later:
            # Taken a little early, it comes just in time: due slots are looked for every second.
            await self._again(slot, max(later.delay_s - LOOK_EVERY_S, 0), counted=False)
        except SendFailed as failed:
            await self._failed(sending, failed)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - the loop of delivery: a failure becomes a row (house rule 9)
            self._log.exception("a channel broke while sending", slot=slot.id)
            await self._failed(sending, sending.doubt("The channel failed."))

    async def record(self, slot: Slot, write: Callable[[], Awaitable[object]]) -> None:
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

    async def _send(self, channel: Channel, sending: _Sending) -> None:
        slot = sending.slot
        showing = await self._render(slot)
        show = channel.edit if slot.platform_id else channel.send
        within_s = self.send_within_s + file_may_take_s(_length(showing.path))
        try:
            async with asyncio.timeout(within_s):
                platform_id = await show(showing, sending)
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
        """Where the file of a slot is, if it still is there."""
        if slot.file is None or slot.session is None:
            return None
        return self.kept(slot.session, slot.file.file)

    async def _failed(self, sending: _Sending, failed: SendFailed) -> None:
        """Record a failure by its class: retry, wait, uncertain or dead."""
        slot, outcome = sending.slot, failed.outcome
        self.metrics.sends.labels(slot.conversation.channel, outcome.value).inc()
        self._log.warning("not sent", slot=slot.id, outcome=outcome.value, error=str(failed), attempt=slot.attempts)
        if outcome is SendOutcome.WAIT:
            await self._wait(sending, failed)
            return
        uncertain = outcome is SendOutcome.UNCERTAIN and failed.creating
        second = uncertain and slot.uncertain and not sending.went_on and not failed.answered
        if outcome is SendOutcome.DEAD or (second and slot.kind is not SlotKind.CARD):
            # An uncertain create is repeated once, marked; a second silence is not worth a third copy.
            await self._give_up(slot, failed.message)
            return
        decision = next_try(slot.attempts, Failure(retryable=True), secrets.randbelow(1000) / 1000, LIMITS)
        if isinstance(decision, GiveUp):
            await self._give_up(slot, failed.message)
        else:
            unsettled = outcome is SendOutcome.UNCERTAIN and not failed.creating
            await self._again(slot, decision.delay_s, uncertain=uncertain, unsettled=unsettled)

    async def _wait(self, sending: _Sending, refused: SendFailed) -> None:
        """Ban what was refused, in the store too, then try again when it opens; that is no try used up."""
        slot, now = sending.slot, self.clock.now()
        bans = self.limiter.obey(sending.way, refused)
        await self.record(slot, lambda: write_bans(self.key_value, bans, now))
        delay_s = (max(bans.values()) - now).total_seconds()
        await self._again(slot, delay_s, unsettled=refused.unsettled, counted=False)

    async def _again(
        self, slot: Slot, delay_s: float, *, uncertain: bool = False, unsettled: bool = False, counted: bool = True
    ) -> None:
        retry, delay = self.outbox.slot_retry, timedelta(seconds=min(delay_s, LOOKED_AT_AGAIN_S))
        await self.record(
            slot, lambda: retry(slot.id, delay, uncertain=uncertain, unsettled=unsettled, counted=counted)
        )

    async def _give_up(self, slot: Slot, why: str) -> None:
        """Record that it will not be shown, and tell the owners: once an hour for a chat with all its topics.

        They are not told of a stranger's refusal or of such a notice itself, which could go on for ever, nor of a
        status line, with which nothing is lost. What was only to be shown once more stands there.
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


class _Later(SendFailed):
    """There is no room for a message now. Not what the platform said: nothing was sent."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(outcome=SendOutcome.WAIT, creating=False)
        self.delay_s = delay_s


@dataclass(slots=True, kw_only=True)
class _Sending:
    """One try to show a slot; the channel's `Progress`. Each part waits for a turn of its own."""

    delivery: Delivery
    slot: Slot
    way: SendPath
    _waited_s: float = 0.0
    _parts: int = 0

    @property
    def went_on(self) -> bool:
        """Whether a part of it was shown in this try: what is in doubt now is another one than before."""
        return self._parts > 0

    async def __call__(self, platform_id: str) -> None:
        """Store what is shown so far, then wait until the next part may go. Raises `SendFailed` when that is long."""
        self._parts += 1
        delivery, slot = self.delivery, self.slot
        await delivery.record(slot, lambda: delivery.outbox.slot_part(slot.id, platform_id))
        await self.turn(PARTS_WITHIN_S - self._waited_s)

    async def turn(self, patience_s: float) -> None:
        """Wait for a turn to send one message. Raises `SendFailed` when it would take too long."""
        began = self.delivery.clock.monotonic()
        delay_s = await self.delivery.limiter.turn(self.way, SendPriority.of(self.slot.kind), patience_s=patience_s)
        self._waited_s += self.delivery.clock.monotonic() - began
        if delay_s:
            raise _Later(delay_s)

    def doubt(self, why: str) -> SendFailed:
        """Nobody knows what was shown: a new message, unless this was an edit that had not added one."""
        creating = not self.slot.platform_id or self.went_on
        return SendFailed(why, outcome=SendOutcome.UNCERTAIN, creating=creating)


def _length(path: Path | None) -> int:
    try:
        return path.stat().st_size if path is not None else 0
    except OSError:  # it went meanwhile
        return 0


def _not_shown(slot: Slot, why: str) -> str:
    what = _NAMES.get(slot.kind, "an answer")
    cure = "It can be decided" if slot.kind is SlotKind.CARD else "It can be read"
    return (
        f"In {slot.conversation.key} {what} could not be shown: {why.rstrip(' .')}. {cure} on the web page. "
        "If that chat is to go on, see that the bot is still there and may write."
    )
