"""Message actor: the one holder of a slot's messages while they may change. Used by `delivery` and `live_edits`.

Delivery wishes for versions that must arrive (`deliver`), live edits for text that may be lost (`edit`). The actor
makes one change at a time: a version that must arrive waits for the edit under way, which would overwrite it otherwise.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from gateway.approvals import Approvals
from gateway.domain.ids import OwnerName, Principal, SlotId
from gateway.domain.slots import EDIT_IN_DOUBT, RenderedSlot, Slot, SlotKind, file_may_take_s
from gateway.domain.turns import ENDED, INTERRUPTED_TEXT, TurnState
from gateway.domain.waits import WaitKind
from gateway.errors import FileAway, NotFound, SendFailed, SendOutcome, StoreError
from gateway.outbound.rate_limit import PATIENCE_S, RateLimiter, SendPath, SendPriority, write_bans
from gateway.policy.retry import Failure, GiveUp, RetryLimits, next_try
from gateway.ports import Channel, Clock, FindOutput, KeyValue, MarksReceipt, Outbox, Queries
from gateway.system.clock import is_set
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor

LOOK_EVERY_S = 1.0
"""Interval in seconds between checks of delivery for due slots."""
SEND_WITHIN_S = 45.0
"""Timeout in seconds for one send or edit; files have longer ones.

Longer than a channel's own timeout for its platform: an edit that is cut off may still take effect. This, 4 s for the
rate limit and 5 s for an edit under way (`EDIT_PATIENCE_S`) add up to less than 60 s. After 60 s a sweep reclaims the
slot, and a send that still hangs would be repeated.
"""
PARTS_WITHIN_S = 25.0
"""Seconds that the parts of one slot wait for the rate limiter; the rest goes with the next attempt."""
LONGEST_DELAY_S = 86_400.0
"""Longest delay in seconds before a retry: dates have an end, and limits and bans may have been lifted."""
RETRY_S = 1.0
"""Seconds before another try: to store an outcome, or to send a version while an edit is under way."""
STORE_RETRIES = 30
"""Further tries to store the outcome of a send, and to check an edit in the store."""
SEND_LIMITS = RetryLimits(attempts=6)
"""Attempts to send one version of a slot, the first included; then the slot is dead."""
EDIT_EVERY_S = 1.0
"""Minimum interval in seconds between two changes in a chat when the second is an edit."""
EDIT_PATIENCE_S = 5.0
"""Seconds that a version waits for an edit under way; a send worker is worth more than a longer wait."""
SETTLED_AFTER_S = 5.0
"""Seconds that a version waits after an unanswered edit, which may still take effect."""
IN_DOUBT_S = EDIT_IN_DOUBT.total_seconds()
"""Seconds in which an unanswered edit may really take effect. A version sent earlier is shown once more after it."""
_NAMES = {
    SlotKind.CARD: "a question",
    SlotKind.CHECKLIST: "a task list",
    SlotKind.NOTE: "a note",
    SlotKind.REPLY: "a reply",
    SlotKind.FILE: "a file",
    SlotKind.POST: "what the agent posted",
}

_NOWHERE = SendPath(account="", chat="", scopes=(), rate_limits=())


@dataclass(slots=True, kw_only=True)
class MessageActors:
    """Actors of a node, and what they share."""

    outbox: Outbox
    key_value: KeyValue
    queries: Queries
    channels: Mapping[str, Channel]
    approvals: Approvals
    clock: Clock
    metrics: Metrics
    points: FailPoints
    redactor: Redactor
    owners: Mapping[OwnerName, Sequence[Principal]]
    """Owners to notify of undeliverable slots, with their principals."""
    limiter: RateLimiter
    find: FindOutput
    """Return the path of an artifact of a session, or None."""
    send_within_s: float = SEND_WITHIN_S
    """Timeout in seconds for one send or edit, besides the time allowed for a file."""
    edit_patience_s: float = EDIT_PATIENCE_S
    goes_on: Callable[[MessageActor, Slot], bool] | None = None
    """Return whether live edits go on with a version just shown. Called before that is stored, so that no newer version
    can be claimed yet."""
    changed_at: dict[str, float] = field(default_factory=dict[str, float])
    """Time of the last change in a chat, by the chat's scope; infinite while an edit is under way."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at shutdown: no change keeps its distance to the one before."""
    marking: Mapping[str, MarksReceipt] = field(init=False)
    """Channels that mark what they received, by name."""
    _actors: dict[SlotId, MessageActor] = field(default_factory=dict[SlotId, "MessageActor"])
    log: Any = field(default_factory=lambda: log("message_actor"))

    def __post_init__(self) -> None:
        """Ask the channels once: a protocol is compared method by method."""
        self.marking = {name: one for name, one in self.channels.items() if isinstance(one, MarksReceipt)}

    def of(self, slot: SlotId) -> MessageActor:
        """Return the one actor of a slot."""
        if slot not in self._actors:
            self._actors[slot] = MessageActor(by=self)
        return self._actors[slot]

    def release(self, slot: SlotId) -> None:
        """Drop the actor of a slot unless it is needed."""
        if not self.of(slot).is_needed(self.clock.monotonic()):
            del self._actors[slot]

    def forget(self) -> None:
        """Drop the actors that are not needed any more, and the times of quiet chats."""
        now = self.clock.monotonic()
        self._actors = {id_: one for id_, one in self._actors.items() if one.is_needed(now)}
        self.changed_at = {chat: at for chat, at in self.changed_at.items() if now - at < EDIT_EVERY_S}

    async def ban(self, path: SendPath, refused: SendFailed) -> None:
        """Ban the scope of a refused optional change, also in the store. Logs a failure of the store."""
        if refused.outcome is SendOutcome.WAIT:
            try:
                await write_bans(self.key_value, self.limiter.apply_retry_after(path, refused), self.clock.now())
            except StoreError as error:
                self.log.error("a ban was not stored", error=str(error))


@dataclass(eq=False, slots=True, kw_only=True)
class MessageActor:
    """Holder of one slot's messages: the version shown, the edit under way, and the doubts that it left."""

    by: MessageActors
    grows: bool = False
    """True while live edits may change the version shown: until delivery has a newer one."""
    _slot: Slot | None = None
    """Version shown last, with its platform ids; None before the first."""
    _path: SendPath = _NOWHERE
    _delivers: int = 0
    """Attempts of delivery under way."""
    _edit: asyncio.Event | None = None
    """Edit under way, set when it ended; None when the next one may begin."""
    _sends_last: bool = False
    """True when this node's delivery took the slot after the last edit began. It sends after that edit has ended."""
    _unanswered_at: float = -math.inf
    """Time at which an edit ended without an answer."""
    _quiet_until: float = -math.inf
    """Earliest time of the last words after an edit, or after the beginning of an answer."""

    def is_needed(self, now: float) -> bool:
        """Return whether anything changes the messages, or did so lately."""
        busy = self.grows or self._delivers > 0 or self._edit is not None
        return busy or now < self._quiet_until or now - self._unanswered_at < IN_DOUBT_S

    # --- versions that must arrive ------------------------------------------------------------

    async def deliver(self, slot: Slot) -> None:
        """Show a claimed version and record the outcome. Raises `StoreError` when that cannot be stored."""
        self._delivers += 1
        try:
            await _Attempt(by=self.by, actor=self, slot=slot, path=SendPath.to(slot.conversation, ())).run()
        finally:
            self._delivers -= 1
            self.by.release(slot.id)

    async def finish(self) -> float:
        """Begin no further edit. Return 0 when a newer version may be sent now.

        Otherwise return the seconds after which to ask again: an edit is under way, or one ended unanswered and may
        still take effect. Sent before that, the version would be overwritten and have to be sent again. The chat would
        flicker, and the repeat would have to be sent although its text is equal. The version also waits for the chat's
        rate limit after an edit, and where `spaces_edits` after the beginning, at most `EDIT_EVERY_S`.
        """
        self.grows, self._sends_last, retry_s = False, True, 0.0
        if self._edit is not None and not await is_set(self._edit, self.by.edit_patience_s):
            retry_s = RETRY_S
        left_s, self._quiet_until = self._quiet_until - self.by.clock.monotonic(), -math.inf
        if left_s > 0:
            await is_set(self.by.draining, left_s)
        return retry_s or max(0.0, SETTLED_AFTER_S - self._since_doubt_s())

    def give_back(self) -> None:
        """Note that the slot is in the store again, from where another machine may send it.

        Call after the write: earlier, an edit that ends in between would cause a second send.
        """
        self._sends_last = False

    def shown(self, slot: Slot, path: SendPath, message_ids: tuple[str, ...]) -> None:
        """Note a version that was shown. Call before the write to the store."""
        self._slot, self._path = replace(slot, message_ids=message_ids, sent_version=slot.version), path
        self.grows = self.by.goes_on is not None and self.by.goes_on(self, self._slot)
        if self.grows and slot.kind is SlotKind.ANSWER:
            self._quiet_until = self.by.clock.monotonic() + min(path.every_s(created=True), EDIT_EVERY_S)

    @property
    def in_doubt(self) -> bool:
        """Return whether an edit made here may still take effect, so that the slot has to be shown once more."""
        return self._since_doubt_s() < IN_DOUBT_S

    def _since_doubt_s(self) -> float:
        return self.by.clock.monotonic() - self._unanswered_at

    # --- text that may be lost ----------------------------------------------------------------

    def may_edit(self, now: float) -> bool:
        """Return whether an edit may begin now: none is under way, and the chat has been quiet for a second."""
        changed_at = self.by.changed_at.get(self._path.chat, -math.inf)
        return self.grows and self._edit is None and now - changed_at >= EDIT_EVERY_S

    def edit(self, text: str, group: asyncio.TaskGroup) -> bool:
        """Begin an edit to this text; call when `may_edit`. Return False when the rate limiter has no room for it."""
        slot, chat = self._slot, self._path.chat
        self.by.changed_at[chat] = self.by.clock.monotonic()
        if slot is None or not self.by.limiter.try_acquire(self._path):
            return False
        self.by.changed_at[chat] = math.inf  # until it is answered
        self._edit, self._sends_last = asyncio.Event(), False
        group.create_task(self._change(slot, text, self._edit), name=f"edit {slot.id}")
        return True

    async def _change(self, slot: Slot, text: str, ended: asyncio.Event) -> None:
        """Make one edit. Then check whether another machine sent a newer version, which it may have overwritten."""
        try:
            await self._show(RenderedSlot(slot=slot, text=text, partial=True), ended)
            if self._since_doubt_s() < SETTLED_AFTER_S:  # not answered: it may still take effect
                await is_set(self.by.draining, SETTLED_AFTER_S)
            for _ in range(STORE_RETRIES):
                if self._sends_last:
                    return
                try:
                    overwritten = await self.by.outbox.slot_overwritten(slot.id, slot.version)
                except StoreError as error:
                    self.by.log.error("an edit may have overwritten a newer one", slot=slot.id, error=str(error))
                    await asyncio.sleep(RETRY_S)
                else:
                    self.grows = self.grows and not overwritten
                    return
        finally:
            if self._edit is ended:
                self._edit = None

    async def _show(self, rendered: RenderedSlot, ended: asyncio.Event) -> None:
        slot, by, answered = rendered.slot, self.by, False
        try:
            async with asyncio.timeout(by.send_within_s):
                await by.channels[slot.conversation.channel].show(rendered, _ignore_parts)
            answered = True
        except TimeoutError:
            pass  # the next one shows more
        except SendFailed as failed:
            answered = failed.outcome in (SendOutcome.DEAD, SendOutcome.WAIT) and not failed.unsettled
            self.grows = self.grows and failed.outcome is not SendOutcome.DEAD
            await by.ban(self._path, failed)
        except Exception:
            by.log.exception("a channel broke while streaming", slot=slot.id)
            self.grows = False
        finally:
            now = by.changed_at[self._path.chat] = by.clock.monotonic()  # it may have left late
            self._quiet_until = now + min(self._path.every_s(), EDIT_EVERY_S)
            if not answered:
                self._edit, self._unanswered_at = None, now
            ended.set()


class _RateLimited(SendFailed):
    """Held back by our own rate limit; nothing was sent."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(outcome=SendOutcome.WAIT, creating=False)
        self.delay_s = delay_s


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One attempt to show a claimed version; the channel's `Progress`. Each part waits for the rate limiter."""

    by: MessageActors
    actor: MessageActor
    slot: Slot
    path: SendPath
    _waited_s: float = 0.0
    _parts: int = 0
    """Parts shown so far. After one more, a doubt is about the next part."""

    async def run(self) -> None:
        """Show the version and record the outcome. Raises `StoreError` when that cannot be stored."""
        slot, channel = self.slot, self.by.channels[self.slot.conversation.channel]
        try:
            self.path = SendPath.to(slot.conversation, channel.rate_limits(slot.conversation))
            if unsettled_s := await self.actor.finish():
                await self._retry(unsettled_s, counted=False)
                self.actor.give_back()
            else:
                await self._wait(PATIENCE_S)
                await self.by.points.hit("J16")
                await self._send(channel)
        except _RateLimited as limited:
            # A little early, since due slots are looked for only every second.
            await self._retry(max(limited.delay_s - LOOK_EVERY_S, 0), counted=False)
        except SendFailed as failed:
            await self._failed(failed)
        except StoreError:
            raise
        except Exception:
            self.by.log.exception("a channel broke while sending", slot=slot.id)
            await self._failed(self._doubt("The channel failed."))

    async def __call__(self, message_ids: tuple[str, ...]) -> None:
        """Store the parts shown so far, then wait to send the next one. Raises `SendFailed` if that takes too long."""
        _check_ids(message_ids)
        self._parts += 1
        await self._record(lambda: self.by.outbox.slot_part(self.slot, message_ids))
        await self._wait(PARTS_WITHIN_S - self._waited_s)

    async def _wait(self, patience_s: float) -> None:
        """Wait for the rate limiter to allow one message. Raises `SendFailed` if that would take too long."""
        began = self.by.clock.monotonic()
        priority = SendPriority.of(self.slot.kind)
        delay_s = await self.by.limiter.acquire(self.path, priority, patience_s=patience_s)
        self._waited_s += self.by.clock.monotonic() - began
        if delay_s:
            raise _RateLimited(delay_s)

    async def _send(self, channel: Channel) -> None:
        slot, by = self.slot, self.by
        rendered = await self._render()
        within_s = by.send_within_s + file_may_take_s(_length(rendered.path))
        try:
            async with asyncio.timeout(within_s):
                message_ids = await channel.show(rendered, self)
        except TimeoutError as error:
            raise self._doubt(f"No answer within {within_s:.0f} s.") from error
        _check_ids(message_ids)
        self.actor.shown(slot, self.path, message_ids)
        await by.points.hit("J18")
        unsettled = self.actor.in_doubt
        await self._record(lambda: by.outbox.slot_sent(slot, message_ids, unsettled=unsettled))
        await by.points.hit("J19")
        if slot.kind is SlotKind.CARD:
            await by.points.hit("J9")
        by.metrics.sends.labels(slot.conversation.channel, "sent").inc()
        if slot.kind is SlotKind.ANSWER and (marking := by.marking.get(slot.conversation.channel)):
            await self._take_marks_off(marking)

    async def _take_marks_off(self, channel: MarksReceipt) -> None:
        """Pass to a channel the messages that are answered now. The store knows them: marks outlive a restart."""
        if self.slot.turn is None:
            return
        try:
            view = await self.by.queries.turn(self.slot.turn)
            if view.turn.state in ENDED:
                channel.answered([one.message for one in view.inputs])
            if view.turn.state is TurnState.STOPPED and view.turn.stopped_text != INTERRUPTED_TEXT:
                channel.stopped(view.turn.conversation)
        except (NotFound, StoreError) as error:
            self.by.log.info("marks of receipt stay", slot=self.slot.id, error=str(error))
        except Exception:  # the answer is shown: it must not be sent again for this (house rule 9)
            self.by.log.exception("a channel broke while unmarking", slot=self.slot.id)

    async def _render(self) -> RenderedSlot:
        slot, by = self.slot, self.by
        waits = [await by.queries.wait(wait) for wait in slot.waits]
        asked = next((wait for wait in waits if wait is not None and wait.kind is WaitKind.QUESTION), None)
        question = None if asked is None else by.approvals.question(asked, slot.id)
        rows = tuple(by.approvals.row(wait, slot.id) for wait in waits if wait is not None and wait.approval)
        path = await self._file()
        return RenderedSlot(slot=slot, text=by.redactor.text(slot.text), rows=rows, question=question, path=path)

    async def _file(self) -> Path | None:
        """Return the slot's file. Raises `SendFailed` while it is on a node that cannot be asked."""
        slot = self.slot
        if slot.file is None or slot.session is None:
            return None
        try:
            return await self.by.find(slot.session, slot.file.file)
        except FileAway as away:
            raise SendFailed(str(away), outcome=SendOutcome.RETRY) from away

    # --- outcomes -----------------------------------------------------------------------------

    async def _record(self, write: Callable[[], Awaitable[object]]) -> None:
        """Store the outcome. A send cannot be undone, so a failing write is retried for 30 s.

        A store that lost the slot has nowhere to store it. Raises `StoreError` after the 30 s.
        """
        for left in range(STORE_RETRIES, -1, -1):
            try:
                await write()
            except NotFound as error:
                self.by.log.error("the store lost a message that was being sent", slot=self.slot.id, error=str(error))
            except StoreError as error:
                if not left:
                    raise
                self.by.log.error("outcome of a send not stored yet", slot=self.slot.id, error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            return

    def _doubt(self, why: str) -> SendFailed:
        """Return an uncertain failure: of a create, unless this was an edit that had added no message yet."""
        creating = not self.slot.message_ids or self._parts > 0
        return SendFailed(why, outcome=SendOutcome.UNCERTAIN, creating=creating)

    async def _failed(self, failed: SendFailed) -> None:
        """Record a failure by its outcome: retry, wait, uncertain or dead."""
        slot, outcome = self.slot, failed.outcome
        self.by.metrics.sends.labels(slot.conversation.channel, outcome.value).inc()
        self.by.log.warning("not sent", slot=slot.id, outcome=outcome.value, error=str(failed), attempt=slot.attempts)
        if outcome is SendOutcome.WAIT:
            await self._banned(failed)
            return
        uncertain = outcome is SendOutcome.UNCERTAIN and failed.creating
        second = uncertain and slot.uncertain and not self._parts and not failed.answered
        decision = next_try(slot.attempts, Failure(retryable=True), secrets.randbelow(1000) / 1000, SEND_LIMITS)
        if outcome is SendOutcome.DEAD or (second and slot.kind is not SlotKind.CARD) or isinstance(decision, GiveUp):
            # An uncertain create is repeated once, marked; a second one without an answer is not worth a third copy.
            await self._give_up(failed.message)
            return
        unsettled = outcome is SendOutcome.UNCERTAIN and not failed.creating
        await self._retry(decision.delay_s, uncertain=uncertain, unsettled=unsettled)

    async def _banned(self, refused: SendFailed) -> None:
        """Ban the refused scope, also in the store, and retry when the ban ends. Does not count as an attempt."""
        now = self.by.clock.now()
        bans = self.by.limiter.apply_retry_after(self.path, refused)
        await self._record(lambda: write_bans(self.by.key_value, bans, now))
        delay_s = (max(bans.values()) - now).total_seconds()
        await self._retry(delay_s, unsettled=refused.unsettled, counted=False)

    async def _retry(
        self, delay_s: float, *, uncertain: bool = False, unsettled: bool = False, counted: bool = True
    ) -> None:
        retry, delay = self.by.outbox.slot_retry, timedelta(seconds=min(delay_s, LONGEST_DELAY_S))
        await self._record(lambda: retry(self.slot, delay, uncertain=uncertain, unsettled=unsettled, counted=counted))

    async def _give_up(self, why: str) -> None:
        """Record a slot as undeliverable and notify the owners, once an hour for a chat with all its topics.

        No notice for a stranger's refusal, for such a notice itself (it could repeat for ever), or for a status line
        (nothing is lost). A slot that was only to be shown once more counts as sent.
        """
        slot, outbox = self.slot, self.by.outbox
        if slot.stands:
            await self._record(lambda: outbox.slot_sent(slot, slot.message_ids))
            return
        await self._record(lambda: outbox.slot_dead(slot, why))
        if slot.session is None or slot.kind is SlotKind.STATUS:
            return
        text = self.by.redactor.text(_not_shown(slot, why))
        await self._record(lambda: outbox.tell_owners(f"dead/{self.path.chat}", text, self.by.owners))


def _check_ids(given: object) -> None:
    """Raise a final `SendFailed` for what names no messages: a channel of another version gives that each time."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        what = f"{type(given).__name__} instead of a tuple of message ids"
    elif not all(isinstance(one, str) and one and "," not in one for one in cast("Sequence[object]", given)):
        what = "message id that is no text, is empty or has a comma"
    else:
        return
    why = f"The channel gave a {what}. Install a version of it that fits."
    raise SendFailed(why, outcome=SendOutcome.DEAD)


async def _ignore_parts(message_ids: tuple[str, ...]) -> None:
    """Ignore the ids of parts; a `Progress`. A draft's messages are those that delivery made."""


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
