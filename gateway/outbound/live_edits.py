"""Live edits: show answers while they are written, status lines and typing. Runs beside delivery; stores nothing.

A turn makes the slot of its answer or status line early and delivery sends it. From then on the message is edited here
until delivery claims a newer version. Everything shown here may be lost; delivery sends the final text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.ids import SlotId, TurnId, status_slot
from gateway.domain.live import ANSWERS, ProgressChanged, TextDelta, TurnActive, TurnReleased
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot, SlotKind, shown_when_stored
from gateway.errors import SendFailed
from gateway.outbound.live_state import FORGET_AFTER_S, FollowedTurn, ProgressLine, StatusLine
from gateway.outbound.message_actor import MessageActor, MessageActors
from gateway.outbound.rate_limit import SendPath
from gateway.ports import EventBus
from gateway.system.logging_setup import log
from gateway.system.status_text import is_at_work

LOOK_EVERY_S = 0.1
TYPING_AFTER_S = 0.2
TYPING_EVERY_S = 4.0
QUIET_S = 2.0
"""Seconds without new text after which typing is shown again: the turn does something else."""
TYPING_WITHIN_S = 5.0
TYPING_AT_ONCE = 16
"""Typing calls of one channel at once; each takes a connection. Further turns follow a moment later."""
FORGET_RELEASED_AFTER_S = 1.0
"""Seconds until a released turn is dropped: its final text is sent by then, and ten checks a second cost CPU."""


@dataclass(slots=True, kw_only=True)
class LiveEdits:
    """Streaming edits, status lines and typing. Each needs room in the rate limiter at once; none waits for it."""

    events: EventBus
    messages: MessageActors
    look_every_s: float = LOOK_EVERY_S
    _turns: dict[TurnId, FollowedTurn] = field(default_factory=dict[TurnId, FollowedTurn])
    _lines: dict[SlotId, StatusLine] = field(default_factory=dict[SlotId, StatusLine])
    _typing: Counter[str] = field(default_factory=Counter[str])
    """Typing calls under way, by channel."""
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are turns or status lines."""
    _log: Any = field(default_factory=lambda: log("live_edits"))

    async def run(self) -> None:
        """Run until drained; return when no edit is under way. Call once."""
        self.messages.goes_on = self._goes_on
        async with asyncio.TaskGroup() as group:
            listens = group.create_task(self._listen(), name="live_edits listen")
            checks = group.create_task(self._check(group), name="live_edits look")
            await self.messages.draining.wait()
            listens.cancel()
            checks.cancel()

    def drain(self) -> None:
        """Begin nothing more. Idempotent."""
        self.messages.draining.set()

    def _goes_on(self, message: MessageActor, slot: Slot) -> bool:
        """Note a version that was shown. Return whether its answer or line goes on in that message."""
        turn = self._turns.get(slot.turn) if slot.turn else None
        if turn is not None and slot.conversation == turn.conversation:
            turn.type_at = None
            self.messages.changed_at[turn.path.chat] = self._now()
            if slot.kind is SlotKind.ANSWER:
                return turn.goes_on(message, slot)
        return slot.kind is SlotKind.STATUS and self._line_goes_on(message, slot)

    def _now(self) -> float:
        return self.messages.clock.monotonic()

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
        channel = self.messages.channels.get(event.conversation.channel)
        if channel is None or shown_when_stored(event.conversation):
            return
        now = self._now()
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
            turn.seen_at = self._now() - FORGET_AFTER_S + FORGET_RELEASED_AFTER_S

    def _text_added(self, delta: TextDelta) -> None:
        turn = self._turns.get(delta.turn)
        if turn is not None and turn.streams:
            turn.add(delta, self._now())

    def _progress_changed(self, event: ProgressChanged) -> None:
        slot = status_slot(event.turn)
        line = self._line(slot, event.conversation)
        if line is None:
            return
        line.updated_at = self._now()
        line.progress.update(event, line.updated_at)
        if line.progress.ended and not line.has_message:
            del self._lines[slot]

    def _line(self, slot: SlotId, where: Conversation) -> StatusLine | None:
        """Return the state of a status line, made at its first event. None where lines are not shown."""
        channel = self.messages.channels.get(where.channel)
        if channel is None or not channel.streams or shown_when_stored(where):
            return None
        if slot not in self._lines:
            progress = ProgressLine(redactor=self.messages.redactor)
            self._lines[slot] = StatusLine(progress=progress, updated_at=self._now())
            self._some.set()
        return self._lines[slot]

    def _line_goes_on(self, message: MessageActor, slot: Slot) -> bool:
        if not is_at_work(slot.text):
            self._lines.pop(slot.id, None)
            return False
        line = self._line(slot.id, slot.conversation)
        if line is None:
            return False
        line.message, line.shown, line.edited_at = message, slot.text, self._now()
        line.updated_at = self.messages.changed_at[slot.conversation.chat_scope] = line.edited_at
        return True

    # --- display ------------------------------------------------------------------------------

    async def _check(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(self.look_every_s)
            now = self._now()
            for turn in self._turns.values():
                if turn.type_at is not None and now >= turn.type_at:
                    self._show_typing(turn, now, group)
                self._edit_answer(turn, now, group)
            for line in self._lines.values():
                self._edit_line(line, now, group)
            self._forget(now)

    def _show_typing(self, turn: FollowedTurn, now: float, group: asyncio.TaskGroup) -> None:
        """Show typing if there is room; otherwise a later check tries again."""
        if self._typing[turn.conversation.channel] >= TYPING_AT_ONCE:
            return
        turn.type_at = now + TYPING_EVERY_S
        if self.messages.limiter.try_acquire(turn.path):
            self._typing[turn.conversation.channel] += 1
            group.create_task(self._type(turn), name=f"typing {turn.conversation.key}")

    def _edit_answer(self, turn: FollowedTurn, now: float, group: asyncio.TaskGroup) -> None:
        """Edit the message of an answer if there is more text and it may be edited."""
        message, slot = turn.message, turn.shown
        if message is None or slot is None or turn.n != slot.n or not turn.whole or turn.length <= turn.looked:
            return
        if not message.may_edit(now):
            return
        text = turn.visible_text(self.messages.redactor)
        if len(text) <= turn.shown_chars:
            turn.looked = turn.length
        elif not text.startswith(slot.text):
            message.grows = False  # it has another text, such as why there is no answer: that text is final
        elif message.edit(text, group):
            turn.looked, turn.shown_chars = turn.length, len(text)

    def _edit_line(self, line: StatusLine, now: float, group: asyncio.TaskGroup) -> None:
        """Edit the message of a status line if it shows something else and may be edited."""
        if line.message is None or not line.message.may_edit(now):
            return
        text = line.next_text(now)
        if text and line.message.edit(text, group):
            line.shown, line.edited_at = line.progress.line(), now

    def _forget(self, now: float) -> None:
        turns = {id_: turn for id_, turn in self._turns.items() if now - turn.seen_at > FORGET_AFTER_S}
        lines = {id_: line for id_, line in self._lines.items() if line.stale(now)}
        for gone in (*turns.values(), *lines.values()):
            if gone.message is not None:
                gone.message.grows = False
        if turns or lines:
            self._turns = {id_: turn for id_, turn in self._turns.items() if id_ not in turns}
            self._lines = {id_: line for id_, line in self._lines.items() if id_ not in lines}
            self.messages.forget()
        if not self._turns and not self._lines:
            self._some.clear()

    async def _type(self, turn: FollowedTurn) -> None:
        try:
            async with asyncio.timeout(TYPING_WITHIN_S):
                await self.messages.channels[turn.conversation.channel].typing(turn.conversation)
        except TimeoutError:
            pass
        except SendFailed as failed:
            await self.messages.ban(turn.path, failed)
        except Exception:  # noqa: BLE001 - the loop of live edits: typing is optional (house rule 9)
            self._log.exception("a channel broke while typing", channel=turn.conversation.channel)
        finally:
            self._typing[turn.conversation.channel] -= 1
