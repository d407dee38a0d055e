"""Caches of an account: threads, people, queues. All are bounded and survive corrupt stored values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels.slack import threads
from channels.slack.ordered_queue import OrderedQueue
from channels.slack.people import ASK_AGAIN_S, GOOD_FOR_S, SlackDirectory
from channels.slack.request import SlackClient
from channels.slack.threads import Threads
from gateway.errors import StoreError
from gateway.server.channel_host import NamespacedKeyValue
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.slack import FakeSlack, Fault, faults
from tests.support.surroundings import FakeNotes, refusing
from tests.unit.channels.slack.scene import no_bans

ANN = "U0ANN"


# --- threads ------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_thread_that_was_joined_is_known_to_the_next_life(clock: FakeClock) -> None:
    notes = FakeNotes()
    first = Threads("main", notes, clock)
    assert not await first.takes_part("C0CC", "1.2")
    await first.join("C0CC", "1.2")
    assert await first.takes_part("C0CC", "1.2")
    assert await Threads("main", notes, clock).takes_part("C0CC", "1.2")
    assert not await Threads("other", notes, clock).takes_part("C0CC", "1.2")


async def test_threads_joined_on_two_nodes_are_known_to_both(clock: FakeClock) -> None:
    """Neither overwrites what the other one joined."""
    store = MemoryStore(clock)
    here, there = (
        Threads("main", NamespacedKeyValue(key_value=store, namespace="channel/slack"), clock) for _ in range(2)
    )
    for node in (here, there):
        assert not await node.takes_part("C0CC", "1")
    await here.join("C0CC", "1")
    await there.join("C0CC", "2")
    for node in (here, there):
        assert await node.takes_part("C0CC", "1")
        assert await node.takes_part("C0CC", "2")


async def test_a_thread_is_forgotten_when_it_was_not_used_for_long(clock: FakeClock) -> None:
    """A thread in use is stored again once a day."""
    store = MemoryStore(clock)
    notes = NamespacedKeyValue(key_value=store, namespace="channel/slack")
    used = Threads("main", notes, clock)
    await used.join("C0CC", "used")
    await used.join("C0CC", "left")
    for _ in range(threads.GOOD_FOR.days):
        clock.advance(threads.RENEWED_S)
        await used.join("C0CC", "used")
    later = Threads("main", notes, clock)
    assert await later.takes_part("C0CC", "used")
    assert not await later.takes_part("C0CC", "left")


async def test_many_threads_are_remembered_in_the_store_alone(clock: FakeClock) -> None:
    known = Threads("main", FakeNotes(), clock)
    for n in range(threads.REMEMBERED_AT_MOST + 1):
        await known.join("C0CC", str(n))
    assert await known.takes_part("C0CC", "0")


async def test_a_thread_that_could_not_be_stored_is_not_joined(clock: FakeClock) -> None:
    known = Threads("main", FakeNotes(broken=True), clock)
    with pytest.raises(StoreError):
        await known.join("C0CC", "1.2")
    assert not await known.takes_part("C0CC", "1.2")


# --- people -------------------------------------------------------------------------------------


A_CROWD = 50


@pytest.fixture
async def known(slack: FakeSlack, clock: FakeClock) -> AsyncIterator[SlackDirectory]:
    async def passed(_: str) -> None:
        return None

    async with aiohttp.ClientSession() as session:
        client = SlackClient(slack.bot_token, slack.api_root, session, passed, no_bans(clock))
        yield SlackDirectory(client, clock, known_at_most=A_CROWD)


async def test_a_member_is_asked_about_once_an_hour(slack: FakeSlack, known: SlackDirectory, clock: FakeClock) -> None:
    slack.person(ANN, "ann")
    for _ in range(3):
        found = await known.standing(slack.team, ANN)
        assert (found.member, found.name) == (True, "ann")
    clock.advance(GOOD_FOR_S + 1)
    await known.standing(slack.team, ANN)
    assert len(slack.calls("users.info")) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"is_restricted": True},
        {"is_ultra_restricted": True},
        {"is_stranger": True},
        {"is_bot": True},
        {"deleted": True},
        {"team_id": "T0ZZ"},
        {"team_id": None},
        {"is_restricted": "false"},
        {"is_restricted": None},
    ],
)
async def test_only_who_is_certain_to_be_a_member_is_one(
    slack: FakeSlack, known: SlackDirectory, fields: dict[str, object]
) -> None:
    slack.person(ANN).update(fields)
    assert not (await known.standing(slack.team, ANN)).member


async def test_a_failure_is_remembered_for_a_short_while(
    slack: FakeSlack, known: SlackDirectory, clock: FakeClock
) -> None:
    slack.person(ANN)
    slack.script(refusing("users.info", faults.too_many(60), 1))
    assert not (await known.standing(slack.team, ANN)).member
    clock.advance(ASK_AGAIN_S + 1)
    assert not (await known.standing(slack.team, ANN)).member  # Slack said a minute
    clock.advance(30)
    assert (await known.standing(slack.team, ANN)).member
    assert len(slack.calls("users.info")) == 2


TROUBLE = [faults.broken(), faults.page(), faults.drop(), faults.too_many(7), faults.error("service_unavailable")]


@pytest.mark.parametrize("fault", TROUBLE)
async def test_expired_lookup_is_used_while_slack_fails(
    slack: FakeSlack, known: SlackDirectory, clock: FakeClock, fault: Fault
) -> None:
    slack.person(ANN, "ann")
    before = await known.standing(slack.team, ANN)
    clock.advance(GOOD_FOR_S + 1)
    slack.script(refusing("users.info", fault, 1))
    assert await known.standing(slack.team, ANN) == before
    assert before.certain
    clock.advance(ASK_AGAIN_S + 1)
    await known.standing(slack.team, ANN)
    assert len(slack.calls("users.info")) == 3


@pytest.mark.parametrize("fault", TROUBLE)
async def test_failed_first_lookup_is_not_certain(slack: FakeSlack, known: SlackDirectory, fault: Fault) -> None:
    slack.person(ANN)
    slack.script(refusing("users.info", fault, 1))
    assert not (await known.standing(slack.team, ANN)).certain


@pytest.mark.parametrize("error", ["user_not_found", "missing_scope", "user_not_visible"])
async def test_a_refusal_for_good_is_certain(
    slack: FakeSlack, known: SlackDirectory, clock: FakeClock, error: str
) -> None:
    slack.person(ANN)
    await known.standing(slack.team, ANN)
    clock.advance(GOOD_FOR_S + 1)
    slack.script(refusing("users.info", faults.error(error)))
    found = await known.standing(slack.team, ANN)
    assert (found.member, found.certain) == (False, True)


async def test_failed_lookup_is_not_cached_when_a_message_waits_for_it(slack: FakeSlack, known: SlackDirectory) -> None:
    slack.person(ANN)
    slack.script(refusing("users.info", faults.broken(), 1))
    await known.standing(slack.team, ANN)
    known.ask_anew(ANN)
    assert (await known.standing(slack.team, ANN)).member
    known.ask_anew(ANN)
    await known.standing(slack.team, ANN)
    assert len(slack.calls("users.info")) == 2


async def test_a_crowd_is_forgotten_from_its_beginning(slack: FakeSlack, known: SlackDirectory) -> None:
    slack.person(ANN)
    await known.standing(slack.team, ANN)
    slack.script(refusing("users.info", faults.error("user_not_found")))
    for n in range(A_CROWD):
        await known.standing(slack.team, f"U{n:05}")
    slack.script(lambda _call: None)
    await known.standing(slack.team, ANN)
    assert len([call for call in slack.calls("users.info") if call.parameters == {"user": ANN}]) == 2


async def test_a_direct_conversation_is_opened_once(slack: FakeSlack, known: SlackDirectory) -> None:
    slack.script(refusing("conversations.open", faults.broken(), 1))
    assert await known.direct(ANN) == ""
    slack.person(ANN)
    assert await known.direct(ANN) == slack.direct(ANN)
    assert await known.direct(ANN) == slack.direct(ANN)
    assert len(slack.calls("conversations.open")) == 2


# --- queues -------------------------------------------------------------------------------------


async def test_ordered_queue_is_fifo_and_forgotten_when_empty() -> None:
    lanes = OrderedQueue()
    done: list[str] = []

    async def take(lane: str, name: str, seconds: float) -> None:
        async with lanes.turn(lane):
            await asyncio.sleep(seconds)
            done.append(name)

    async with asyncio.TaskGroup() as group:
        for lane, name, seconds in (("a", "a1", 0.05), ("a", "a2", 0.0), ("b", "b1", 0.0), ("a", "a3", 0.0)):
            group.create_task(take(lane, name, seconds), name=name)
        await asyncio.sleep(0.01)
        assert len(lanes) == 1
    assert done == ["b1", "a1", "a2", "a3"]
    assert len(lanes) == 0
