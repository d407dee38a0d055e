"""Live edits: show answers while they are written, status lines and typing. Runs beside delivery; stores nothing.

A turn makes the slot of its answer or status line early and delivery sends it. From then on the message is edited here
until delivery claims a newer version. Everything shown here may be lost; delivery sends the final text.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.domain.ids import SlotId, TurnId, status_slot
from gateway.domain.live import ANSWERS, ProgressChanged, TextDelta, TurnActive, TurnReleased
from gateway.domain.messages import Conversation
from gateway.domain.slots import EDIT_IN_DOUBT, RenderedSlot, Slot, SlotKind, shown_when_stored
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.outbound.live_state import FORGET_AFTER_S, FollowedTurn, ProgressLine, ShownDraft, StatusLine
from gateway.outbound.rate_limit import RateLimiter, SendPath, write_bans
from gateway.ports import Channel, Clock, EventBus, KeyValue, Outbox
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor
from gateway.system.status_text import is_at_work

LOOK_EVERY_S = 0.1
TYPING_AFTER_S = 0.2
TYPING_EVERY_S = 4.0
QUIET_S = 2.0
"""Seconds without new text after which typing is shown again: the turn does something else."""
EDIT_EVERY_S = 1.0
"""Minimum seconds between two edits of a streamed answer, on every channel."""
EDIT_WITHIN_S = 45.0
"""Timeout in seconds for one edit, against a channel that hangs.

Longer than a channel's own timeout for its platform: an edit that is cut off may still take effect."""
PATIENCE_S = 5.0
"""Seconds that delivery waits for an edit under way; a send worker is worth more than a longer wait."""
RETRY_S = 1.0
STORE_ATTEMPTS = 30
SETTLED_AFTER_S = 5.0
"""Seconds that the final text waits after an unanswered edit, which may still take effect."""
IN_DOUBT_S = EDIT_IN_DOUBT.total_seconds()
"""Seconds in which an unanswered edit may really take effect. A final text sent earlier is shown once more after it."""
TYPING_WITHIN_S = 5.0
TYPING_AT_ONCE = 16
"""Typing calls of one channel at once; each takes a connection. Further turns follow a moment later."""
FORGET_RELEASED_AFTER_S = 1.0
"""Seconds until a released turn is dropped: its final text is sent by then, and ten checks a second cost CPU."""


@dataclass(slots=True, kw_only=True)
class LiveEdits:
    """Streaming edits, status lines and typing. Each needs room in the rate limiter at once; none waits for it."""

    channels: Mapping[str, Channel]
    events: EventBus
    key_value: KeyValue
    outbox: Outbox
    limiter: RateLimiter
    redactor: Redactor
    clock: Clock
    look_every_s: float = LOOK_EVERY_S
    edit_within_s: float = EDIT_WITHIN_S
    patience_s: float = PATIENCE_S
    _turns: dict[TurnId, FollowedTurn] = field(default_factory=dict[TurnId, FollowedTurn])
    _drafts: dict[SlotId, ShownDraft] = field(default_factory=dict[SlotId, ShownDraft])
    _lines: dict[SlotId, StatusLine] = field(default_factory=dict[SlotId, StatusLine])
    _edits: dict[SlotId, asyncio.Task[None]] = field(default_factory=dict[SlotId, asyncio.Task[None]])
    """Edits under way, and answered ones until the store confirms that they overwrote no newer version."""
    _settling: set[SlotId] = field(default_factory=set[SlotId])
    """Slots with an edit under way or just ended."""
    _sent_here: set[SlotId] = field(default_factory=set[SlotId])
    """Slots among these that this process' delivery sends, after every edit made here."""
    _unanswered: dict[SlotId, float] = field(default_factory=dict[SlotId, float])
    """Time at which an edit ended without an answer."""
    _changed_at: dict[str, float] = field(default_factory=dict[str, float])
    """Time of the last change in a chat, by the chat's scope."""
    _quiet_until: dict[SlotId, float] = field(default_factory=dict[SlotId, float])
    """Earliest time of the next change of a message, after an edit made here."""
    _typing: Counter[str] = field(default_factory=Counter[str])
    """Typing calls under way, by channel."""
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are turns or status lines."""
    _draining: asyncio.Event = field(default_factory=asyncio.Event)
    _log: Any = field(default_factory=lambda: log("live_edits"))

    async def run(self) -> None:
        """Run until drained; return when no edit is under way. Call once."""
        async with asyncio.TaskGroup() as group:
            listens = group.create_task(self._listen(), name="live_edits listen")
            checks = group.create_task(self._check(group), name="live_edits look")
            await self._draining.wait()
            listens.cancel()
            checks.cancel()

    def drain(self) -> None:
        """Begin nothing more. Idempotent."""
        self._draining.set()

    def shown(self, slot: Slot, platform_id: str) -> None:
        """Record that delivery showed a slot; edit it from now on if its answer or turn is still in progress.

        Call before the write to the store, so that no newer version can be claimed yet.
        """
        if slot.kind is SlotKind.STATUS:
            self._line_shown(slot, platform_id)
        turn = self._turns.get(slot.turn) if slot.turn else None
        if turn is None or slot.conversation != turn.conversation:
            return
        turn.type_at = None
        self._changed_at[turn.path.chat] = self.clock.monotonic()
        if turn.streams and slot.kind is SlotKind.ANSWER and slot.n is not None and slot.text:
            before, turn.shown = turn.shown, slot
            if before is not None and before.id == slot.id and before.version < slot.version:
                # A newer version is the final text; rarely the step runs again, and is then not streamed.
                turn.drop_text()
                return
            shown = replace(slot, platform_id=platform_id, sent_version=slot.version)
            self._drafts[slot.id] = ShownDraft(slot=shown, shown=len(slot.text))

    async def finish(self, slot: SlotId) -> float:
        """Begin no edit of this slot until `shown` is called again. Return 0 when its final text may be sent now.

        Otherwise return the seconds after which to ask again: an edit is under way, or one ended unanswered and may
        still take effect. Sent before that, the final text would be overwritten and have to be sent again. The chat
        would flicker, and the repeat would have to be sent although its text is equal. The final text also waits for
        the chat's rate limit after an edit, at most `EDIT_EVERY_S`.
        """
        self._stop_edits(slot)
        if slot in self._settling:
            self._sent_here.add(slot)
        edit, retry_s = self._edits.get(slot), 0.0
        if edit is not None:
            await asyncio.wait([edit], timeout=self.patience_s)
            retry_s = 0.0 if edit.done() else RETRY_S
        await self._wait_until_quiet(slot)
        return retry_s or max(0.0, SETTLED_AFTER_S - self._since_doubt_s(slot))

    async def _wait_until_quiet(self, slot: SlotId) -> None:
        """Wait until a message may change again after its last edit. Returns at once while draining."""
        left_s = self._quiet_until.pop(slot, 0.0) - self.clock.monotonic()
        if left_s > 0:
            await _wait_for(self._draining, left_s)

    def in_doubt(self, slot: SlotId) -> bool:
        """Return whether an edit made here may still take effect, so that the slot has to be shown once more."""
        return self._since_doubt_s(slot) < IN_DOUBT_S

    def _since_doubt_s(self, slot: SlotId) -> float:
        """Return the seconds since an edit of this slot ended without an answer."""
        return self.clock.monotonic() - self._unanswered.get(slot, -math.inf)

    def returned_to_store(self, slot: SlotId) -> None:
        """Mark the slot as returned to the store, from where another machine may send it.

        Call after the write: earlier, an edit finishing in between would cause a second send.
        """
        self._sent_here.discard(slot)

    # --- events -------------------------------------------------------------------------------

    async def _listen(self) -> None:
        async with self.events.subscribe(ANSWERS) as events:
            async for event in events:
                match event:
                    case TurnActive():
                        self._turn_active(event)
                    case TextDelta():
                        self._text_added(event)
                    case ProgressChanged():
                        self._progress_changed(event)
                    case TurnReleased():
                        self._turn_released(event)
                    case _:
                        pass

    def _turn_active(self, event: TurnActive) -> None:
        channel = self.channels.get(event.conversation.channel)
        if channel is None or shown_when_stored(event.conversation):
            return
        now = self.clock.monotonic()
        turn = self._turns.get(event.turn)
        if turn is None:
            turn = self._turns[event.turn] = FollowedTurn(
                conversation=event.conversation,
                path=SendPath.to(event.conversation, channel.rate_limits(event.conversation)),
                streams=channel.streams,
                seen_at=now,
                type_at=now + TYPING_AFTER_S,
            )
            self._some.set()
        turn.seen_at = now
        if (line := self._lines.get(status_slot(event.turn))) is not None:
            line.updated_at = now
        seen = turn.shown is not None and turn.shown.n == turn.n
        if turn.type_at is None and not (seen and now - turn.text_at < QUIET_S):
            turn.type_at = now + TYPING_AFTER_S

    def _turn_released(self, event: TurnReleased) -> None:
        """Stop typing and drop the turn soon."""
        turn = self._turns.get(event.turn)
        if turn is not None:
            turn.type_at = None
            turn.seen_at = self.clock.monotonic() - FORGET_AFTER_S + FORGET_RELEASED_AFTER_S

    def _text_added(self, delta: TextDelta) -> None:
        turn = self._turns.get(delta.turn)
        if turn is not None and turn.streams:
            turn.add(delta, self.clock.monotonic())

    def _progress_changed(self, event: ProgressChanged) -> None:
        slot = status_slot(event.turn)
        line = self._line(slot, event.conversation)
        if line is None:
            return
        line.updated_at = self.clock.monotonic()
        line.progress.update(event, line.updated_at)
        if line.progress.ended and line.slot is None:
            del self._lines[slot]

    def _line(self, slot: SlotId, where: Conversation) -> StatusLine | None:
        """Return the state of a status line, made at its first event. None where lines are not shown."""
        channel = self.channels.get(where.channel)
        if channel is None or not channel.streams or shown_when_stored(where):
            return None
        if slot not in self._lines:
            self._lines[slot] = StatusLine(
                conversation=where,
                path=SendPath.to(where, channel.rate_limits(where)),
                progress=ProgressLine(redactor=self.redactor),
                updated_at=self.clock.monotonic(),
            )
            self._some.set()
        return self._lines[slot]

    def _line_shown(self, slot: Slot, platform_id: str) -> None:
        if not is_at_work(slot.text):
            self._lines.pop(slot.id, None)
        elif (line := self._line(slot.id, slot.conversation)) is not None:
            now = self.clock.monotonic()
            line.slot = replace(slot, platform_id=platform_id, sent_version=slot.version)
            line.shown, line.edited_at, line.updated_at = slot.text, now, now
            self._changed_at[line.path.chat] = now

    # --- display ------------------------------------------------------------------------------

    async def _check(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(self.look_every_s)
            now = self.clock.monotonic()
            for turn in self._turns.values():
                if turn.type_at is not None and now >= turn.type_at:
                    self._show_typing(turn, now, group)
            for draft in list(self._drafts.values()):
                self._edit_draft(draft, now, group)
            for line in self._lines.values():
                self._edit_line(line, now, group)
            self._forget(now)

    def _show_typing(self, turn: FollowedTurn, now: float, group: asyncio.TaskGroup) -> None:
        """Show typing if there is room; otherwise a later check tries again."""
        if self._typing[turn.conversation.channel] >= TYPING_AT_ONCE:
            return
        turn.type_at = now + TYPING_EVERY_S
        if self.limiter.try_acquire(turn.path):
            self._typing[turn.conversation.channel] += 1
            group.create_task(self._type(turn), name=f"typing {turn.conversation.key}")

    def _edit_draft(self, draft: ShownDraft, now: float, group: asyncio.TaskGroup) -> None:
        """Edit a draft if there is more text, its chat has not changed for a second, and the limiter has room."""
        slot, turn = draft.slot, self._turns.get(draft.slot.turn or TurnId(""))
        if turn is None or turn.n != slot.n or not turn.whole or turn.length <= draft.looked:
            return
        if not self._may_edit(slot.id, turn.path, now):
            return
        text = turn.visible_text(self.redactor)
        if len(text) <= draft.shown:
            draft.looked = turn.length
            return
        if not text.startswith(slot.text):
            # The slot has another text, such as why there is no answer: that text is final.
            del self._drafts[slot.id]
            return
        self._changed_at[turn.path.chat] = now
        if self.limiter.try_acquire(turn.path):
            draft.looked, draft.shown = turn.length, len(text)
            self._begin_edit(turn.path, slot, text, group)

    def _edit_line(self, line: StatusLine, now: float, group: asyncio.TaskGroup) -> None:
        """Edit a status line under the same conditions as a draft."""
        slot = line.slot
        if slot is None or not self._may_edit(slot.id, line.path, now):
            return
        text = line.next_text(now)
        if not text:
            return
        self._changed_at[line.path.chat] = now
        if self.limiter.try_acquire(line.path):
            line.shown, line.edited_at = line.progress.line(), now
            self._begin_edit(line.path, slot, text, group)

    def _may_edit(self, slot: SlotId, path: SendPath, now: float) -> bool:
        """Return whether a message may be edited by now."""
        return slot not in self._edits and now - self._changed_at.get(path.chat, -EDIT_EVERY_S) >= EDIT_EVERY_S

    def _begin_edit(self, path: SendPath, slot: Slot, text: str, group: asyncio.TaskGroup) -> None:
        self._settling.add(slot.id)
        self._changed_at[path.chat] = math.inf  # until it is answered
        edit = self._edit(path, RenderedSlot(slot=slot, text=text, partial=True))
        task = self._edits[slot.id] = group.create_task(edit, name=f"live_edits edit {slot.id}")
        group.create_task(self._settle(slot, task), name=f"live_edits after {slot.id}")

    def _stop_edits(self, slot: SlotId) -> None:
        """Begin no further edit of a message."""
        self._drafts.pop(slot, None)
        if (line := self._lines.get(slot)) is not None:
            line.slot = None

    def _forget(self, now: float) -> None:
        gone = [id_ for id_, turn in self._turns.items() if now - turn.seen_at > FORGET_AFTER_S]
        for id_ in gone:
            del self._turns[id_]
        stale = [id_ for id_, line in self._lines.items() if line.stale(now)]
        for id_ in stale:
            del self._lines[id_]
        if gone or stale:
            self._drafts = {id_: one for id_, one in self._drafts.items() if one.slot.turn in self._turns}
            self._changed_at = {chat: at for chat, at in self._changed_at.items() if now - at < EDIT_EVERY_S}
            self._unanswered = {id_: at for id_, at in self._unanswered.items() if now - at < IN_DOUBT_S}
            self._quiet_until = {id_: until for id_, until in self._quiet_until.items() if until > now}
        if not self._turns and not self._lines:
            self._some.clear()

    async def _edit(self, path: SendPath, rendered: RenderedSlot) -> None:
        slot, answered = rendered.slot, False
        try:
            async with asyncio.timeout(self.edit_within_s):
                await self.channels[slot.conversation.channel].show(rendered, _ignore_parts)
            answered = True
        except TimeoutError:
            pass  # the next one shows more
        except SendFailed as failed:
            answered = failed.outcome in (SendOutcome.DEAD, SendOutcome.WAIT) and not failed.unsettled
            if failed.outcome is SendOutcome.DEAD:
                self._stop_edits(slot.id)
            await self._apply_retry_after(path, failed)
        except Exception:  # noqa: BLE001 - the loop of live edits: stops edits of this message only (house rule 9)
            self._log.exception("a channel broke while streaming", slot=slot.id)
            self._stop_edits(slot.id)
        finally:
            now = self._changed_at[path.chat] = self.clock.monotonic()  # it may have left late
            self._quiet_until[slot.id] = now + min(path.every_s(), EDIT_EVERY_S)
            if not answered:
                self._edits.pop(slot.id, None)
                self._unanswered[slot.id] = self.clock.monotonic()

    async def _settle(self, slot: Slot, edit: asyncio.Task[None]) -> None:
        """Check whether another machine sent the final text meanwhile; this edit may have overwritten it."""
        try:
            await self._check_overwritten(slot, edit)
        finally:
            if self._edits.get(slot.id) is edit:  # the next one may begin: no final text was overwritten
                del self._edits[slot.id]
            self._settling.discard(slot.id)
            self._sent_here.discard(slot.id)

    async def _check_overwritten(self, slot: Slot, edit: asyncio.Task[None]) -> None:
        await asyncio.wait([edit])
        if self._since_doubt_s(slot.id) < SETTLED_AFTER_S:  # not answered: it may still take effect
            await _wait_for(self._draining, SETTLED_AFTER_S)
        for _ in range(STORE_ATTEMPTS):
            if slot.id in self._sent_here:
                return
            try:
                if await self.outbox.slot_overwritten(slot.id, slot.version):
                    self._stop_edits(slot.id)
            except StoreError as error:
                self._log.error("an edit may have overwritten a newer one", slot=slot.id, error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _apply_retry_after(self, path: SendPath, failed: SendFailed) -> None:
        """Ban and store the ban, which holds for every message there and over a restart. Repeats no call."""
        if failed.outcome is not SendOutcome.WAIT:
            return
        try:
            await write_bans(self.key_value, self.limiter.apply_retry_after(path, failed), self.clock.now())
        except StoreError as error:
            self._log.error("a ban was not stored", error=str(error))

    async def _type(self, turn: FollowedTurn) -> None:
        try:
            async with asyncio.timeout(TYPING_WITHIN_S):
                await self.channels[turn.conversation.channel].typing(turn.conversation)
        except TimeoutError:
            pass
        except SendFailed as failed:
            await self._apply_retry_after(turn.path, failed)
        except Exception:  # noqa: BLE001 - the loop of live edits: typing is optional (house rule 9)
            self._log.exception("a channel broke while typing", channel=turn.conversation.channel)
        finally:
            self._typing[turn.conversation.channel] -= 1


async def _wait_for(end: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await end.wait()


async def _ignore_parts(platform_id: str) -> None:
    """Ignore the ids of parts; a `Progress`. A draft's messages are those that delivery made."""
