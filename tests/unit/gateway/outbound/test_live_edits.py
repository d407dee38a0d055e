from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest

from gateway.approvals import Approvals
from gateway.domain.events import ANSWERS, TextDelta, TurnActive
from gateway.domain.ids import NodeId, SessionId, SlotId, TurnId, answer_slot
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, RateLimit, RenderedSlot, Slot, SlotKind, SlotState
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.live_edits import KEPT_CHARS, LiveEdits
from gateway.outbound.message_actor import MessageActors
from gateway.outbound.rate_limit import BANS, RateLimiter, SendPath
from gateway.ports import Progress
from gateway.store.memory import MemoryStore
from gateway.system.failpoints import FailPoints
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from tests.support.clock import FakeClock
from tests.support.fakes import FakeChannel
from tests.support.makers import CHAT, chat, inbound, route
from tests.support.patience import PATIENCE_S
from tests.support.shown import slot
from tests.support.stored import add_slot, begin_turn, rewrite

SESSION, TURN = SessionId("main:ann"), TurnId("t1")
SECRET = "correct-horse-battery"
LOOKS_S = 0.02
"""Real seconds in which everything that is due is begun."""


@dataclass(slots=True)
class SlowChannel(FakeChannel):
    """Channel whose edits take until they are released."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Wait, then change."""
        self.begun += 1
        await self.go.wait()
        return await FakeChannel.show(self, showing, progress)


async def no_file(_session: SessionId, _name: str) -> None:
    """Find nothing."""


class World:
    """Streaming channel, live edits, and events of one turn."""

    def __init__(self, channel: FakeChannel, *, edit_within_s: float = 5, patience_s: float = 5) -> None:
        """Start nothing."""
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.channel = channel
        channel.streams = True
        self.limiter = RateLimiter(self.clock)
        self.messages = MessageActors(
            outbox=self.store,
            key_value=self.store,
            queries=self.store,
            channels={channel.name: channel},
            approvals=cast("Approvals", None),
            clock=self.clock,
            metrics=Metrics(),
            points=FailPoints(),
            redactor=Redactor([SECRET]),
            owners={},
            limiter=self.limiter,
            find=no_file,
            send_within_s=edit_within_s,
            edit_patience_s=patience_s,
        )
        self.streams = LiveEdits(events=self.store.event_bus, messages=self.messages, look_every_s=0.002)
        self._length = 0

    async def working(self, where: Conversation = CHAT, turn: TurnId = TURN) -> None:
        """Publish that a turn is active."""
        self.store.event_bus.publish(ANSWERS, TurnActive(session=SESSION, turn=turn, conversation=where))
        await asyncio.sleep(0)

    async def writes(self, text: str, *, n: int = 0, start: int | None = None) -> None:
        """Publish the next text of the answer."""
        start = self._length if start is None else start
        self.store.event_bus.publish(ANSWERS, TextDelta(session=SESSION, turn=TURN, n=n, start=start, text=text))
        self._length = start + len(text)
        await asyncio.sleep(0)

    async def passes(self, seconds: float) -> None:
        """Advance the clock and let everything due by then happen."""
        self.clock.advance(seconds)
        await asyncio.sleep(LOOKS_S)
        for _ in range(50):  # a process that slept through that wakes with all of it due at once
            await asyncio.sleep(0)

    def shows(self, slot: Slot, message_ids: tuple[str, ...]) -> None:
        """Show a version, as delivery does."""
        path = SendPath.to(slot.conversation, self.channel.rate_limits(slot.conversation))
        self.messages.of(slot.id).shown(slot, path, message_ids)

    async def begins(self, text: str = "Once upon ", *, early: str = "Once upon") -> Slot:
        """Return the slot of an answer whose beginning was shown."""
        await self.working()
        await self.writes(text)
        slot = shown(early)
        self.shows(slot, ("m1",))
        return slot

    @property
    def edits(self) -> list[str]:
        """Return the texts of the edits."""
        return [one.text for one in self.channel.edited]


def shown(text: str, *, n: int | None = 0, kind: SlotKind = SlotKind.ANSWER, where: Conversation = CHAT) -> Slot:
    """Return a slot that delivery has just sent."""
    return slot(where, kind, id=answer_slot(TURN, n or 0), session=SESSION, turn=TURN, n=n, text=text)


@asynccontextmanager
async def running(world: World) -> AsyncGenerator[World]:
    """Run live edits; drain them at the end."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(world.streams.run(), name="streams")
        await asyncio.sleep(0.01)
        try:
            yield world
        finally:
            world.streams.drain()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with running(World(FakeChannel())) as found:
        yield found


# --- streaming ------------------------------------------------------------------------------------


async def test_a_message_grows_once_a_second_with_the_text_so_far(world: World) -> None:
    slot = await world.begins()
    await world.writes("a time there ")
    await world.passes(0.9)
    assert world.edits == []
    await world.passes(0.1)
    assert world.edits == ["Once upon a time there"]
    await world.writes("was ")
    await world.passes(0.5)
    await world.writes("a dragoman ")
    assert len(world.edits) == 1
    await world.passes(0.5)
    assert world.edits == ["Once upon a time there", "Once upon a time there was a dragoman"]
    await world.passes(3)
    assert len(world.edits) == 2  # nothing new

    one = world.channel.edited[-1]
    assert (one.partial, one.slot.id, one.slot.message_ids, one.slot.version) == (True, slot.id, ("m1",), slot.version)


async def test_nothing_is_edited_before_it_was_shown(world: World) -> None:
    await world.working()
    await world.writes("Once upon a time ")
    await world.passes(3)

    assert world.edits == []


async def test_channel_without_streaming_gets_no_edits() -> None:
    async with running(World(FakeChannel())) as world:
        world.channel.streams = False
        await world.begins()
        await world.writes("a time there ")
        await world.passes(1.1)
        assert world.edits == []


async def test_the_last_word_is_held_back_and_secrets_never_show(world: World) -> None:
    await world.begins()
    await world.writes("it is correct-hor")
    await world.passes(1.1)
    await world.writes("se-battery, and more ")
    await world.passes(1.1)

    assert world.edits == ["Once upon it is", "Once upon it is [hidden], and more"]


async def test_text_without_spaces_grows_too(world: World) -> None:
    await world.begins("从前有", early="从前有")
    await world.writes("一位译员,住在")
    await world.passes(1.1)

    assert world.edits == ["从前有一位译员,住在"]


@pytest.mark.parametrize(
    "slot",
    [
        shown("Once upon a time there was an end."),  # all of it
        shown("The model could not answer."),  # something else instead
        shown("Once", n=None),
        shown("Once", n=1),
        shown("Once", kind=SlotKind.REPLY),
        shown("Once", where=chat(7)),
        shown(""),  # taken away
    ],
)
async def test_message_that_is_no_beginning_of_the_answer_stays(world: World, slot: Slot) -> None:
    await world.working()
    await world.writes("Once upon a time there was an end. ")
    world.shows(slot, ("m1",))
    await world.passes(1.1)
    await world.passes(1.1)

    assert world.edits == []


async def test_next_step_does_not_grow_into_the_previous_message(world: World) -> None:
    await world.begins()
    await world.writes("Once upon another time ", n=1, start=0)
    await world.passes(1.1)

    assert world.edits == []


async def test_a_step_that_is_written_again_after_a_crash_begins_again(world: World) -> None:
    await world.working()
    await world.writes("In the be ")
    await world.writes("Once upon ", start=0)
    world.shows(shown("Once upon"), ("m1",))
    await world.writes("a time ")
    await world.passes(1.1)

    assert world.edits == ["Once upon a time"]


async def test_text_with_a_hole_is_not_shown(world: World) -> None:
    await world.begins()
    await world.writes("a time ", start=100)
    await world.passes(1.1)

    assert world.edits == []


async def test_text_that_is_too_long_is_shown_when_it_is_whole(world: World) -> None:
    await world.begins()
    await world.writes("word " * (KEPT_CHARS // 5 - 2))
    await world.passes(1.1)
    assert len(world.edits) == 1
    await world.writes("and more ")
    await world.passes(1.1)

    assert len(world.edits) == 1


async def test_two_answers_in_one_chat_share_its_second(world: World) -> None:
    await world.begins()
    await world.writes("a time there ")
    await world.passes(0.9)
    world.shows(
        replace(shown("Status.", n=None, kind=SlotKind.REPLY), id=SlotId("other")), ("m2",)
    )  # something else in the chat
    await world.passes(0.2)
    assert world.edits == []
    await world.passes(0.9)
    assert len(world.edits) == 1


async def test_the_second_of_a_chat_begins_when_its_edit_was_answered() -> None:
    """Otherwise a slow edit and the next one would reach the platform together."""
    channel = SlowChannel()
    async with running(World(channel)) as world:
        await world.begins()
        await world.writes("a time there ")
        await world.passes(1.1)
        await world.writes("was ")
        await world.passes(3)
        other = TurnId("t2")
        await world.working(turn=other)
        words = TextDelta(session=SESSION, turn=other, n=0, start=0, text="Twice upon a time ")
        world.store.event_bus.publish(ANSWERS, words)
        await asyncio.sleep(0)
        beginning = replace(shown("Twice"), id=answer_slot(other, 0), turn=other)
        world.shows(beginning, ("m2",))
        await world.passes(0.5)
        channel.go.set()
        await world.passes(0.6)
        assert channel.begun == 1
        await world.passes(1.1)
        assert channel.begun == 2


# --- the last words win ---------------------------------------------------------------------------


async def test_finished_message_is_not_edited(world: World) -> None:
    slot = await world.begins()
    await world.writes("a time there ")
    await world.messages.of(slot.id).finish()
    await world.passes(1.1)

    assert world.edits == []


async def test_finished_message_is_not_edited_and_the_next_step_grows(world: World) -> None:
    slot = await world.begins()
    await world.messages.of(slot.id).finish()
    world.shows(replace(slot, text="Once upon a", version=2), ("m1",))
    await world.writes("a time there ")
    await world.passes(1.1)
    assert world.edits == []

    await world.writes("And then ", n=1, start=0)
    world.shows(shown("And", n=1), ("m2",))
    await world.passes(1.1)
    assert world.edits == ["And then"]


async def test_no_typing_right_after_the_last_words(world: World) -> None:
    slot = await world.begins()
    await world.messages.of(slot.id).finish()
    world.shows(replace(slot, version=2), ("m1",))
    await world.working()
    await world.passes(0.5)

    assert world.channel.typed == []


async def test_a_drained_one_waits_for_its_edit_and_begins_none() -> None:
    channel = SlowChannel()
    async with running(World(channel)) as world:
        await world.begins()
        await world.writes("a time there ")
        await world.passes(1.1)
        world.streams.drain()
        await world.writes("was ")
        channel.go.set()
        await world.passes(1.1)

    assert world.edits == ["Once upon a time there"]


# --- room, bans and failures ----------------------------------------------------------------------


async def test_no_edit_or_typing_without_room_and_sends_find_room() -> None:
    channel = FakeChannel(pace=(RateLimit(scope="telegram/default/1001", every_s=10, burst=3),))
    async with running(World(channel)) as world:
        await world.begins()
        for word in ["a ", "time ", "there ", "was "]:
            await world.writes(word)
            await world.passes(1.1)
        assert world.edits == ["Once upon a", "Once upon a time"]
        await world.passes(7)
        await world.writes("a dragoman ", start=None)
        await world.working()
        await world.passes(0.5)
        assert world.channel.typed == []


async def test_rate_limit_bans_the_chat_in_the_store(world: World) -> None:
    until_then = world.clock.now() + timedelta(seconds=30)
    world.channel.outcomes = [SendFailed("429", outcome=SendOutcome.WAIT, until=until_then)]
    await world.begins()
    await world.writes("a time ")
    await world.passes(1.1)
    await world.writes("there ")
    for _ in range(5):
        await world.passes(5)
        await world.working()

    assert (world.edits, world.channel.typed, world.channel.outcomes) == ([], [], [])
    assert await world.store.items(BANS) == {"telegram/default/1001": f"{until_then.isoformat()} 28.9"}
    await world.passes(5)
    assert world.edits == ["Once upon a time there"]


@pytest.mark.parametrize(
    ("failure", "goes_on"),
    [
        (SendFailed("no", outcome=SendOutcome.RETRY), True),
        (SendFailed("no", outcome=SendOutcome.UNCERTAIN), True),
        (SendFailed("gone", outcome=SendOutcome.DEAD), False),
        (RuntimeError("the channel broke"), False),
    ],
)
async def test_an_edit_that_failed_is_not_repeated(world: World, failure: Exception, goes_on: bool) -> None:
    world.channel.outcomes = [failure]
    await world.begins()
    await world.writes("a time ")
    for _ in range(3):
        await world.passes(1.1)
    assert (world.edits, world.channel.outcomes) == ([], [])
    await world.writes("there ")
    await world.passes(1.1)
    assert world.edits == (["Once upon a time there"] if goes_on else [])


# --- another machine ------------------------------------------------------------------------------


async def sent_elsewhere(world: World, slot: Slot) -> None:
    """Show the final text, version 2, on another machine, of an answer begun here."""
    begin_turn(world.store, route(), inbound(), TURN)
    early = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text=slot.text, n=slot.n, id=slot.id)
    add_slot(world.store, early, SESSION, TURN)
    rewrite(world.store, slot.id, "The end.", slot.n)
    (claimed,) = await world.store.claim_slots(NodeId("there#1"), ["telegram"], 1)
    await world.store.slot_sent(claimed, ("m1",))


async def test_edit_over_another_machines_last_words_is_undone() -> None:
    channel = SlowChannel()
    async with running(World(channel)) as world:
        slot = await world.begins()
        await world.writes("a time ")
        await world.passes(1.1)
        assert channel.begun == 1
        await sent_elsewhere(world, slot)
        channel.go.set()
        await world.writes("and then ")
        await world.passes(1.1)

        found = world.store.slots[slot.id].slot
        assert (found.state, found.version) == (SlotState.DUE, 3)
        assert world.edits == ["Once upon a time"]


async def test_an_edit_of_what_nobody_changed_stands(world: World) -> None:
    slot = await world.begins()
    begin_turn(world.store, route(), inbound(), TURN)
    early = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text=slot.text, n=slot.n, id=slot.id)
    add_slot(world.store, early, SESSION, TURN)
    await world.writes("a time ")
    await world.passes(1.1)

    assert world.edits == ["Once upon a time"]
    assert world.store.slots[slot.id].slot.version == 1
