"""The world outside of the machines of a schedule: a platform with its moods, people who write and press, a channel.

A request to the platform takes effect even when the machine that sent it has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import TypeAlias

from gateway.domain.ids import Principal, SlotId, WaitId
from gateway.domain.messages import Attachment, Conversation, Inbound, Press
from gateway.domain.slots import RateLimit, RenderedSlot, SlotKind
from gateway.domain.waits import Verb
from gateway.errors import SendFailed, SendOutcome, StoreError
from gateway.ports import Progress, Sink
from tests.support.fakes import BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT
from tests.support.schedules import PLACE, LoopClock, ScheduledLoop

Inbox: TypeAlias = "asyncio.Queue[Inbound | Press]"
OUTSIDE = "outside"
AGAIN_S = 4.0
"""Seconds after which the platform delivers once more what was not acknowledged."""
TAKES_EFFECT_WITHIN_S = 40.0
"""Longest time until a request that the platform took and did not answer has its effect."""
ANSWERED_WITHIN_S = 20.0
"""Channels wait no longer for an answer."""
PEOPLE = ((ANN_TELEGRAM, CHAT), (CLEO_TELEGRAM, CLEO_CHAT), (ANN_TELEGRAM, GROUP), (BOB, BOB_CHAT), (BOB, GROUP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message appeared, or changed."""

    at: float
    id: str
    slot: SlotId
    version: int
    text: str
    new: bool
    marked: bool
    """True if it is marked as a possible repetition."""
    partial: bool
    by: str
    """The life of a machine that asked for it."""
    doubtful: bool = False
    """True if its sender got no answer."""
    says: str = ""
    """All that it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moods:
    """Rates of each disturbance of the platform, per thousand requests."""

    slow: int = 0
    refuses: int = 0
    waits: int = 0
    kills: int = 0
    """It will never show this."""
    silent: int = 0
    """It does it or not, and does not answer."""
    hangs: int = 0
    """It does it late or not, and leaves the line open."""


@dataclass(slots=True, kw_only=True)
class Platform:
    """The other side of every channel. Events are delivered until somebody acknowledges them."""

    loop: ScheduledLoop
    dice: Random
    clock: LoopClock
    moods: Moods
    inboxes: dict[str, Inbox] = field(default_factory=lambda: dict[str, Inbox]())
    """Of the machines that are up."""
    unread: dict[str, Inbound | Press] = field(default_factory=dict[str, Inbound | Press])
    taken: list[Inbound | Press] = field(default_factory=list[Inbound | Press])
    """Acknowledged events."""
    shown: list[Shown] = field(default_factory=list[Shown])
    """In the order in which it came to be seen."""
    in_doubt_until: float = 0.0
    """From then on nobody waits any more for a request whose end nobody is told."""
    asked: set[WaitId] = field(default_factory=set[WaitId])
    decide: Callable[[RenderedSlot, WaitId], None] = lambda _showing, _wait: None
    """Somebody sees the buttons of an approval for the first time."""

    # --- events -------------------------------------------------------------------------------

    def push(self, event: Inbound | Press) -> None:
        """Something happened."""
        self.unread[event.event_key] = event
        self._deliver(event)

    def _deliver(self, event: Inbound | Press) -> None:
        if event.event_key not in self.unread:
            return
        inboxes = [self.inboxes[name] for name in sorted(self.inboxes)]
        one = self.dice.randrange(len(inboxes)) if inboxes else 0
        for inbox in inboxes if self.dice.random() < 0.15 else inboxes[one : one + 1]:
            inbox.put_nowait(event)
        self.loop.at(OUTSIDE, AGAIN_S, lambda: self._deliver(event))

    def acknowledge(self, event: Inbound | Press) -> None:
        """Somebody has it."""
        if self.unread.pop(event.event_key, None) is not None:
            self.taken.append(event)

    # --- messages -----------------------------------------------------------------------------

    def request(self, showing: RenderedSlot, id: str) -> asyncio.Future[str]:
        """Take a request to show something; it takes effect here, whether or not anybody waits for the answer."""
        answer: asyncio.Future[str] = self.loop.create_future()
        by = PLACE.get()
        delay_s = self.dice.uniform(0, 20 if self._happens(self.moods.slow) else 0.2)
        failure, hangs = self._failure(showing), self._happens(self.moods.hangs)
        if failure is not None:
            self._answer(delay_s, answer, failure)
        elif hangs or self._happens(self.moods.silent):
            self._leave_in_doubt(showing, id, answer, hangs=hangs)
        else:
            self.loop.at(OUTSIDE, delay_s, lambda: self._take_effect(showing, id, answer, by))
        return answer

    def _happens(self, in_a_thousand: int) -> bool:
        return self.dice.randrange(1000) < in_a_thousand

    def _failure(self, showing: RenderedSlot) -> SendFailed | None:
        if self._happens(self.moods.refuses):
            return SendFailed("Not now.", outcome=SendOutcome.RETRY, creating=False)
        if self._happens(self.moods.waits):
            until = self.clock.now() + timedelta(seconds=self.dice.uniform(1, 8))
            return SendFailed("Wait.", outcome=SendOutcome.WAIT, until=until, creating=False)
        if self._happens(self.moods.kills) and showing.slot.kind is not SlotKind.CARD:
            return SendFailed("Never.", outcome=SendOutcome.DEAD, creating=False)
        return None

    def _leave_in_doubt(self, showing: RenderedSlot, id: str, answer: asyncio.Future[str], *, hangs: bool) -> None:
        by = PLACE.get()
        self.in_doubt_until = max(self.in_doubt_until, self.loop.time() + TAKES_EFFECT_WITHIN_S)
        late = hangs or self.dice.random() < 0.3
        effect_s = self.dice.uniform(0, TAKES_EFFECT_WITHIN_S if late else 0.2)
        if self.dice.random() < 0.5:
            self.loop.at(OUTSIDE, effect_s, lambda: self._take_effect(showing, id, None, by))
        given_up_s = ANSWERED_WITHIN_S if hangs else self.dice.uniform(0, 0.4)
        doubt = SendFailed("No answer.", outcome=SendOutcome.UNCERTAIN, creating=not id)
        self._answer(given_up_s, answer, doubt)

    def _answer(self, delay_s: float, answer: asyncio.Future[str], failure: SendFailed) -> None:
        def tell() -> None:
            if not answer.done():
                answer.set_exception(failure)

        self.loop.at(OUTSIDE, delay_s, tell)

    def _take_effect(self, showing: RenderedSlot, id: str, answer: asyncio.Future[str] | None, by: str) -> None:
        slot, new = showing.slot, not id
        id = id or f"m{1 + sum(one.new for one in self.shown)}"
        self.shown.append(
            Shown(
                at=self.loop.time(),
                id=id,
                slot=slot.id,
                version=slot.version,
                text=showing.text,
                new=new,
                marked=slot.uncertain,
                partial=showing.partial,
                by=by,
                doubtful=answer is None,
                says=says(showing),
            )
        )
        for row in showing.rows:
            if row.buttons and row.wait.id not in self.asked:
                self.asked.add(row.wait.id)
                self.decide(showing, row.wait.id)
        if answer is not None:
            delay_s = self.dice.uniform(0, 0.2)
            self.loop.at(OUTSIDE, delay_s, lambda: None if answer.done() else answer.set_result(id))

    def says_already(self, showing: RenderedSlot, id: str) -> None:
        """Nothing is asked for, since a message is taken to show this: if it does, it shows the version too."""
        last = [one for one in self.shown if one.id == id][-1]
        if last.says == says(showing):
            self.shown.append(replace(last, version=showing.slot.version, partial=showing.partial, new=False))


def says(showing: RenderedSlot) -> str:
    """All that is to be seen of it."""
    return f"{showing.text} {showing.rows}"


@dataclass(slots=True)
class PlatformChannel:
    """`ports.Channel` of one machine."""

    platform: Platform
    machine: str
    name: str = "telegram"
    streams: bool = True
    _known: dict[str, str] = field(default_factory=dict[str, str])
    """Last text shown in each message, as far as it was answered: the same text is not sent twice."""

    async def run(self, sink: Sink) -> None:
        """Take what the platform delivers to this machine, each event beside the others."""
        inbox = self.platform.inboxes[self.machine] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    event = await inbox.get()
                    group.create_task(self._take(event, sink), name=f"event {event.event_key}")
        finally:
            if self.platform.inboxes.get(self.machine) is inbox:
                del self.platform.inboxes[self.machine]

    async def _take(self, event: Inbound | Press, sink: Sink) -> None:
        try:
            await (sink.message(event) if isinstance(event, Inbound) else sink.press(event))
        except StoreError:
            return  # it comes again
        self.platform.acknowledge(event)

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Show something new, or change what is there."""
        id = next(iter(showing.slot.message_ids), "")
        await asyncio.sleep(self.platform.dice.choice((0, 0, 0.01)))
        if not showing.slot.stands and id and self._known.get(id) == says(showing):
            self.platform.says_already(showing, id)
            return (id,)
        self._known.pop(id, None)
        shown = await self.platform.request(showing, id)
        self._known[shown] = says(showing)
        return (shown,)

    async def typing(self, conversation: Conversation) -> None:
        """Nobody looks."""

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Nobody sends files."""

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """No limits."""
        return ()

    def trouble(self) -> str:
        """None."""
        return ""


@dataclass(slots=True, kw_only=True)
class Crowd:
    """The people who write and press."""

    platform: Platform
    dice: Random
    expiry_s: float
    said: int = 0
    pressed: int = 0
    behind: Callable[[Callable[[], None]], None] = lambda happen: happen()
    """Let something happen right behind a transition."""

    def say(self, text: str = "", who: int | None = None) -> None:
        """Somebody writes; without a text, a message of its own number."""
        self.said += 1
        principal, where = PEOPLE[self.dice.randrange(len(PEOPLE)) if who is None else who]
        message = Inbound(
            event_key=f"e{self.said}",
            conversation=where,
            principal=principal,
            name=str(principal),
            direct=where != GROUP,
            addressed=True,
            text=text or f"m{self.said}",
            sent_at=self.platform.clock.now(),
        )
        self.platform.push(message)

    def decide(self, showing: RenderedSlot, wait: WaitId) -> None:
        """Somebody sees an approval: presses once, several times, near its end, or never."""
        dice = self.dice
        if dice.random() < 0.12:
            return
        [row] = [row for row in showing.rows if row.wait.id == wait]
        owner = Principal(f"telegram:{showing.slot.conversation.chat}")
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            verb = dice.choice((Verb.ONCE, Verb.ONCE, Verb.ONCE, Verb.DENY, Verb.DENY_REASON))
            self.pressed += 1
            press = Press(
                event_key=f"p{self.pressed}",
                conversation=showing.slot.conversation,
                principal=owner if dice.random() < 0.9 else BOB,
                handle=next(button.handle for button in row.buttons if button.verb is verb),
                reason="No." if verb is Verb.DENY_REASON else "",
            )
            self._press(press)

    def _press(self, press: Press) -> None:
        """At any time, with others at once, near the end, or right behind something that machines do."""
        dice = self.dice

        def happen() -> None:
            self.platform.push(press)

        match dice.randrange(10):
            case 0:
                self.platform.loop.at(OUTSIDE, dice.uniform(self.expiry_s - 2, self.expiry_s + 1), happen)
            case 1 | 2:
                self.platform.loop.at(OUTSIDE, 0.5, happen)
            case 3 | 4:
                self.platform.loop.at(OUTSIDE, dice.uniform(0, 4), happen)
            case _:
                self.behind(happen)
