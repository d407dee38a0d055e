"""Rig of the channel contract: a real channel on the real engine, its platform, and people's actions and views there.

The suite in `tests.contract.channel` uses only these methods. A new channel adds a rig and nothing else.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import aiohttp

from agent_tools import ask_user, todo_write
from gateway.domain.ids import Principal, SlotId, WaitId, web_principal
from gateway.domain.messages import Conversation, Inbound, Press, Received, Refused
from gateway.domain.routes import Accepted, Drop, Route, WhileRunning
from gateway.domain.slots import RenderedSlot, Slot, SlotKind, SlotState
from gateway.domain.steps import Answer
from gateway.domain.tools import Artifact
from gateway.domain.turns import ENDED, TurnKind
from gateway.domain.waits import Pressed, PressVerdict, Wait
from gateway.errors import SendOutcome, StoreError
from gateway.policy.routing import AllowedPeople
from gateway.ports import Channel, Waiting
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import CLEO, FailingStore, FakeChannel, ToolBox, calls, in_background, until
from tests.support.makers import ANN, EPOCH
from tests.unit.gateway.toolcalls.subsession_rig import own_tool

WITHIN_S = 5.0
QUIET_S = 0.15
"""Seconds to watch when nothing shall happen: an in-process channel needs some milliseconds."""

T = TypeVar("T", bound=Callable[..., Any])


class Who(StrEnum):
    """The people of every test."""

    ANN = "ann"
    """An owner."""
    CLEO = "cleo"
    """Another owner."""
    BOB = "bob"
    """An allowed person."""
    EVE = "eve"
    """A stranger."""


class Can(StrEnum):
    """Optional platform features. A test that `needs` one is left out for a rig that lacks it."""

    OTHERS = "people who are not owners: friends and strangers"
    GROUPS = "conversations of several people"
    THREADS = "threads or topics within a conversation"
    NOBODY = "events of bots and of people who hide"
    SENDS = "messages that are sent and edited, and can fail"
    RENDERS = "turning text into links, pings and the like before it reaches the people"
    TYPING = "showing that somebody writes"
    LIMITS = "limits of how many messages are taken"
    ALONE = "being out of reach while the daemon is well"
    ACCOUNTS = "several bots on one platform"
    ELSEWHERE = "a card of one person's conversation that another one can press there"
    FILES = "files that come with messages, and files that are shown"


@dataclass(frozen=True, slots=True)
class Push:
    """A button."""

    label: str
    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One message as people see it."""

    id: str
    text: str
    """The text without markup."""
    buttons: tuple[Push, ...] = ()
    """Buttons, row by row."""
    file: str = ""
    """Content of the attached file."""
    active: tuple[str, ...] = ()
    """Parts that the platform acts on by itself: links, and people who are pinged."""

    @property
    def labels(self) -> list[str]:
        """Return the labels of the buttons."""
        return [push.label for push in self.buttons]

    def handle(self, label: str) -> str:
        """Return the handle of the first button with this label."""
        return next(push.handle for push in self.buttons if push.label.endswith(label))


def needs(*can: Can) -> Callable[[T], T]:
    """Leave a test out for a rig whose platform lacks a feature."""

    def mark(test: T) -> T:
        test.__dict__["needs"] = frozenset(can)
        return test

    return mark


def needed_by(test: object) -> frozenset[Can]:
    """Return the features that a test needs; none by default."""
    none: frozenset[Can] = frozenset()
    return getattr(test, "needs", none)


class WatchedStore(FailingStore):
    """Memory store whose intake fails or waits as the test sets, and which records refused events."""

    def __init__(self) -> None:
        """Begin healthy."""
        super().__init__(FakeClock())
        self.broken = False
        self.asked = 0
        """Number of attempts to store something."""
        self.open = asyncio.Event()
        self.open.set()
        self.refused: list[Refused] = []
        self.dropped: list[Inbound] = []

    async def _ingress(self) -> None:
        self.asked += 1
        await self.open.wait()
        if self.broken:
            raise StoreError("The store failed.")

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Fail, or accept."""
        await self._ingress()
        return await super().accept(route, message, kind, running=running, say_if_waiting=say_if_waiting)

    async def press(self, press: Press, wait: WaitId | None, verdict: PressVerdict) -> Pressed:
        """Fail, or store the press."""
        await self._ingress()
        return await super().press(press, wait, verdict)

    async def refuse(self, refused: Refused) -> bool:
        """Fail, or keep it."""
        await self._ingress()
        new = await super().refuse(refused)
        if new:
            self.refused.append(refused)
        return new

    async def drop(self, message: Inbound, drop: Drop, refusal: str) -> bool:
        """Fail, or keep it."""
        await self._ingress()
        new = await super().drop(message, drop, refusal)
        if new:
            self.dropped.append(message)
        return new


class Rig(ABC):
    """One running channel. Actions return when the platform has them, not when the daemon has."""

    name: ClassVar[str]
    cannot: ClassVar[Mapping[Can, str]]
    """Features that this platform lacks, each with the reason."""
    failures: ClassVar[Mapping[str, SendOutcome]]
    """Failures of a new message, by name, and what is known then. Empty without `SENDS`."""
    lost: ClassVar[str] = ""
    """The failure after which it is unknown whether the message exists: best one that shows it without an answer."""
    files: ClassVar[bool]
    """True: `say_with`, `forget_files` and `Seen.file` exist. No default: a rig with neither this nor a reason in
    `cannot` fails one test of the suite and runs none of those about files."""
    can_be_asked: ClassVar[bool] = False
    """True if the platform can list a conversation, so that nothing has to be shown twice."""
    unreadable: ClassVar[Sequence[object]]
    """Malformed or unknown events, as they come over the wire."""

    channel: Channel
    client: aiohttp.ClientSession
    task: asyncio.Task[None]
    """The channel's `run`."""

    def __init__(self, folder: Path) -> None:
        """Create the engine without running it."""
        self.store = WatchedStore()
        self.box = ToolBox()
        owners = {
            ANN: self.principals(Who.ANN) | {web_principal(ANN)},
            CLEO: self.principals(Who.CLEO) | {web_principal(CLEO)},
        }
        people = AllowedPeople(
            owners=owners,
            allowed=frozenset([self.principal(Who.BOB)]),
            chats=frozenset([self.allowed_chat] if Can.GROUPS not in self.cannot else []),
        )
        self.engine = Engine(
            folder,
            [*self.box.all, *map(own_tool, (ask_user, todo_write))],
            people=people,
            steer=False,
            store=self.store,
        )

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path) -> AsyncGenerator[Self]:
        """Run the channel, its platform, and everything between ingress and delivery."""
        rig = cls(folder)
        async with AsyncExitStack() as stack:
            rig.client = await stack.enter_async_context(aiohttp.ClientSession())
            await stack.enter_async_context(rig.platform())
            # `Engine` names the fake one's type; it takes any channel.
            delivery = rig.engine.delivery(cast("FakeChannel", rig.channel))
            await stack.enter_async_context(in_background(rig.engine.worker().run()))
            await stack.enter_async_context(in_background(delivery.run()))
            rig.task = await stack.enter_async_context(in_background(rig.channel.run(rig.engine.ingress)))
            await rig.ready()
            yield rig

    # --- what a rig brings --------------------------------------------------------------------

    @abstractmethod
    def platform(self) -> AbstractAsyncContextManager[object]:
        """Start the platform, and make `channel` for it with `engine.context`."""

    @abstractmethod
    async def ready(self) -> None:
        """Wait until the running channel receives events of the platform."""

    @abstractmethod
    def principal(self, who: Who) -> Principal:
        """Return the person's principal."""

    @abstractmethod
    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        """Return a person's direct conversation; `second`: with the other account's bot."""

    @abstractmethod
    def group(self) -> Conversation:
        """Return an allowed group with everybody and the bot in it. Any value when the platform has none."""

    @abstractmethod
    def thread(self) -> Conversation:
        """Return a thread of that group. Any value when the platform has none."""

    @abstractmethod
    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        """Write as a person; return the event's name. In a group it addresses the bot unless `to_bot` is False."""

    @abstractmethod
    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        """Press a button, or send an unknown handle, as a person in a place; return the event's name."""

    @abstractmethod
    async def told(self, event: str) -> str:
        """Wait for the reply to a press."""

    @abstractmethod
    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        """Deny with a reason, in the platform's way, to the end."""

    @abstractmethod
    async def redeliver(self, event: str) -> None:
        """Deliver an event again, as the platform does with an unacknowledged one."""

    @abstractmethod
    async def push(self, event: object) -> str:
        """Deliver any payload, as it goes over the wire; return the event's name."""

    @abstractmethod
    def acknowledged(self, event: str) -> bool:
        """Return whether the platform takes the event for acknowledged: it will not deliver it again by itself."""

    @abstractmethod
    def shown(self, where: Conversation) -> Sequence[Seen]:
        """Return the bot's messages in a place, in order."""

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        """Write as a person with a file of this name; return the event's name. The text may be empty."""
        raise NotImplementedError(Can.FILES)

    def forget_files(self) -> None:
        """Remove the announced files from the platform."""
        raise NotImplementedError(Can.FILES)

    async def from_nobody(self) -> Sequence[str]:
        """Write to the bot as another bot and as anonymous people; return the events' names."""
        raise NotImplementedError(Can.NOBODY)

    def failing(self, failure: str) -> AbstractAsyncContextManager[object]:
        """Make every send and edit fail in this way."""
        raise NotImplementedError(Can.SENDS)

    def typed(self, where: Conversation) -> bool:
        """Return whether a typing indicator was shown there."""
        raise NotImplementedError(Can.TYPING)

    def limited(self) -> Channel:
        """Return this channel with default limits. It is not run."""
        raise NotImplementedError(Can.LIMITS)

    def unreachable(self) -> AbstractAsyncContextManager[object]:
        """Take the platform off the network, long enough to be noticed."""
        raise NotImplementedError(Can.ALONE)

    def principals(self, who: Who) -> frozenset[Principal]:
        """Return all of a person's principals, such as one for each workspace; the first account's comes first."""
        return frozenset([self.principal(who)])

    @property
    def allowed_chat(self) -> str:
        """Return the group's name in the configuration."""
        return f"{self.name}:{self.group().chat}"

    # --- what all rigs have -------------------------------------------------------------------

    def script(self, *answers: Answer | str) -> None:
        """Set the model's next answer: a text, or calls."""
        made = [Answer(text=one, model="scripted") if isinstance(one, str) else one for one in answers]
        self.engine.model.script.extend(made)

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait until something holds."""

        async def _holds() -> object:
            return wanted()

        try:
            await until(_holds, WITHIN_S)
        except AssertionError:
            raise AssertionError(f"it did not come to hold; {self.picture()}") from None

    async def see(self, where: Conversation, contains: str, *, count: int = 1) -> Seen:
        """Wait for the `count`-th message with these words."""

        def found() -> list[Seen]:
            return [one for one in self.shown(where) if contains in one.text]

        try:
            await self.until(lambda: len(found()) >= count)
        except AssertionError:
            raise AssertionError(f"no message {count} with {contains!r}; {self.picture()}") from None
        return found()[count - 1]

    async def card(self, where: Conversation, contains: str = "") -> Seen:
        """Wait for a message with buttons."""

        def found() -> list[Seen]:
            return [one for one in self.shown(where) if one.buttons and contains in one.text]

        await self.until(found)
        return found()[0]

    async def settled(self, event: str) -> None:
        """Wait until an event is acknowledged, then long enough for any effect to show."""
        await self.until(lambda: self.acknowledged(event))
        await asyncio.sleep(QUIET_S)

    def at_rest(self) -> bool:
        """Return whether every turn has ended and all its slots are shown."""
        turns, slots = self.store.turns.values(), self.store.slots.values()
        return all(one.turn.state in ENDED for one in turns) and not any(
            one.slot.state in (SlotState.DUE, SlotState.SENDING) for one in slots
        )

    def received(self) -> list[Received]:
        """Return the stored messages, in order."""
        return [row.received for row in self.store.messages.values()]

    def waits(self) -> list[Wait]:
        """Return the stored approvals, in order."""
        return [row.wait for row in self.store.waits.values() if row.wait.approval is not None]

    def asked(self) -> list[str]:
        """Return the last text of each prompt."""
        return [str(getattr(one.messages[-1], "text", "")) for one in self.engine.model.requests]

    async def asks(self, *named: str, who: Who = Who.ANN, where: Conversation | None = None) -> Seen:
        """Write a message, have the model call these tools, and return the card as Ann sees it."""
        self.script(calls(*named))
        await self.say(who, "please", where or self.direct(who))
        return await self.card(self.direct(Who.ANN))

    async def pressed(self, who: Who, where: Conversation, handle: str) -> str:
        """Press, and return the reply."""
        return await self.told(await self.press(who, where, handle))

    def picture(self) -> str:
        """Return all visible messages, for a failed test."""
        places = dict.fromkeys([*map(self.direct, Who), self.group(), self.thread()])
        return "\n".join(f"{place.key}: {list(self.shown(place))}" for place in places)


def has_files(rig_class: type[Rig]) -> bool:
    """Return whether a rig has files."""
    return getattr(rig_class, "files", False) is True


async def met(rig: Rig) -> Conversation:
    """Return a place where the bot may write, without messages of the bot."""
    where = rig.direct(Who.BOB)
    rig.script(Answer(text="", model="scripted"))
    await rig.settled(await rig.say(Who.BOB, "hello", where))
    await rig.until(rig.at_rest)
    for one in rig.shown(where):
        await rig.channel.show(showing(where, "", shown=(one.id,)), no_progress)
    return where


def showing(
    where: Conversation,
    text: str,
    *,
    shown: tuple[str, ...] = (),
    uncertain: bool = False,
    file: Artifact | None = None,
    path: Path | None = None,
) -> RenderedSlot:
    """Return a slot for a channel to show: an answer or a file. `shown`: the ids of the messages that are there."""
    slot = Slot(
        id=SlotId("o1"),
        conversation=where,
        session=None,
        turn=None,
        n=None,
        kind=SlotKind.ANSWER if file is None else SlotKind.FILE,
        text=text,
        waits=(),
        file=file,
        version=1,
        sent_version=0,
        message_ids=shown,
        state=SlotState.SENDING,
        attempts=1,
        uncertain=uncertain,
        due_at=EPOCH,
        created_at=EPOCH,
    )
    return RenderedSlot(slot=slot, text=text, path=path)


async def no_progress(message_ids: tuple[str, ...]) -> None:
    """Ignore the progress of a send."""


def is_whole(seen: Sequence[Seen], text: str, *, among: bool = False) -> bool:
    """Return whether a whole text is shown, in messages or in a file. `among`: with other text around it."""
    shown, wanted = "".join("".join(one.text for one in seen).split()), "".join(text.split())
    if among:
        return wanted in shown or any(text in one.file for one in seen)
    return wanted == shown or any(text == one.file.strip() for one in seen)
