"""`TurnQueue.claim` and `Outbox.claim_slots` that wait: new work is handed to them, never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.domain.events import SLOTS, TURNS, SlotsDue, TurnsDue
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.slots import Slot
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import Claimed
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import OTHER_CHAT, answer, route, said

LONG_S, SHORT_S = 10.0, 0.05
MANY = 40
CHANNELS = ["telegram", "slack"]
GROUP = route(SessionId("chat:g"))


@asynccontextmanager
async def waiting(scene: Scene, limit: int = 5, wait_s: float = LONG_S) -> AsyncGenerator[asyncio.Task[list[TurnId]]]:
    """A claim of turns that waits by now."""

    async def claim() -> list[TurnId]:
        return _turns(await scene.store.claim(NODE, limit, wait_s=wait_s))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(claim(), name="a claim that waits")
        await asyncio.sleep(SHORT_S)
        assert not task.done()
        yield task


@asynccontextmanager
async def waiting_for_slots(scene: Scene) -> AsyncGenerator[asyncio.Task[list[str]]]:
    """A claim of slots that waits by now."""

    async def claim() -> list[str]:
        return _texts(await scene.store.claim_slots(NODE, CHANNELS, 5, wait_s=LONG_S))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(claim(), name="a claim that waits")
        await asyncio.sleep(SHORT_S)
        assert not task.done()
        yield task


def _turns(claimed: Sequence[Claimed]) -> list[TurnId]:
    return [one.lease.turn for one in claimed]


def _texts(slots: Sequence[Slot]) -> list[str]:
    return [slot.text for slot in slots]


# --- turns ----------------------------------------------------------------------------------


async def test_claim_returns_due_turns_without_waiting(scene: Scene) -> None:
    """Twice in a row: the second finds what came between."""
    for to in (route(), GROUP):
        accepted = await scene.say(to=to)
        assert _turns(await scene.store.claim(NODE, wait_s=LONG_S)) == [accepted.turn]


@pytest.mark.conformance
async def test_a_turn_that_waits_for_its_rest_is_passed(scene: Scene, clock: FakeClock) -> None:
    """A claim of one takes the turn behind it."""
    first, other = await scene.say(cut=True), await scene.say(to=GROUP)
    assert _turns([*await scene.store.claim(NODE), *await scene.store.claim(NODE)]) == [other.turn]
    clock.advance(1.5)
    assert (await scene.claim()).turn == first.turn


@pytest.mark.conformance
async def test_a_waiting_claim_is_handed_a_new_turn(scene: Scene) -> None:
    """One of two; the other one gets none, or waits on. It runs under that lease, and nobody else gets it."""
    async with waiting(scene) as first, waiting(scene) as second:
        accepted = await scene.say()
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(SHORT_S)
        for one in (first, second):
            one.cancel()
    assert [one.result() for one in (first, second) if not one.cancelled() and one.result()] == [[accepted.turn]]
    assert await scene.state(accepted.turn) is TurnState.RUNNING
    assert await scene.store.claim(OTHER_NODE) == []


async def test_a_waiting_claim_is_handed_the_next_turn_of_a_session(scene: Scene) -> None:
    """The end of one makes the next one claimable."""
    lease = await scene.running()
    following = await scene.say()
    async with waiting(scene) as claim:
        assert await scene.finish(lease)
    assert claim.result() == [following.turn]


async def test_a_turn_that_was_given_back_is_handed_out_again(scene: Scene) -> None:
    """Its fence is higher then."""
    lease = await scene.running()
    async with waiting(scene) as claim:
        await scene.store.release(lease)
    assert claim.result() == [lease.turn]


async def test_a_duplicate_is_handed_to_nobody(scene: Scene) -> None:
    """The claim waits on."""
    lease = await scene.running()
    known = (await scene.view(lease.turn)).inputs[0].message
    async with waiting(scene, wait_s=4 * SHORT_S) as claim:
        assert (await scene.say(event_key=known.event_key)).duplicate
    assert claim.result() == []


async def test_turn_beyond_the_claims_limit_is_left_for_the_next(scene: Scene) -> None:
    """It need not wait."""
    async with waiting(scene, limit=1) as claim:
        one, two = await scene.say(), await scene.say(to=GROUP)
    rest = await scene.store.claim(NODE, wait_s=LONG_S)
    assert sorted([*claim.result(), *_turns(rest)]) == sorted([one.turn, two.turn])


@pytest.mark.conformance
async def test_a_claim_of_none_waits_for_a_wake_up(scene: Scene) -> None:
    """As whoever has no room does. It takes none of those that are ready."""
    await scene.say()
    async with waiting(scene, limit=0) as claim:
        scene.store.event_bus.publish(TURNS, TurnsDue())
    assert claim.result() == []
    assert await scene.store.claim(NODE, 0) == []


async def test_a_wake_up_makes_a_claim_look_by_the_clock(scene: Scene) -> None:
    """A turn that waited for the rest of its message is due by time alone."""
    held = await scene.say(cut=True)
    async with waiting(scene) as claim:
        scene.clock.advance(2)
        scene.store.event_bus.publish(TURNS, TurnsDue())
    assert (claim.result() or _turns(await scene.store.claim(NODE, wait_s=LONG_S))) == [held.turn]


@pytest.mark.conformance
async def test_turn_due_by_time_alone_is_found_by_a_repeated_claim(scene: Scene) -> None:
    """The delay is about a second."""
    held = await scene.say(cut=True)
    assert await scene.store.claim(NODE, wait_s=SHORT_S) == []
    scene.clock.advance(2)
    found: list[TurnId] = []
    async with asyncio.timeout(LONG_S):
        while not found:
            found = _turns(await scene.store.claim(NODE, wait_s=0.3))
    assert found == [held.turn]


@pytest.mark.conformance
async def test_a_claim_that_is_cancelled_while_it_waits_holds_nothing(scene: Scene) -> None:
    """The next one gets what comes."""
    async with waiting(scene) as claim:
        claim.cancel()
        with suppress(asyncio.CancelledError):
            await claim
    accepted = await scene.say()
    assert _turns(await scene.store.claim(NODE, wait_s=LONG_S)) == [accepted.turn]


@pytest.mark.conformance
async def test_many_turns_at_once_are_each_handed_out_once(scene: Scene) -> None:
    """However they come: together with a claim, before it, after it."""
    found: list[TurnId] = []

    async def claim_all() -> None:
        while len(found) < MANY:
            found.extend(_turns(await scene.store.claim(NODE, 3, wait_s=LONG_S)))

    async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as group:
        group.create_task(claim_all(), name="a claimer")
        says = [
            group.create_task(scene.say(to=route(SessionId(f"chat:{n}"))), name=f"message {n}") for n in range(MANY)
        ]
    assert sorted(found) == sorted(say.result().turn for say in says)


# --- slots ----------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_a_waiting_claim_is_handed_a_new_slot(scene: Scene) -> None:
    """And nobody else gets it."""
    lease = await scene.running()
    async with waiting_for_slots(scene) as claim:
        await scene.store.plan(lease, answer(), given=[], slots=[said("a")])
    assert claim.result() == ["a"]
    assert await scene.store.claim_slots(OTHER_NODE, CHANNELS, 5) == []


async def test_next_slot_is_handed_out_after_the_one_before(scene: Scene) -> None:
    """Not before."""
    lease = await scene.running()
    await scene.store.plan(lease, answer(), given=[], slots=[said("a"), said("b")])
    (first,) = await scene.store.claim_slots(NODE, CHANNELS, 5, wait_s=LONG_S)
    async with waiting_for_slots(scene) as claim:
        await scene.store.slot_sent(first, ("m1",))
    assert claim.result() == ["b"]


async def test_slots_of_other_channels_are_left_to_others(scene: Scene) -> None:
    """A claim that waits names its channels too; a wake-up lets another one name more."""
    lease = await scene.running()
    async with asyncio.TaskGroup() as group:
        nothing = group.create_task(scene.store.claim_slots(NODE, [], 5, wait_s=LONG_S), name="no channel has room")
        await asyncio.sleep(SHORT_S)
        await scene.store.plan(lease, answer(), given=[], slots=[said("a"), said("b", where=OTHER_CHAT)])
        scene.store.event_bus.publish(SLOTS, SlotsDue())
    assert nothing.result() == []
    assert sorted(_texts(await scene.store.claim_slots(NODE, CHANNELS, 5, wait_s=LONG_S))) == ["a", "b"]


# --- the history ------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_the_history_comes_with_a_turn_where_it_is_asked_for(scene: Scene) -> None:
    """As the view of it says: the newest so many, after the summary that its session knows."""
    ended = [await scene.ended() for _ in range(3)]
    await scene.say()
    (claimed,) = await scene.store.claim(NODE, history=2)
    assert claimed.view is not None
    assert claimed.history == await scene.store.history(MAIN, claimed.view.turn.epoch, 2)
    assert len(claimed.history or ()) == 2
    assert await scene.finish(claimed.lease, TurnState.FAILED)
    assert await scene.store.compact(MAIN, 0, ended[1], "in short", None)
    async with asyncio.TaskGroup() as group:
        claim = group.create_task(scene.store.claim(NODE, wait_s=LONG_S, history=40), name="a claim that waits")
        await asyncio.sleep(SHORT_S)
        await scene.say()
    (later,) = claim.result()
    assert [view.turn.id for view in later.history or ()] == [ended[2], claimed.lease.turn]
    assert {view.session.summary for view in later.history or ()} == {"in short"}


@pytest.mark.conformance
async def test_history_with_a_claim_may_be_absent_when_not_cached(scene: Scene) -> None:
    """Nobody has asked for any of it yet: a store may say so, or give all of it."""
    ended = [await scene.ended() for _ in range(10)]
    await scene.say()
    (claimed,) = await scene.store.claim(NODE, history=40)
    assert claimed.view is not None
    found = await scene.store.history(MAIN, claimed.view.turn.epoch, 40)
    assert [view.turn.id for view in found] == ended
    assert claimed.history in (None, found)


async def test_a_new_session_has_an_empty_history(scene: Scene) -> None:
    """An empty history differs from none."""
    await scene.say()
    assert [claimed.history for claimed in await scene.store.claim(NODE, history=40)] == [[]]


@pytest.mark.parametrize(("kind", "history"), [(TurnKind.COMMAND, 40), (TurnKind.MODEL, 0)])
async def test_no_history_comes_where_nobody_reads_it(scene: Scene, kind: TurnKind, history: int) -> None:
    """A command is read alone."""
    await scene.ended()
    await scene.say(kind=kind)
    assert [claimed.history for claimed in await scene.store.claim(NODE, history=history)] == [None]
