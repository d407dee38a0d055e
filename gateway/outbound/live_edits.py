"""Beside the way out: shows answers while they are written, and what turns do meanwhile. Nothing here is stored.

The turn makes a slot early, of an answer or of its status line; delivery sends it, and from then on the message is
edited here until delivery claims a newer version of it. Everything that is shown here may be lost; the last words are
delivery's.
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
from gateway.outbound.followed import FORGET_AFTER_S, FollowedTurn, ShownDraft, StatusLine
from gateway.outbound.progress import ProgressLine
from gateway.outbound.rate_limit import RateLimiter, SendPath, write_bans
from gateway.ports import Channel, Clock, EventBus, KeyValue, Outbox
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor
from gateway.system.status_text import is_at_work

LOOK_EVERY_S = 0.1
TYPING_AFTER_S = 0.2
TYPING_EVERY_S = 4.0
QUIET_S = 2.0
"""Without new text for so long, the turn does something else: it shows typing again."""
EDIT_EVERY_S = 1.0
EDIT_WITHIN_S = 45.0
"""For a channel that hangs. Longer than one waits for its platform: an edit that is cut off may still be made."""
PATIENCE_S = 5.0
"""Delivery waits so long for an edit that is under way; a place to send from is worth more than that."""
ASK_AGAIN_S = 1.0
STORE_AGAIN_TIMES = 30
SETTLED_AFTER_S = 5.0
"""So long the last words wait after the end of an edit that was not answered, which may still be made."""
IN_DOUBT_S = EDIT_IN_DOUBT.total_seconds()
"""So long it may really take. The last words do not wait as long: they are shown once more then."""
TYPING_WITHIN_S = 5.0
TYPING_AT_ONCE = 16
"""Turns of one channel; the others' time comes a moment later. Each takes a connection."""
FORGET_RESTED_AFTER_S = 1.0
"""Its last words are out by then: what is looked at ten times a second for longer costs more than the turn did."""


@dataclass(slots=True, kw_only=True)
class LiveEdits:
    """Streaming edits and typing. Only through the limiter, and only when there is room at once."""

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
    _open: dict[SlotId, ShownDraft] = field(default_factory=dict[SlotId, ShownDraft])
    _lines: dict[SlotId, StatusLine] = field(default_factory=dict[SlotId, StatusLine])
    _edits: dict[SlotId, asyncio.Task[None]] = field(default_factory=dict[SlotId, asyncio.Task[None]])
    """Edits under way, and those that were answered, until it is known what they met."""
    _looked_after: set[SlotId] = field(default_factory=set[SlotId])
    """Slots of which an edit is under way, or has just ended."""
    _ours: set[SlotId] = field(default_factory=set[SlotId])
    """Of those, what delivery here sends: it sends after every edit that was made here."""
    _unanswered: dict[SlotId, float] = field(default_factory=dict[SlotId, float])
    """When an edit ended without an answer."""
    _changed_at: dict[str, float] = field(default_factory=dict[str, float])
    """When the messages of a chat were changed last, by the chat's scope."""
    _rests_until: dict[SlotId, float] = field(default_factory=dict[SlotId, float])
    """Until when a message rests after an edit that was made here."""
    _typing: Counter[str] = field(default_factory=Counter[str])
    """How often each channel is being told to show it."""
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are turns or lines to look after."""
    _draining: asyncio.Event = field(default_factory=asyncio.Event)
    _log: Any = field(default_factory=lambda: log("streams"))

    async def run(self) -> None:
        """Show until drained; returns when no edit is under way. Called once."""
        async with asyncio.TaskGroup() as group:
            listens = group.create_task(self._listen(), name="streams listen")
            looks = group.create_task(self._look(group), name="streams look")
            await self._draining.wait()
            listens.cancel()
            looks.cancel()

    def drain(self) -> None:
        """Begin nothing more. Twice is safe."""
        self._draining.set()

    def shown(self, slot: Slot, platform_id: str) -> None:
        """Delivery showed a slot. The beginning of an answer that is still written, or a status line of a turn that is
        at work, is edited from now on.

        Called before the store knows, so that no newer version can be claimed yet.
        """
        if slot.kind is SlotKind.STATUS:
            self._line_shown(slot, platform_id)
        turn = self._turns.get(slot.turn) if slot.turn else None
        if turn is None or slot.conversation != turn.conversation:
            return
        turn.type_at = None
        self._changed_at[turn.way.chat] = self.clock.monotonic()
        if turn.streams and slot.kind is SlotKind.ANSWER and slot.n is not None and slot.text:
            before, turn.shown = turn.shown, slot
            if before is not None and before.id == slot.id and before.version < slot.version:
                # A newer version of it is its last words; or, rarely, the step runs once more, and stands still then.
                turn.stop_keeping()
                return
            shown = replace(slot, platform_id=platform_id, sent_version=slot.version)
            self._open[slot.id] = ShownDraft(slot=shown, shown=len(slot.text))

    async def finish(self, slot: SlotId) -> float:
        """Begin no edit of this slot before `shown` is called again. Return 0 when its last words may be sent now.

        Otherwise the seconds after which to ask again: an edit is under way, or one ended without an answer and may
        still be made. The last words wait for it. Sent at once, they would have to be sent once more after it, by
        somebody who knows that an equal edit is not a needless one here; and meanwhile the chat would show them, then
        a beginning, then them again. They also come no sooner after an edit than the limit of the chat wants, up to the
        second that edits keep among themselves.
        """
        self._let_stand(slot)
        if slot in self._looked_after:
            self._ours.add(slot)
        edit, ask_again_s = self._edits.get(slot), 0.0
        if edit is not None:
            await asyncio.wait([edit], timeout=self.patience_s)
            ask_again_s = 0.0 if edit.done() else ASK_AGAIN_S
        await self._rest_out(slot)
        return ask_again_s or max(0.0, SETTLED_AFTER_S - self._since_doubt_s(slot))

    async def _rest_out(self, slot: SlotId) -> None:
        """Wait until a message had its rest after its last edit, and not at all while draining."""
        left_s = self._rests_until.pop(slot, 0.0) - self.clock.monotonic()
        if left_s > 0:
            await _at_most(self._draining, left_s)

    def in_doubt(self, slot: SlotId) -> bool:
        """Whether an edit that was made here may still come, so that what is shown now has to be shown once more."""
        return self._since_doubt_s(slot) < IN_DOUBT_S

    def _since_doubt_s(self, slot: SlotId) -> float:
        """Seconds since an edit of it ended without an answer."""
        return self.clock.monotonic() - self._unanswered.get(slot, -math.inf)

    def gave_back(self, slot: SlotId) -> None:
        """Say that the store has the last words again: until they are asked for anew another machine may send them.

        Told before that is stored, an edit that ends just then would find them being sent, and have them sent twice.
        """
        self._ours.discard(slot)

    # --- what is heard ------------------------------------------------------------------------

    async def _listen(self) -> None:
        async with self.events.subscribe(ANSWERS) as events:
            async for event in events:
                match event:
                    case TurnActive():
                        self._working(event)
                    case TextDelta():
                        self._more(event)
                    case ProgressChanged():
                        self._doing(event)
                    case TurnReleased():
                        self._rest(event)
                    case _:
                        pass

    def _working(self, event: TurnActive) -> None:
        channel = self.channels.get(event.conversation.channel)
        if channel is None or shown_when_stored(event.conversation):
            return
        now = self.clock.monotonic()
        turn = self._turns.get(event.turn)
        if turn is None:
            turn = self._turns[event.turn] = FollowedTurn(
                conversation=event.conversation,
                way=SendPath.to(event.conversation, channel.rate_limits(event.conversation)),
                streams=channel.streams,
                seen_at=now,
                type_at=now + TYPING_AFTER_S,
            )
            self._some.set()
        turn.seen_at = now
        if (line := self._lines.get(status_slot(event.turn))) is not None:
            line.heard_at = now
        seen = turn.shown is not None and turn.shown.n == turn.n
        if turn.type_at is None and not (seen and now - turn.text_at < QUIET_S):
            turn.type_at = now + TYPING_AFTER_S

    def _rest(self, event: TurnReleased) -> None:
        """Show no typing any more, and forget the turn soon."""
        turn = self._turns.get(event.turn)
        if turn is not None:
            turn.type_at = None
            turn.seen_at = self.clock.monotonic() - FORGET_AFTER_S + FORGET_RESTED_AFTER_S

    def _more(self, delta: TextDelta) -> None:
        turn = self._turns.get(delta.turn)
        if turn is not None and turn.streams:
            turn.hear(delta, self.clock.monotonic())

    def _doing(self, said: ProgressChanged) -> None:
        slot = status_slot(said.turn)
        line = self._line(slot, said.conversation)
        if line is None:
            return
        line.heard_at = self.clock.monotonic()
        line.progress.hear(said, line.heard_at)
        if line.progress.ended and line.slot is None:
            del self._lines[slot]

    def _line(self, slot: SlotId, where: Conversation) -> StatusLine | None:
        """What is known of a line; made when it is heard of first. None where lines are not shown."""
        channel = self.channels.get(where.channel)
        if channel is None or not channel.streams or shown_when_stored(where):
            return None
        if slot not in self._lines:
            self._lines[slot] = StatusLine(
                conversation=where,
                way=SendPath.to(where, channel.rate_limits(where)),
                progress=ProgressLine(redactor=self.redactor),
                heard_at=self.clock.monotonic(),
            )
            self._some.set()
        return self._lines[slot]

    def _line_shown(self, slot: Slot, platform_id: str) -> None:
        if not is_at_work(slot.text):
            self._lines.pop(slot.id, None)
        elif (line := self._line(slot.id, slot.conversation)) is not None:
            now = self.clock.monotonic()
            line.slot = replace(slot, platform_id=platform_id, sent_version=slot.version)
            line.shown, line.told_at, line.heard_at = slot.text, now, now
            self._changed_at[line.way.chat] = now

    # --- what is shown ------------------------------------------------------------------------

    async def _look(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(self.look_every_s)
            now = self.clock.monotonic()
            for turn in self._turns.values():
                if turn.type_at is not None and now >= turn.type_at:
                    self._show_typing(turn, now, group)
            for open_ in list(self._open.values()):
                self._grow(open_, now, group)
            for line in self._lines.values():
                self._tell(line, now, group)
            self._forget(now)

    def _show_typing(self, turn: FollowedTurn, now: float, group: asyncio.TaskGroup) -> None:
        """Show it when there is room; in a crowd that is at one of the next looks."""
        if self._typing[turn.conversation.channel] >= TYPING_AT_ONCE:
            return
        turn.type_at = now + TYPING_EVERY_S
        if self.limiter.at_once(turn.way):
            self._typing[turn.conversation.channel] += 1
            group.create_task(self._type(turn), name=f"typing {turn.conversation.key}")

    def _grow(self, open_: ShownDraft, now: float, group: asyncio.TaskGroup) -> None:
        """Edit a message when there is more to show, its chat had a second's rest and there is room."""
        slot, turn = open_.slot, self._turns.get(open_.slot.turn or TurnId(""))
        if turn is None or turn.n != slot.n or not turn.whole or turn.length <= open_.looked:
            return
        if not self._rested(slot.id, turn.way, now):
            return
        text = turn.so_far(self.redactor)
        if len(text) <= open_.shown:
            open_.looked = turn.length
            return
        if not text.startswith(slot.text):
            # The slot says something else, such as why there is no answer: that is its last word.
            del self._open[slot.id]
            return
        self._changed_at[turn.way.chat] = now
        if self.limiter.at_once(turn.way):
            open_.looked, open_.shown = turn.length, len(text)
            self._begin_edit(turn.way, slot, text, group)

    def _tell(self, line: StatusLine, now: float, group: asyncio.TaskGroup) -> None:
        """Edit a status line under the same conditions."""
        slot = line.slot
        if slot is None or not self._rested(slot.id, line.way, now):
            return
        text = line.news(now)
        if not text:
            return
        self._changed_at[line.way.chat] = now
        if self.limiter.at_once(line.way):
            line.shown, line.told_at = line.progress.line(), now
            self._begin_edit(line.way, slot, text, group)

    def _rested(self, slot: SlotId, way: SendPath, now: float) -> bool:
        """Whether a message may be edited by now."""
        return slot not in self._edits and now - self._changed_at.get(way.chat, -EDIT_EVERY_S) >= EDIT_EVERY_S

    def _begin_edit(self, way: SendPath, slot: Slot, text: str, group: asyncio.TaskGroup) -> None:
        self._looked_after.add(slot.id)
        self._changed_at[way.chat] = math.inf  # until it is answered
        edit = self._edit(way, RenderedSlot(slot=slot, text=text, partial=True))
        task = self._edits[slot.id] = group.create_task(edit, name=f"streams edit {slot.id}")
        group.create_task(self._give_way(slot, task), name=f"streams after {slot.id}")

    def _let_stand(self, slot: SlotId) -> None:
        """Begin no edit of a message any more."""
        self._open.pop(slot, None)
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
            self._open = {id_: one for id_, one in self._open.items() if one.slot.turn in self._turns}
            self._changed_at = {chat: at for chat, at in self._changed_at.items() if now - at < EDIT_EVERY_S}
            self._unanswered = {id_: at for id_, at in self._unanswered.items() if now - at < IN_DOUBT_S}
            self._rests_until = {id_: until for id_, until in self._rests_until.items() if until > now}
        if not self._turns and not self._lines:
            self._some.clear()

    async def _edit(self, way: SendPath, showing: RenderedSlot) -> None:
        slot, answered = showing.slot, False
        try:
            async with asyncio.timeout(self.edit_within_s):
                await self.channels[slot.conversation.channel].edit(showing, _keep_nothing)
            answered = True
        except TimeoutError:
            pass  # the next one shows more
        except SendFailed as failed:
            answered = failed.outcome in (SendOutcome.DEAD, SendOutcome.WAIT) and not failed.unsettled
            if failed.outcome is SendOutcome.DEAD:
                self._let_stand(slot.id)
            await self._obey(way, failed)
        except Exception:  # noqa: BLE001 - the loop of streams: only this message stands still (house rule 9)
            self._log.exception("a channel broke while streaming", slot=slot.id)
            self._let_stand(slot.id)
        finally:
            now = self._changed_at[way.chat] = self.clock.monotonic()  # it may have been slow to leave
            self._rests_until[slot.id] = now + min(way.every_s(), EDIT_EVERY_S)
            if not answered:
                self._edits.pop(slot.id, None)
                self._unanswered[slot.id] = self.clock.monotonic()

    async def _give_way(self, slot: Slot, edit: asyncio.Task[None]) -> None:
        """See whether another machine sent the last words meanwhile: nobody there could know of this edit, which may
        stand over them.
        """
        try:
            await self._look_after(slot, edit)
        finally:
            if self._edits.get(slot.id) is edit:  # the next one may begin, now that nobody's last words stand there
                del self._edits[slot.id]
            self._looked_after.discard(slot.id)
            self._ours.discard(slot.id)

    async def _look_after(self, slot: Slot, edit: asyncio.Task[None]) -> None:
        await asyncio.wait([edit])
        if self._since_doubt_s(slot.id) < SETTLED_AFTER_S:  # not answered: it may still be made
            await _at_most(self._draining, SETTLED_AFTER_S)
        for _ in range(STORE_AGAIN_TIMES):
            if slot.id in self._ours:
                return
            try:
                if await self.outbox.slot_overwritten(slot.id, slot.version):
                    self._let_stand(slot.id)
            except StoreError as error:
                self._log.error("an edit may stand over a newer one", slot=slot.id, error=str(error))
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                return

    async def _obey(self, way: SendPath, failed: SendFailed) -> None:
        """Nothing is repeated; a ban holds for whatever is shown there, and over a restart."""
        if failed.outcome is not SendOutcome.WAIT:
            return
        try:
            await write_bans(self.key_value, self.limiter.obey(way, failed), self.clock.now())
        except StoreError as error:
            self._log.error("a ban is known here and not stored", error=str(error))

    async def _type(self, turn: FollowedTurn) -> None:
        try:
            async with asyncio.timeout(TYPING_WITHIN_S):
                await self.channels[turn.conversation.channel].typing(turn.conversation)
        except TimeoutError:
            pass
        except SendFailed as failed:
            await self._obey(turn.way, failed)
        except Exception:  # noqa: BLE001 - the loop of streams: typing is not needed (house rule 9)
            self._log.exception("a channel broke while typing", channel=turn.conversation.channel)
        finally:
            self._typing[turn.conversation.channel] -= 1


async def _at_most(end: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until it is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await end.wait()


async def _keep_nothing(platform_id: str) -> None:
    """A `Progress`: the messages of a beginning are those that delivery made."""
