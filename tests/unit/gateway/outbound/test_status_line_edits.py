"""Status lines of active turns: edits of one message, at most one a second and chat, until the final text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise

import pytest

from gateway.domain.events import ANSWERS, ProgressChanged
from gateway.domain.ids import SessionId, TurnId, status_slot
from gateway.domain.messages import Conversation
from gateway.domain.slots import RateLimit, Slot, SlotKind
from gateway.domain.waits import WaitKind
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.message_actor import SETTLED_AFTER_S
from gateway.outbound.rate_limit import BANS
from gateway.outbound.status_line import FORGET_LINE_AFTER_S, FORGET_WAITING_AFTER_S, LINE_CHARS
from tests.support.fakes import ANN_PAGE, FakeChannel
from tests.support.makers import CHAT, chat
from tests.unit.gateway.outbound.test_live_edits import SECRET, SESSION, TURN, SlowChannel, World, running, shown

FOR_CHILDREN = frozenset({WaitKind.CHILD})


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with running(World(FakeChannel())) as found:
        yield found


def line(text: str, *, version: int = 1, where: Conversation = CHAT, turn: TurnId = TURN) -> Slot:
    """Return a status line that delivery has just sent."""
    slot = shown(text, n=None, kind=SlotKind.STATUS, where=where)
    return replace(slot, id=status_slot(turn), turn=turn, version=version)


async def does(
    world: World,
    text: str,
    *,
    child: str = "",
    where: Conversation = CHAT,
    turn: TurnId = TURN,
    waits: frozenset[WaitKind] = frozenset(),
) -> None:
    """Publish progress of the root or a child."""
    by = SessionId(f"child:{child}") if child else SESSION
    said = ProgressChanged(turn=turn, conversation=where, by=by, title=child, text=text, waits=waits)
    world.store.event_bus.publish(ANSWERS, said)
    await asyncio.sleep(0)


async def at_work(world: World, text: str = "shell: make", waits: frozenset[WaitKind] = frozenset()) -> Slot:
    """Return the slot of an active turn's status line."""
    await does(world, text, waits=waits)
    slot = line(f"▸ {text}")
    world.shows(slot, ("m9",))
    return slot


# --- what is shown --------------------------------------------------------------------------------


async def test_the_line_follows_what_is_done_at_most_once_a_second(world: World) -> None:
    slot = await at_work(world)
    await does(world, "shell: make test")
    await world.passes(0.9)
    assert world.edits == []
    await world.passes(0.1)
    assert world.edits == ["▸ shell: make test · 1 s"]
    for n in range(10):
        await does(world, f"read: {n}")
        await world.passes(0.1)
    assert world.edits == ["▸ shell: make test · 1 s", "▸ read: 9"]

    one = world.channel.edited[-1]
    assert (one.partial, one.slot.id, one.slot.message_ids, one.slot.kind) == (True, slot.id, ("m9",), SlotKind.STATUS)


async def test_time_alone_is_shown_ever_more_rarely(world: World) -> None:
    await at_work(world)
    for _ in range(600):
        world.clock.advance(1)
        await world.working()
        await asyncio.sleep(0.004)
    await world.passes(0)

    assert world.edits[0] == "▸ shell: make · 5 s"
    assert world.edits[-1].startswith("▸ shell: make · 9 min")
    assert 20 <= len(world.edits) <= 40


async def test_the_children_of_a_parked_turn_stand_in_its_line(world: World) -> None:
    await at_work(world, "waits for 3 sub-sessions", FOR_CHILDREN)
    await does(world, "shell: df -h", child="disk")
    await does(world, "waits for a decision", child="net")
    await does(world, "", child="logs")
    await world.passes(1)
    assert world.edits == ["3 sub-sessions: disk: shell: df -h · net: waits for a decision · logs: done"]
    await world.passes(50)
    assert len(world.edits) == 1  # nothing new, and no time to tell

    await does(world, "", child="disk")
    await world.passes(1)
    await does(world, "thinking")
    await does(world, "", child="net")
    await world.passes(1)
    assert world.edits[1:] == [
        "3 sub-sessions: net: waits for a decision · disk: done · logs: done",
        "▸ thinking · 1 s",
    ]


async def test_nothing_is_edited_before_the_line_is_shown(world: World) -> None:
    await does(world, "shell: make")
    await does(world, "thinking", child="disk")
    await world.passes(3)

    assert world.edits == []


async def test_activity_before_the_line_is_shown_is_not_lost(world: World) -> None:
    await does(world, "shell: make")
    await does(world, "shell: make test")
    world.shows(line("▸ shell: make"), ("m9",))
    await world.passes(1)

    assert world.edits == ["▸ shell: make test · 1 s"]


@pytest.mark.parametrize("where", [ANN_PAGE, Conversation(channel="slack", account="default", chat="D1")])
async def test_nothing_is_kept_where_lines_are_not_shown(world: World, where: Conversation) -> None:
    await does(world, "shell: make", where=where)
    world.shows(line("▸ shell: make", where=where), ("m9",))
    await does(world, "shell: make test", where=where)
    await world.passes(2)

    assert world.edits == []


async def test_channel_without_streaming_has_no_status_line() -> None:
    async with running(World(FakeChannel())) as world:
        world.channel.streams = False
        await at_work(world)
        await does(world, "shell: make test")
        await world.passes(2)
        assert world.edits == []


@pytest.mark.parametrize(
    "text",
    [
        f"shell: echo {SECRET}\n`**[x](y)**`\n```\nrm\n",
        "x" * 10_000,
        "\n\n# head\n- a\n- b\n" * 500,
        "\u202e\x1b[31m@ann\u200b",
    ],
)
async def test_status_line_is_one_redacted_line(world: World, text: str) -> None:
    await at_work(world, "waits for a sub-session", FOR_CHILDREN)
    await does(world, text)
    await does(world, text, child=f"a\n{SECRET}`" + "t" * 1000)
    await world.passes(1)

    (found,) = world.edits
    assert len(found) <= LINE_CHARS
    assert found.isprintable()
    assert SECRET not in found


# --- with answers, in one chat --------------------------------------------------------------------


async def test_an_answer_and_a_line_share_the_second_of_their_chat(world: World) -> None:
    await world.begins()
    await at_work(world)
    edited_at: list[float] = []
    for n in range(50):
        before = len(world.edits)
        await world.writes(f"word{n} ")
        await does(world, f"read: {n}")
        await world.passes(0.1)
        edited_at += [world.clock.monotonic()] * (len(world.edits) - before)

    assert 4 <= len(edited_at) <= 5
    gaps = [after - before for before, after in pairwise(edited_at)]
    assert min(gaps) > 0.99


async def test_a_line_moves_on_when_the_answer_rests(world: World) -> None:
    await world.begins()
    await at_work(world)
    await world.writes("a time ")
    await does(world, "read: notes")
    await world.passes(1)
    await world.passes(1)

    assert world.edits == ["Once upon a time", "▸ read: notes · 2 s"]


async def test_lines_of_two_chats_do_not_wait_for_each_other(world: World) -> None:
    other = TurnId("t2")
    await at_work(world)
    await does(world, "shell: a", where=chat(7), turn=other)
    world.shows(line("▸ shell: a", where=chat(7), turn=other), ("m8",))
    await does(world, "shell: b", where=chat(7), turn=other)
    await does(world, "shell: make test")
    await world.passes(1)

    assert sorted(world.edits) == ["▸ shell: b · 1 s", "▸ shell: make test · 1 s"]


# --- the last word wins ---------------------------------------------------------------------------


async def test_summarised_line_is_not_edited(world: World) -> None:
    slot = await at_work(world)
    await does(world, "shell: make test")
    assert await world.messages.of(slot.id).finish() == 0
    await world.passes(2)
    world.shows(line("1 call (shell), 12 s", version=2), ("m9",))
    await does(world, "read: late")
    await does(world, "thinking", child="late")
    await world.passes(2)

    assert world.edits == []


@pytest.mark.parametrize("last_word", ["Ended.", "1 call (shell), 12 s", ""])
async def test_last_text_of_a_line_is_not_edited(world: World, last_word: str) -> None:
    await does(world, "shell: make")
    world.shows(line(last_word), ("m9",))
    await does(world, "shell: make test")
    await world.passes(2)

    assert world.edits == []


async def test_a_summary_waits_for_the_edit_under_way() -> None:
    channel = SlowChannel()
    async with running(World(channel)) as world:
        slot = await at_work(world)
        await does(world, "shell: make test")
        await world.passes(1)
        assert channel.begun == 1
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(world.messages.of(slot.id).finish())
            await does(world, "read: late")
            await world.passes(2)
            assert not finishing.done()
            channel.go.set()
            assert await finishing == 0
        await world.passes(2)
        assert world.edits == ["▸ shell: make test · 1 s"]


async def test_a_summary_waits_for_an_edit_that_may_still_be_made() -> None:
    channel = SlowChannel()
    async with running(World(channel, edit_within_s=0.05)) as world:
        slot = await at_work(world)
        await does(world, "shell: make test")
        await world.passes(1)
        async with asyncio.timeout(2):
            assert await world.messages.of(slot.id).finish() == SETTLED_AFTER_S


async def test_ended_turn_adds_nothing_before_its_summary(world: World) -> None:
    await at_work(world)
    await does(world, "shell: make test")
    await does(world, "")
    await does(world, "thinking", child="late")
    await world.passes(10)

    assert world.edits == []


async def test_a_line_that_a_later_holding_rewrote_goes_on(world: World) -> None:
    slot = await at_work(world, "waits for a decision")
    await world.messages.of(slot.id).finish()
    world.shows(line("▸ thinking", version=2), ("m9",))
    await does(world, "shell: make")
    await world.passes(1)

    assert world.edits == ["▸ shell: make · 1 s"]
    assert world.channel.edited[0].slot.version == 2


# --- how long it is remembered --------------------------------------------------------------------


async def test_line_without_activity_for_a_minute_is_forgotten(world: World) -> None:
    await at_work(world)
    await world.passes(FORGET_LINE_AFTER_S + 1)
    edits = len(world.edits)
    await does(world, "shell: make test")
    await world.passes(2)

    assert len(world.edits) == edits


async def test_a_turn_that_works_keeps_its_line(world: World) -> None:
    await at_work(world)
    for _ in range(10):
        await world.passes(20)
        await world.working()
    await does(world, "shell: make test")
    await world.passes(2)

    assert world.edits[-1] == "▸ shell: make test · 2 s"


async def test_child_waiting_for_a_decision_keeps_the_line_for_an_hour(world: World) -> None:
    await at_work(world, "waits for a sub-session", FOR_CHILDREN)
    await does(world, "waits for a decision", child="disk")
    await world.passes(2)
    await world.passes(FORGET_WAITING_AFTER_S - 10)
    await does(world, "shell: df -h", child="disk")
    await world.passes(2)
    assert world.edits[-1] == "1 sub-session: disk: shell: df -h"

    await world.passes(FORGET_WAITING_AFTER_S + 10)
    await does(world, "thinking", child="disk")
    await world.passes(2)
    assert world.edits[-1] == "1 sub-session: disk: shell: df -h"


async def test_a_line_without_a_message_goes_like_a_turn(world: World) -> None:
    await does(world, "shell: make")
    await does(world, "thinking", child="disk")
    await world.passes(8)
    world.shows(line("▸ shell: make"), ("m9",))
    await world.passes(2)

    assert world.edits == []  # what was heard is gone; what comes is shown
    await does(world, "read: notes")
    await world.passes(1)
    assert world.edits == ["▸ read: notes · 1 s"]


# --- room, bans and failures ----------------------------------------------------------------------


async def test_line_without_room_shows_the_newest_activity_later() -> None:
    channel = FakeChannel(pace=(RateLimit(scope="telegram/default/1001", every_s=10, burst=3),))
    async with running(World(channel)) as world:
        await at_work(world)
        for n in range(8):
            await does(world, f"read: {n}")
            await world.passes(1.1)
        assert world.edits == ["▸ read: 0 · 1 s", "▸ read: 1 · 1 s"]
        await world.passes(10)
        assert len(world.edits) == 3
        assert world.edits[2].startswith("▸ read: 7 ·")


async def test_a_429_for_a_line_bans_the_chat(world: World) -> None:
    world.channel.outcomes = [SendFailed("429", outcome=SendOutcome.WAIT)]
    await at_work(world)
    await does(world, "shell: make test")
    await world.passes(1)
    await does(world, "read: notes")
    await world.passes(2)

    assert world.edits == []
    assert list(await world.store.items(BANS)) == ["telegram/default/1001"]


@pytest.mark.parametrize("failure", [SendFailed("gone", outcome=SendOutcome.DEAD), RuntimeError("broke")])
async def test_a_line_that_cannot_be_edited_stands(world: World, failure: Exception) -> None:
    world.channel.outcomes = [failure]
    await at_work(world)
    await does(world, "shell: make test")
    await world.passes(1)
    await does(world, "read: notes")
    await world.passes(5)

    assert (world.edits, world.channel.outcomes) == ([], [])
