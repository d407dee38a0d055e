"""Wake-ups that a transition publishes after its commit; the announced rows can be read by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from gateway.domain.events import (
    SESSIONS,
    SLOTS,
    TURNS,
    Changed,
    LiveEvent,
    SlotsDue,
    TurnsDue,
    TurnWoken,
    session_topic,
    turn_topic,
)
from gateway.domain.ids import SessionId, SlotId
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.turns import TurnKind, TurnState
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.makers import CHAT, PAGE, answer, chat, deny, drop, inbound, new_wait, result, route, said, seconds
from tests.support.patience import PATIENCE_S

GROUP = route(SessionId("chat:g"))
CHANGED = Changed(session=MAIN)


async def _heard(scene: Scene, topic: str, doing: Awaitable[object]) -> list[LiveEvent]:
    """Everything that was published on `topic` by one transition."""
    events: list[LiveEvent] = []
    async with scene.store.event_bus.subscribe(topic) as heard:
        await doing
        try:
            async with asyncio.timeout(0.05):
                async for event in heard:
                    events.append(event)
        except TimeoutError:
            return events
    raise AssertionError("the subscription ended by itself")


# --- turns ----------------------------------------------------------------------------------


async def test_a_new_turn_can_be_claimed(scene: Scene) -> None:
    """Runners hear of it."""
    assert TurnsDue() in await _heard(scene, TURNS, scene.say())


async def test_a_late_holder_hears_that_its_turn_was_taken_back(scene: Scene) -> None:
    """Its machine stood still and goes on: it need not find out by what is refused."""
    lease = await scene.running()
    scene.clock.advance(16)
    assert await _heard(scene, turn_topic(lease.turn), scene.store.reclaim()) == [TurnWoken(turn=lease.turn)]


async def test_a_decided_turn_can_be_claimed(scene: Scene) -> None:
    """A press on a parked turn wakes the runners."""
    asked = await scene.parked()
    assert TurnsDue() in await _heard(scene, TURNS, scene.press(asked.wait))


async def test_an_expired_wait_makes_its_turn_claimable(scene: Scene) -> None:
    """Like a press."""
    await scene.parked(ttl_s=60)
    scene.clock.advance(60)
    assert TurnsDue() in await _heard(scene, TURNS, scene.store.expire_waits())


async def test_the_next_turn_of_a_session_can_be_claimed_when_one_ends(scene: Scene) -> None:
    """By its holder, or by a stop while nobody held it."""
    lease = await scene.running()
    await scene.say("next")
    assert TurnsDue() in await _heard(scene, TURNS, scene.finish(lease))
    parked = await scene.claim()
    await scene.plan(parked)
    asked = await scene.ask(parked, [new_wait(1, expires_in=seconds(60))])
    await scene.store.park(asked.lease)
    await scene.say("next")
    assert TurnsDue() in await _heard(scene, TURNS, scene.stop())


async def test_a_fifth_command_can_be_claimed_when_one_parks(scene: Scene) -> None:
    """Parked ones leave their place."""
    asked = await scene.asked(kind=TurnKind.COMMAND)
    for _ in range(3):
        await scene.running(kind=TurnKind.COMMAND)
    await scene.say(kind=TurnKind.COMMAND)
    assert not await scene.store.claim(NODE)
    assert TurnsDue() in await _heard(scene, TURNS, scene.store.park(asked.lease))
    await scene.claim()


async def test_a_command_that_ends_with_none_behind_it_wakes_nobody(scene: Scene) -> None:
    """There is nothing to be claimed."""
    lease = await scene.running(kind=TurnKind.COMMAND)
    assert TurnsDue() not in await _heard(scene, TURNS, scene.finish(lease))


async def test_a_turn_given_back_can_be_claimed(scene: Scene) -> None:
    """Released, reclaimed or voided."""
    lease = await scene.running()
    assert TurnsDue() in await _heard(scene, TURNS, scene.store.release(lease))
    await scene.claim()
    scene.clock.advance(16)
    assert TurnsDue() in await _heard(scene, TURNS, scene.store.reclaim())
    await scene.claim()
    assert TurnsDue() in await _heard(scene, TURNS, scene.store.void_leases("here"))


# --- one turn -------------------------------------------------------------------------------


async def test_a_holder_hears_of_a_decision(scene: Scene) -> None:
    """Approved, denied or withdrawn: the turn is told."""
    asked = await scene.asked(2)
    woken = TurnWoken(turn=asked.turn)
    topic = turn_topic(asked.turn)
    assert woken in await _heard(scene, topic, scene.press(asked.wait))
    assert woken in await _heard(scene, topic, scene.press(asked.waits[1], deny()))


async def test_a_holder_hears_of_an_expiry(scene: Scene) -> None:
    """Nobody decided in time."""
    asked = await scene.asked(ttl_s=60)
    scene.clock.advance(60)
    topic = turn_topic(asked.turn)
    assert TurnWoken(turn=asked.turn) in await _heard(scene, topic, scene.store.expire_waits())


async def test_a_holder_hears_of_a_stop(scene: Scene) -> None:
    """At once, so that running tools are killed within a second."""
    lease = await scene.running()
    assert TurnWoken(turn=lease.turn) in await _heard(scene, turn_topic(lease.turn), scene.stop())


async def test_a_holder_hears_of_a_steering_message(scene: Scene) -> None:
    """It may still be given at the next step."""
    lease = await scene.running()
    topic = turn_topic(lease.turn)
    assert TurnWoken(turn=lease.turn) in await _heard(scene, topic, scene.say("more", running=WhileRunning.STEER))


async def test_a_lost_press_wakes_nobody(scene: Scene) -> None:
    """Nothing was decided by it."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    assert await _heard(scene, turn_topic(asked.turn), scene.press(asked.wait, deny())) == []


# --- slots ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "being_sent", "wakes"), [(CHAT, False, True), (CHAT, True, False), (PAGE, False, False)]
)
async def test_changed_slot_wakes_the_sender(scene: Scene, where: Conversation, being_sent: bool, wakes: bool) -> None:
    """While it is being sent the sender sees it afterwards; the page reads rows."""
    lease = await scene.running()
    early = NewSlot(conversation=where, kind=SlotKind.ANSWER, text="On", n=0, id=SlotId("early"))
    await scene.store.open_slot(lease, early)
    if being_sent:
        assert len(await scene.store.claim_slots(NODE, ["telegram"], 5)) == 1
    else:
        await scene.send_all()
    more = scene.store.open_slot(lease, replace(early, text="Once"))
    assert (SlotsDue() in await _heard(scene, SLOTS, more)) is wakes


async def test_a_new_slot_can_be_sent(scene: Scene) -> None:
    """The slot may be an answer, a card, a reply or a refusal."""
    lease = await scene.planned()
    plan = scene.store.plan(lease, answer(), given=[], slots=[said()])
    assert SlotsDue() in await _heard(scene, SLOTS, plan)
    ask = scene.ask(lease, [new_wait(1, expires_in=seconds(60))])
    assert SlotsDue() in await _heard(scene, SLOTS, ask)
    assert SlotsDue() in await _heard(scene, SLOTS, scene.stop())
    refused = scene.store.drop(inbound(where=chat(5)), drop(told=True), "No.")
    assert SlotsDue() in await _heard(scene, SLOTS, refused)


async def test_an_edited_card_can_be_sent(scene: Scene) -> None:
    """A decision is shown at once."""
    asked = await scene.parked()
    await scene.send_all()
    assert SlotsDue() in await _heard(scene, SLOTS, scene.press(asked.wait))


@pytest.mark.conformance
async def test_the_next_slot_can_be_sent_when_one_is_through(scene: Scene) -> None:
    """Its conversation is free again: sent or dead."""
    lease = await scene.running()
    await scene.store.plan(lease, answer(), given=[], slots=[said("a"), said("b"), said("c")])
    (first,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    assert SlotsDue() in await _heard(scene, SLOTS, scene.store.slot_sent(first, ("m",)))
    (second,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    assert SlotsDue() in await _heard(scene, SLOTS, scene.store.slot_dead(second, "no"))


async def test_a_slot_on_the_page_wakes_no_sender(scene: Scene) -> None:
    """It is sent already."""
    lease = await scene.running()
    plan = scene.store.plan(lease, answer(), given=[], slots=[said(where=PAGE)])
    assert await _heard(scene, SLOTS, plan) == []


# --- sessions -------------------------------------------------------------------------------


async def test_every_change_of_a_session_is_announced(scene: Scene) -> None:
    """On its own topic and on the one of all sessions; another session's readers hear nothing."""
    lease = await scene.planned()
    ttl = seconds(60)
    wait = new_wait(1, expires_in=ttl)
    doings = [
        lambda: scene.say("more", running=WhileRunning.STEER),
        lambda: scene.ask(lease, [wait]),
        lambda: scene.store.park(lease),
        lambda: scene.press(wait.id),
        lambda: scene.claim(),
        lambda: scene.send_all(),
        lambda: scene.stop(),
    ]
    for n, doing in enumerate(doings):
        topic = SESSIONS if n % 2 else session_topic(MAIN)
        assert CHANGED in await _heard(scene, topic, doing())
    assert await _heard(scene, session_topic(GROUP.session), scene.say("x")) == []


async def test_an_answer_alone_is_announced(scene: Scene) -> None:
    """Nothing else of its session changes: no call, no slot, no message given."""
    lease = await scene.running()
    plan = scene.store.plan(lease, answer(), given=[], slots=[])
    assert await _heard(scene, session_topic(MAIN), plan) == [CHANGED]


@pytest.mark.conformance
async def test_announced_change_is_readable(scene: Scene) -> None:
    """The wake-up comes after the commit: whoever reads on it sees the change."""
    turn = asyncio.get_running_loop().create_future()
    seen: list[TurnState] = []

    async def reader() -> None:
        async with scene.store.event_bus.subscribe(TURNS) as heard:
            turn.set_result(None)
            async for _ in heard:
                lease = (await scene.store.claim(NODE))[0].lease
                seen.append(await scene.state(lease.turn))
                return

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(reader(), name="reader")
        await turn
        await scene.say()
    assert seen == [TurnState.RUNNING]


@pytest.mark.conformance
async def test_a_refused_transition_announces_nothing(scene: Scene) -> None:
    """It wrote nothing."""
    lease = await scene.running()
    assert await _heard(scene, session_topic(MAIN), scene.store.park(lease)) == []
    await scene.finish(lease)
    assert await _heard(scene, session_topic(MAIN), scene.store.release(lease)) == []


async def test_a_result_is_announced(scene: Scene) -> None:
    """The page shows it as it comes."""
    lease = await scene.started()
    assert CHANGED in await _heard(scene, session_topic(MAIN), scene.store.finish_step(lease, 1, result()))
