"""The way in of what Slack tells: each channel's in order, channels side by side, into the gateway's sink.

A payload is acknowledged when it is stored. One that is not comes again, and is known by its key if it was stored after
all, so a repetition is harmless. What follows it in its channel may be stored before it then: Slack says it again after
a minute, and nobody's next word is held back as long as that.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from channels._shared.poison import POISON_KEPT, Poison
from channels.slack import ids, inbound
from channels.slack.blocks import reason_form
from channels.slack.inbound import (
    About,
    AccessEnded,
    Asking,
    Identity,
    Known,
    Looked,
    Meaning,
    Opened,
    SlackPress,
    Stopping,
)
from channels.slack.manifest import PROMPTS
from channels.slack.ordered_queue import OrderedQueue
from channels.slack.people import SlackDirectory
from channels.slack.presence import Presence
from channels.slack.threads import Threads
from channels.slack.web import SlackAck
from gateway.domain.messages import Inbound, Refused
from gateway.domain.routes import Accepted
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.errors import NotKnownYet, StoreError
from gateway.ports import Clock, Sink

UNTITLED_KEPT = 200
TOLD = frozenset({PressResult.NOT_ALLOWED, PressResult.NOT_VALID, PressResult.EXPIRED, PressResult.ALREADY})
"""What is said to whoever pressed; what was decided is on the card."""
NO_FORM = "The form could not be opened. Press the button again."


class Later(Protocol):
    """Does something beside the acknowledgement; returns at once."""

    def __call__(self, what: Coroutine[Any, Any, object], name: str) -> None:
        """Begin it."""
        ...


@dataclass(slots=True, kw_only=True)
class SlackUpdates:
    """Takes the payloads of one account."""

    me: Identity
    sink: Sink
    clock: Clock
    people: SlackDirectory
    threads: Threads
    courtesies: Presence
    commands: Collection[str]
    later: Later
    ended: Callable[[str], None]
    """Told when the app was removed, or its token revoked."""
    broken: Callable[[], None]
    """Told of a payload that was put aside."""
    _lanes: OrderedQueue = field(default_factory=OrderedQueue)
    _poison: Poison = field(init=False)
    _untitled: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict[tuple[str, str], None])
    """Threads of the assistant view in which nothing was said yet."""

    def __post_init__(self) -> None:
        """Begin with nothing broken."""
        self._poison = Poison(channel=ids.CHANNEL, account=self.me.account, sink=self.sink, broken=self.broken)

    async def take(self, payload: object) -> SlackAck:
        """Store one payload; return after the commit. Never raises for a store."""
        if _is_echo(payload, self.me):
            return SlackAck(stored=True)
        who = inbound.about(payload)
        if who is None:
            return SlackAck(stored=await self._stored(payload, who))
        async with self._lanes.turn(who.channel, who.at):
            return SlackAck(stored=await self._stored(payload, who))

    async def _stored(self, payload: object, who: About | None) -> bool:
        log = logging.getLogger(__name__)
        try:
            known = Known() if who is None else await self._known(who)
            if who is not None and _is_elsewhere(who) and not known.direct:
                # Taken for where it was given, answers would go to two people between whom the bot is not, and later
                # cards too. Slack tells whoever gave it that it failed.
                log.warning("a command for %s is not taken: Slack does not say where its person is reached", who.user)
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

    async def _known(self, who: About) -> Known:
        standing = await self.people.standing(self.me.team, who.user)
        takes_part = bool(who.thread) and await self.threads.takes_part(who.channel, who.thread)
        return Known(
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
                # The gateway says whether this person may deny it at all, before anybody is asked to write.
                pressed = await self.sink.press(replace(meaning.press, can_ask_reason=True))
                if pressed.result is PressResult.ASK_REASON:
                    self.later(self._ask(meaning), "form")
                else:
                    self._tell(meaning, pressed.result)
            case Stopping():
                await self.sink.message(meaning.message)
                place = meaning.message.conversation
                self.later(self.courtesies.stopped(place.chat, place.thread), "stopped")
            case Opened():
                self._opened(meaning)
            case Looked():
                pass
            case AccessEnded():
                self.ended(meaning.why)
            case Refused():
                await self.sink.refuse(replace(meaning, raw=meaning.raw[:POISON_KEPT]))

    # --- what follows -------------------------------------------------------------------------------

    async def _taken(self, message: Inbound, accepted: Accepted | None) -> None:
        """Take part in the thread from now on, before it is acknowledged; show that it was taken."""
        place = message.conversation
        if accepted is None or message.edits:
            return
        if message.addressed and place.thread and not message.direct:
            await self.threads.join(place.chat, place.thread)
        if accepted.duplicate:
            return
        if message.direct and place.thread:
            self.later(self.courtesies.working(place.chat, place.thread), "status")
            if (place.chat, place.thread) in self._untitled:
                del self._untitled[place.chat, place.thread]
                self.later(self.courtesies.title(place.chat, place.thread, message.text), "title")
        elif ts := _ts(message):
            self.later(self.courtesies.seen(place.chat, ts), "reaction")

    def _opened(self, opened: Opened) -> None:
        channel, thread = opened.channel, opened.thread
        if thread:
            self._untitled[channel, thread] = None
            while len(self._untitled) > UNTITLED_KEPT:
                self._untitled.popitem(last=False)
        self.later(self.courtesies.suggest(channel, thread, PROMPTS), "prompts")

    def _tell(self, pressing: SlackPress | Asking, result: PressResult) -> None:
        if result in TOLD:
            self._say(pressing, PRESSED_TEXT[result])

    def _say(self, pressing: SlackPress | Asking, text: str) -> None:
        thread = pressing.press.conversation.thread
        self.later(self.courtesies.tell(pressing.channel, pressing.user, text, thread), "answer")

    async def _ask(self, asking: Asking) -> None:
        if not await self.courtesies.open_view(asking.trigger, reason_form(asking.press)):
            self._say(asking, NO_FORM)

    # --- what breaks --------------------------------------------------------------------------------

    async def _put_aside(self, payload: object, error: Exception) -> bool:
        """Count a payload that breaks us. False: it shall come again. True: it is kept as poison, with what it was."""
        raw = inbound.written(payload, most=None)
        key = f"b{hashlib.sha256(raw.encode()).hexdigest()[:32]}"
        return await self._poison.put_aside(key, raw, error)


class Errands:
    """`Later` in a task group."""

    def __init__(self, account: str, group: asyncio.TaskGroup) -> None:
        """Take the group that the tasks belong to."""
        self._account = account
        self._group = group

    def __call__(self, what: Coroutine[Any, Any, object], name: str) -> None:
        """Begin it. It must not fail."""
        self._group.create_task(what, name=f"slack {self._account} {name}")


def _is_elsewhere(who: About) -> bool:
    """Whether a command was given in a conversation of people, which need not be the bot's own with one of them."""
    return who.command and who.channel.startswith("D")


def _is_echo(payload: object, me: Identity) -> bool:
    """Whether Slack tells us of a message of our own. An answer that streams would else make a row a second."""
    event = _object(_object(payload).get("event"))
    if event.get("type") != "message":
        return False
    said = _object(event.get("message")) or _object(event.get("previous_message")) or event
    return said.get("user") == me.user


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _ts(message: Inbound) -> str:
    """The timestamp of a message; empty for a command, which is none."""
    ts = message.event_key.rpartition(f".{message.conversation.chat}.")[2]
    return "" if ts.startswith("c") else ts
