"""Live edits: show answers while they are written, status lines and typing. Runs beside delivery; stores nothing.

A turn makes the slot of its answer or status line early and delivery sends it. From then on the message is edited here
until delivery claims a newer version. Everything shown here may be lost; delivery sends the final text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.events import ANSWERS, ProgressChanged, TextDelta, TurnActive, TurnReleased
from gateway.domain.ids import TurnId
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot, SlotKind, shown_when_stored
from gateway.errors import SendFailed
from gateway.outbound.message_actor import MessageActor, MessageActors
from gateway.outbound.rate_limit import SendPath
from gateway.outbound.status_line import StatusLines
from gateway.ports import EventBus
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor

LOOK_EVERY_S = 0.1
"""Seconds between two checks of streaming answers for an edit."""
TYPING_AFTER_S = 0.2
"""Seconds after a turn's start before typing is shown (decision 12)."""
TYPING_EVERY_S = 4.0
"""Seconds after which typing is shown again."""
QUIET_S = 2.0
"""Seconds without new text after which typing is shown again: the turn does something else."""
TYPING_WITHIN_S = 5.0
"""Timeout in seconds of one typing call."""
TYPING_AT_ONCE = 16
"""Typing calls of one channel at once; each takes a connection. Further turns follow a moment later."""
KEPT_CHARS = 200_000
"""Characters held of one answer; a longer one is shown when it is complete."""
FORGET_AFTER_S = 7.0
"""Seconds without an event after which a turn is dropped; `TurnActive` comes every 5 s."""
FORGET_RELEASED_AFTER_S = 1.0
"""Seconds until a released turn is dropped: its final text is sent by then, and ten checks a second cost CPU."""
_WORD_CHARS = "".join(map(chr, range(ord("!"), ord("~") + 1)))
"""Characters cut from the end, so that the last word is not shown: a secret is recognised only when complete."""


@dataclass(slots=True, kw_only=True)
class FollowedTurn:
    """Active turn and the answer that it writes."""

    conversation: Conversation
    path: SendPath
    streams: bool
    seen_at: float
    type_at: float | None
    """Time of the next typing indicator; None while a message shows activity."""
    n: int = -1
    """Step whose text is being streamed."""
    pieces: list[str] = field(default_factory=list[str])
    length: int = 0
    whole: bool = False
    """False if some of the text was missed, or it is too long."""
    text_at: float = 0.0
    shown: Slot | None = None
    """Slot of the answer shown last, in part or in full."""
    message: MessageActor | None = None
    """Actor of the message that shows it in part."""
    shown_chars: int = 0
    looked: int = 0
    """Characters received at the last check for more to show."""

    def add(self, delta: TextDelta, now: float) -> None:
        """Append a delta to the answer."""
        if delta.n != self.n:
            self.n, self.pieces, self.length, self.whole = delta.n, [], 0, True
        self.text_at = now
        if delta.start == 0 and self.length:  # the same step once more, after a crash
            self.pieces, self.length, self.whole = [], 0, True
        self.whole = self.whole and delta.start == self.length and self.length + len(delta.text) <= KEPT_CHARS
        if self.whole:
            self.pieces.append(delta.text)
            self.length += len(delta.text)
        else:
            self.drop_text()

    def goes_on(self, message: MessageActor, slot: Slot) -> bool:
        """Note a version of an answer that was shown. Return whether it is a beginning, which grows."""
        if slot.kind is not SlotKind.ANSWER or not self.streams or slot.n is None or not slot.text:
            return False
        before, self.shown = self.shown, slot
        if before is not None and before.id == slot.id and before.version < slot.version:
            # A newer version is the final text; rarely the step runs again, and is then not streamed.
            self.drop_text()
            return False
        self.message, self.shown_chars, self.looked = message, len(slot.text), 0
        return True

    def visible_text(self, redactor: Redactor) -> str:
        """Return the part of the answer that may be shown: redacted, without its last word."""
        text = redactor.text("".join(self.pieces)).lstrip()
        return text.rstrip(_WORD_CHARS).rstrip()

    def drop_text(self) -> None:
        """Drop the text and ignore further deltas until the next step."""
        self.pieces, self.whole = [], False


@dataclass(slots=True, kw_only=True)
class LiveEdits:
    """Streaming edits, status lines and typing. Each needs room in the rate limiter at once; none waits for it."""

    events: EventBus
    messages: MessageActors
    look_every_s: float = LOOK_EVERY_S
    _turns: dict[TurnId, FollowedTurn] = field(default_factory=dict[TurnId, FollowedTurn])
    _lines: StatusLines = field(init=False)
    _typing: Counter[str] = field(default_factory=Counter[str])
    """Typing calls under way, by channel."""
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are turns or status lines."""
    _log: Any = field(default_factory=lambda: log("live_edits"))

    def __post_init__(self) -> None:
        """Follow no line yet."""
        self._lines = StatusLines(messages=self.messages)

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
        goes_on = slot.kind is SlotKind.STATUS and self._lines.goes_on(message, slot)
        turn = self._turns.get(slot.turn) if slot.turn else None
        if turn is not None and slot.conversation == turn.conversation:
            turn.type_at = None
            self.messages.changed_at[turn.path.chat] = self._now()
            goes_on = goes_on or turn.goes_on(message, slot)
        self._wake()
        return goes_on

    def _wake(self) -> None:
        if self._turns or self._lines:
            self._some.set()

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
                        self._lines.changed(event)
                    case TurnReleased():
                        self._turn_released(event)
                    case _:
                        pass
                self._wake()

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
        turn.seen_at = now
        self._lines.active(event.turn)
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
            self._lines.edit(now, group)
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

    def _forget(self, now: float) -> None:
        gone = [id_ for id_, turn in self._turns.items() if now - turn.seen_at > FORGET_AFTER_S]
        for id_ in gone:
            turn = self._turns.pop(id_)
            if turn.message is not None:
                turn.message.grows = False
        if self._lines.forget(now) or gone:
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
