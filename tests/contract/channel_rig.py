"""A rig: one real channel on the real engine, its platform on the other side, and what people do and see there.

The suite in `tests.contract.channel` is written in these words alone. A new channel brings a rig and nothing else.
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

WITHIN_S = 5.0
QUIET_S = 0.15
"""How long to look when nothing shall happen: a channel in one process needs some milliseconds."""

T = TypeVar("T", bound=Callable[..., Any])


class Who(StrEnum):
    """The people of every test."""

    ANN = "ann"
    """An owner."""
    CLEO = "cleo"
    """Another owner."""
    BOB = "bob"
    """Somebody who is allowed."""
    EVE = "eve"
    """A stranger."""


class Can(StrEnum):
    """What not every platform can. A test that `needs` one of these is not there for a rig that says it cannot."""

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
    """Without markup."""
    buttons: tuple[Push, ...] = ()
    """Row by row."""
    file: str = ""
    """What is in the file that comes with it."""
    active: tuple[str, ...] = ()
    """What the platform would act on by itself: addresses that can be followed, everybody who is pinged."""

    @property
    def labels(self) -> list[str]:
        """What stands on the buttons."""
        return [push.label for push in self.buttons]

    def handle(self, label: str) -> str:
        """What the first button with these words carries."""
        return next(push.handle for push in self.buttons if push.label.endswith(label))


def needs(*can: Can) -> Callable[[T], T]:
    """Leave a test out for a rig whose platform cannot that."""

    def mark(test: T) -> T:
        test.__dict__["needs"] = frozenset(can)
        return test

    return mark


def needed_by(test: object) -> frozenset[Can]:
    """What a test needs; nothing, unless it says so."""
    none: frozenset[Can] = frozenset()
    return getattr(test, "needs", none)


class WatchedStore(FailingStore):
    """The memory store, whose ingress fails or waits as the test says, and which keeps what was refused."""

    def __init__(self) -> None:
        """Begin healthy."""
        super().__init__(FakeClock())
        self.broken = False
        self.asked = 0
        """How often something wanted to be stored."""
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
    """One channel, served. Methods that do something end when the platform was told, not when the daemon was."""

    name: ClassVar[str]
    cannot: ClassVar[Mapping[Can, str]]
    """What this platform cannot, each with the reason."""
    failures: ClassVar[Mapping[str, SendOutcome]]
    """What can go wrong with a new message, by name, and what is known then. Empty without `SENDS`."""
    lost: ClassVar[str] = ""
    """Which of them leaves it open whether the message is there: best one that shows it, and says nothing."""
    files: ClassVar[bool]
    """True: `say_with`, `forget_files` and `Seen.file` are there. It has no default: a rig that neither says this nor
    `cannot` with a reason fails one test of the suite, and runs none of those about files."""
    can_be_asked: ClassVar[bool] = False
    """Whether the platform says what stands in a conversation, so that nothing has to be shown twice."""
    unreadable: ClassVar[Sequence[object]]
    """Events that are malformed, or of no kind that is known, as they come over the wire."""

    channel: Channel
    client: aiohttp.ClientSession
    task: asyncio.Task[None]
    """The channel's `run`."""

    def __init__(self, folder: Path) -> None:
        """Make the engine. Nothing runs yet."""
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
        self.engine = Engine(folder, self.box.all, people=people, steer=False, store=self.store)

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path) -> AsyncGenerator[Self]:
        """The channel, its platform, and everything between ingress and delivery, running."""
        rig = cls(folder)
        async with AsyncExitStack() as stack:
            rig.client = await stack.enter_async_context(aiohttp.ClientSession())
            await stack.enter_async_context(rig.platform())
            # `Engine` names the fake one's type; it takes any channel.
            delivery = rig.engine.delivery(cast("FakeChannel", rig.channel))
            await stack.enter_async_context(in_background(rig.engine.sessions().run()))
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
        """Wait until the running channel hears the platform."""

    @abstractmethod
    def principal(self, who: Who) -> Principal:
        """Who this is to the gateway."""

    @abstractmethod
    def direct(self, who: Who, *, second: bool = False) -> Conversation:
        """Where somebody is alone with the bot; with `second` with the other account's."""

    @abstractmethod
    def group(self) -> Conversation:
        """A group that is allowed, with everybody and the bot in it. Anything when there are none."""

    @abstractmethod
    def thread(self) -> Conversation:
        """A thread of that group. Anything when there are none."""

    @abstractmethod
    async def say(self, who: Who, text: str, where: Conversation, *, to_bot: bool = True) -> str:
        """Write as a person; return the event's name. In a group it is for the bot, unless it is not `to_bot`."""

    @abstractmethod
    async def press(self, who: Who, where: Conversation, handle: str) -> str:
        """Press a button, or send what no button has, as a person in a place; return the event's name."""

    @abstractmethod
    async def told(self, event: str) -> str:
        """Wait for what was said to whoever pressed."""

    @abstractmethod
    async def deny_with_reason(self, who: Who, where: Conversation, card: Seen, reason: str) -> None:
        """Deny and say why, in the platform's way, up to the end of it."""

    @abstractmethod
    async def redeliver(self, event: str) -> None:
        """Tell of an event once more, as the platform does with one that was not acknowledged."""

    @abstractmethod
    async def push(self, event: object) -> str:
        """Tell of anything at all, as it goes over the wire; return the event's name."""

    @abstractmethod
    def acknowledged(self, event: str) -> bool:
        """Whether the platform takes the event for stored: it will not tell of it again by itself."""

    @abstractmethod
    def shown(self, where: Conversation) -> Sequence[Seen]:
        """What the bot shows in a place, in order."""

    async def say_with(self, who: Who, text: str, where: Conversation, name: str, content: bytes) -> str:
        """Write as a person, with a file that is called so; return the event's name. The text may be empty."""
        raise NotImplementedError(Can.FILES)

    def forget_files(self) -> None:
        """Let the platform have none any more of the files that it told of."""
        raise NotImplementedError(Can.FILES)

    async def from_nobody(self) -> Sequence[str]:
        """Let a bot, and people who hide, speak to the bot; return the events' names."""
        raise NotImplementedError(Can.NOBODY)

    def failing(self, failure: str) -> AbstractAsyncContextManager[object]:
        """Let everything that is sent or edited fail like that."""
        raise NotImplementedError(Can.SENDS)

    def typed(self, where: Conversation) -> bool:
        """Whether it was shown there that the bot writes."""
        raise NotImplementedError(Can.TYPING)

    def limited(self) -> Channel:
        """This channel as it is when nobody configured its limits. It is not run."""
        raise NotImplementedError(Can.LIMITS)

    def unreachable(self) -> AbstractAsyncContextManager[object]:
        """Take the platform off the net, for long enough to be noticed."""
        raise NotImplementedError(Can.ALONE)

    def principals(self, who: Who) -> frozenset[Principal]:
        """All that this person is: another one in each workspace, say, where the first is the first account's."""
        return frozenset([self.principal(who)])

    @property
    def allowed_chat(self) -> str:
        """What the configuration calls the group."""
        return f"{self.name}:{self.group().chat}"

    # --- what all rigs have -------------------------------------------------------------------

    def script(self, *answers: Answer | str) -> None:
        """What the model says next; a text, or calls."""
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
        """Wait until an event is acknowledged, then long enough for anything that it did to be seen."""
        await self.until(lambda: self.acknowledged(event))
        await asyncio.sleep(QUIET_S)

    def at_rest(self) -> bool:
        """Whether every turn has ended and all that it showed is there."""
        turns, slots = self.store.turns.values(), self.store.slots.values()
        return all(one.turn.state in ENDED for one in turns) and not any(
            one.slot.state in (SlotState.DUE, SlotState.SENDING) for one in slots
        )

    def received(self) -> list[Received]:
        """The messages that are stored, in order."""
        return list(self.store.inbounds.values())

    def waits(self) -> list[Wait]:
        """The approvals that are stored, in order."""
        return [one for one in self.store.waits.values() if one.approval is not None]

    def asked(self) -> list[str]:
        """The last words of each question to the model."""
        return [str(getattr(one.messages[-1], "text", "")) for one in self.engine.model.requests]

    async def asks(self, *named: str, who: Who = Who.ANN, where: Conversation | None = None) -> Seen:
        """Somebody says something, the model calls these tools, a card is shown: return it, as Ann sees it."""
        self.script(calls(*named))
        await self.say(who, "please", where or self.direct(who))
        return await self.card(self.direct(Who.ANN))

    async def pressed(self, who: Who, where: Conversation, handle: str) -> str:
        """Press, and return what was said to whoever did."""
        return await self.told(await self.press(who, where, handle))

    def picture(self) -> str:
        """What there is to see, for a test that failed."""
        places = dict.fromkeys([*map(self.direct, Who), self.group(), self.thread()])
        return "\n".join(f"{place.key}: {list(self.shown(place))}" for place in places)


def has_files(rig_class: type[Rig]) -> bool:
    """Whether a rig says that it has files."""
    return getattr(rig_class, "files", False) is True


async def met(rig: Rig) -> Conversation:
    """A place where the bot may write, with nothing of its own in it."""
    where = rig.direct(Who.BOB)
    rig.script(Answer(text="", model="scripted"))
    await rig.settled(await rig.say(Who.BOB, "hello", where))
    await rig.until(rig.at_rest)
    for one in rig.shown(where):
        await rig.channel.edit(showing(where, "", shown=one.id), no_progress)
    return where


def showing(
    where: Conversation,
    text: str,
    *,
    shown: str = "",
    uncertain: bool = False,
    file: Artifact | None = None,
    path: Path | None = None,
) -> RenderedSlot:
    """What a channel is asked to show: an answer, or a file. `shown` is the platform id of what is there."""
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
        platform_id=shown,
        state=SlotState.SENDING,
        attempts=1,
        uncertain=uncertain,
        due_at=EPOCH,
        created_at=EPOCH,
    )
    return RenderedSlot(slot=slot, text=text, path=path)


async def no_progress(platform_id: str) -> None:
    """Where nobody needs to know what is shown so far."""


def is_whole(seen: Sequence[Seen], text: str, *, among: bool = False) -> bool:
    """Whether all of a text is there: in the messages, or in a file. `among`: beside other words."""
    shown, wanted = "".join("".join(one.text for one in seen).split()), "".join(text.split())
    if among:
        return wanted in shown or any(text in one.file for one in seen)
    return wanted == shown or any(text == one.file.strip() for one in seen)
