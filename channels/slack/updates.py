"""Delivery of Slack's payloads to the gateway's sink: in order per channel, channels in parallel.

Called through `bolt_dispatch`. A payload is acknowledged when it is stored. An unstored one is redelivered, and its
event key makes redelivery harmless. Later payloads of the channel may then be stored before it: Slack redelivers after
a minute, and the next message does not wait that long.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from channels._shared.fields import object_of
from channels._shared.poison import POISON_KEPT, Poison
from channels.slack import ids, inbound
from channels.slack.blocks import reason_form
from channels.slack.inbound import (
    About,
    AccessEnded,
    Asking,
    Identity,
    Looked,
    Meaning,
    Opened,
    PersonFacts,
    SlackPress,
    Stopping,
)
from channels.slack.indicators import Indicators
from channels.slack.manifest import PROMPTS
from channels.slack.ordered_queue import OrderedQueue
from channels.slack.people import SlackDirectory
from channels.slack.threads import Threads
from channels.slack.webhook import SlackAck
from gateway.domain.messages import Conversation, Inbound, Refused
from gateway.domain.routes import Accepted
from gateway.domain.text import split_command
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.errors import NotKnownYet, StoreError
from gateway.ports import Clock, Sink

UNTITLED_KEPT = 200
"""Untitled threads of the assistant view remembered, at most."""
TOLD = frozenset(
    {
        PressResult.NOT_ALLOWED,
        PressResult.NOT_VALID,
        PressResult.EXPIRED,
        PressResult.ALREADY,
        PressResult.COUNTED,
        PressResult.LATE,
    }
)
"""Results sent to the person who pressed; decisions are shown on the card."""
STOPS = frozenset({"stop", "new"})
"""Commands after which no message of their conversation is worked on."""
NO_FORM = "The form could not be opened. Press the button again."


class Later(Protocol):
    """Scheduler of work outside the acknowledgement; returns at once."""

    def __call__(self, what: Coroutine[Any, Any, object], name: str) -> None:
        """Start the work."""
        ...


@dataclass(slots=True, kw_only=True)
class SlackUpdates:
    """Processor of one account's payloads."""

    me: Identity
    sink: Sink
    clock: Clock
    people: SlackDirectory
    threads: Threads
    indicators: Indicators
    commands: Collection[str]
    later: Later
    ended: Callable[[str], None]
    """Callback for a removed app or a revoked token."""
    broken: Callable[[], None]
    """Callback for a payload that was put aside."""
    _queues: OrderedQueue = field(default_factory=OrderedQueue)
    _poison: Poison = field(init=False)
    _untitled: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict[tuple[str, str], None])
    """Threads of the assistant view without a message yet."""

    def __post_init__(self) -> None:
        """Create the quarantine."""
        self._poison = Poison(channel=ids.CHANNEL, account=self.me.account, sink=self.sink, broken=self.broken)

    async def take(self, payload: object) -> SlackAck:
        """Store one payload; return after the commit. Never raises `StoreError`."""
        if _is_echo(payload, self.me):
            return SlackAck(stored=True)
        who = inbound.about(payload)
        if who is None:
            return SlackAck(stored=await self._stored(payload, who))
        async with self._queues.turn(who.channel, who.at):
            return SlackAck(stored=await self._stored(payload, who))

    async def _stored(self, payload: object, who: About | None) -> bool:
        log = logging.getLogger(__name__)
        try:
            known = PersonFacts() if who is None else await self._known(who)
            if who is not None and _is_elsewhere(who) and not known.direct:
                # Otherwise answers, and later cards, would go to a conversation of two people without the bot. Slack
                # tells the person that the command failed.
                log.warning("a command of %s is refused: Slack names no direct conversation with them", who.user)
                return False
            await self._hand_over(inbound.read(payload, self.me, self.clock.now(), known))
        except StoreError as error:
            log.warning("a payload for %s is not stored yet: %s", self.me.account, error)
            if who is not None and isinstance(error, NotKnownYet):
                self.people.ask_anew(who.user)
            return False
        except Exception as error:  # the failure becomes a row, so that it is not lost (house rule 9)
            log.exception("a payload for %s could not be taken", self.me.account)
            return await self._put_aside(payload, error)
        return True

    async def _known(self, who: About) -> PersonFacts:
        standing = await self.people.standing(self.me.team, who.user)
        takes_part = bool(who.thread) and await self.threads.takes_part(who.channel, who.thread)
        return PersonFacts(
            member=standing.member,
            certain=standing.certain,
            name=standing.name,
            takes_part=takes_part,
            direct=await self.people.direct(who.user) if _is_elsewhere(who) else "",
            commands=self.commands,
        )

    async def _hand_over(self, meaning: Meaning) -> None:
        match meaning:
            case Inbound():
                accepted = await self.sink.message(meaning)
                await self._taken(meaning, accepted)
            case SlackPress():
                pressed = await self.sink.press(meaning.press)
                self._tell(meaning, pressed.result)
            case Asking():
                # The gateway first checks that this person may deny it at all.
                pressed = await self.sink.press(replace(meaning.press, can_ask_reason=True))
                if pressed.result is PressResult.ASK_REASON:
                    self.later(self._ask(meaning), "form")
                else:
                    self._tell(meaning, pressed.result)
            case Stopping():
                await self.sink.message(meaning.message)
                place = meaning.message.conversation
                self.later(self.indicators.stopped(place.chat, place.thread), "stopped")
            case Opened():
                self._opened(meaning)
            case Looked():
                pass
            case AccessEnded():
                self.ended(meaning.why)
            case Refused():
                await self.sink.refuse(replace(meaning, raw=meaning.raw[:POISON_KEPT]))

    # --- after storing ------------------------------------------------------------------------------

    async def _taken(self, message: Inbound, accepted: Accepted | None) -> None:
        """Join the message's thread, before the acknowledgement, and show that the message was accepted."""
        place = message.conversation
        if accepted is None and _stops(message.text):
            self.stopped(place)
        if accepted is None or message.edits:
            return
        if message.addressed and place.thread and not message.direct:
            await self.threads.join(place.chat, place.thread)
        if accepted.duplicate:
            return
        if message.direct and place.thread:
            self.later(self.indicators.working(place.chat, place.thread), "status")
            if (place.chat, place.thread) in self._untitled:
                del self._untitled[place.chat, place.thread]
                self.later(self.indicators.title(place.chat, place.thread, message.text), "title")
        elif not accepted.answers and (ts := _marked(message)):
            self.later(self.indicators.seen(place.chat, ts, place.thread), "reaction")

    def answered(self, message: Inbound) -> None:
        """Take the mark off a message that is answered."""
        if ts := _marked(message):
            self.later(self.indicators.unmark(message.conversation.chat, ts), "reaction")

    def stopped(self, place: Conversation) -> None:
        """Take off the marks of a channel or thread in which all was stopped."""
        self.later(self.indicators.unmark_all(place.chat, place.thread), "reactions")

    def _opened(self, opened: Opened) -> None:
        channel, thread = opened.channel, opened.thread
        if thread:
            self._untitled[channel, thread] = None
            while len(self._untitled) > UNTITLED_KEPT:
                self._untitled.popitem(last=False)
        self.later(self.indicators.suggest(channel, thread, PROMPTS), "prompts")

    def _tell(self, pressing: SlackPress | Asking, result: PressResult) -> None:
        if result in TOLD:
            self._say(pressing, PRESSED_TEXT[result])

    def _say(self, pressing: SlackPress | Asking, text: str) -> None:
        thread = pressing.press.conversation.thread
        self.later(self.indicators.tell(pressing.channel, pressing.user, text, thread), "answer")

    async def _ask(self, asking: Asking) -> None:
        if not await self.indicators.open_view(asking.trigger, reason_form(asking.press)):
            self._say(asking, NO_FORM)

    # --- failures -----------------------------------------------------------------------------------

    async def _put_aside(self, payload: object, error: Exception) -> bool:
        """Count a failed payload. False: Slack shall redeliver it. True: it is stored as poison."""
        raw = inbound.written(payload, most=None)
        key = f"b{hashlib.sha256(raw.encode()).hexdigest()[:32]}"
        return await self._poison.put_aside(key, raw, error)


class Errands:
    """`Later` on a task group."""

    def __init__(self, account: str, group: asyncio.TaskGroup) -> None:
        """Take the task group."""
        self._account = account
        self._group = group

    def __call__(self, what: Coroutine[Any, Any, object], name: str) -> None:
        """Start the work, which must not raise."""
        self._group.create_task(what, name=f"slack {self._account} {name}")


def _is_elsewhere(who: About) -> bool:
    """Return True for a command given in a direct conversation, which may be one without the bot."""
    return who.command and who.channel.startswith("D")


def _is_echo(payload: object, me: Identity) -> bool:
    """Return True for an event about the bot's own message. Otherwise a streamed answer would add a row a second."""
    event = object_of(object_of(payload).get("event"))
    if event.get("type") != "message":
        return False
    said = object_of(event.get("message")) or object_of(event.get("previous_message")) or event
    return said.get("user") == me.user


def _stops(text: str) -> bool:
    """Return True for a command that stops all work in its conversation."""
    command = split_command(text)
    return command is not None and command[0] in STOPS


def _marked(message: Inbound) -> str:
    """Return the timestamp of a message that is marked while it is worked on.

    Empty for a command, which has none, for an edit, and where a status shows the work.
    """
    has_status = message.direct and message.conversation.thread
    return "" if message.edits or has_status else ids.message_of(message.event_key)
