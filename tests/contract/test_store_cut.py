"""`Intake.accept` of messages that their platform cut off: the turn waits a moment for the rest."""

from __future__ import annotations

import asyncio

import pytest

from gateway.model.ids import Principal, SessionId
from gateway.model.live import TURNS, TurnsDue
from gateway.model.messages import Conversation
from gateway.model.sessions import Route, TurnKind, TurnState
from gateway.model.slots import SlotKind
from gateway.ports import ControlEffect
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, route

GROUP = route(SessionId("chat:g"))
KINDS = pytest.mark.parametrize("kind", list(TurnKind))


@KINDS
async def test_a_cut_message_waits_for_its_rest(scene: Scene, clock: FakeClock, kind: TurnKind) -> None:
    """A second and a half, then it is claimed as it is."""
    accepted = await scene.say(cut=True, kind=kind)
    clock.advance(1.499)
    assert not await scene.store.claim(NODE)
    clock.advance(0.001)
    assert (await scene.claim()).turn == accepted.turn


@KINDS
async def test_the_rest_joins_and_ends_the_wait(scene: Scene, kind: TurnKind) -> None:
    """Whatever kind it would be alone: a cut-off command goes on in plain text."""
    first = await scene.say("a", cut=True, kind=kind)
    rest = await scene.say("b", kind=TurnKind.MODEL)
    assert (rest.turn, rest.steered, rest.duplicate) == (first.turn, False, False)
    view = await scene.view(first.turn)
    assert [(one.message.text, one.message.cut, one.continues, one.given) for one in view.inputs] == [
        ("a", True, False, None),
        ("b", False, True, None),
    ]
    assert (await scene.claim()).turn == first.turn


async def test_a_rest_that_is_cut_too_waits_again(scene: Scene, clock: FakeClock) -> None:
    """For the same time from its own arrival."""
    first = await scene.say("a", cut=True)
    clock.advance(1)
    await scene.say("b", cut=True)
    clock.advance(1)
    assert not await scene.store.claim(NODE)
    assert (await scene.say("c")).turn == first.turn
    assert [one.continues for one in (await scene.view(first.turn)).inputs] == [False, True, True]
    assert (await scene.claim()).turn == first.turn


async def test_what_comes_after_the_rest_is_a_turn_of_its_own(scene: Scene) -> None:
    """The last input is whole."""
    first = await scene.say("a", cut=True)
    await scene.say("b")
    assert (await scene.say("c")).turn != first.turn


async def test_what_comes_when_the_wait_is_over_is_a_turn_of_its_own(scene: Scene, clock: FakeClock) -> None:
    """A turn may be queued for hours behind another: a later word does not go on with it."""
    await scene.running()
    first = await scene.say("a", cut=True)
    clock.advance(1.5)
    assert (await scene.say("b")).turn != first.turn


@pytest.mark.parametrize(
    ("who", "where", "to"),
    [(BOB, CHAT, route()), (ANN_TELEGRAM, OTHER_CHAT, route()), (ANN_TELEGRAM, CHAT, GROUP)],
)
async def test_only_the_same_person_in_the_same_place_goes_on(
    scene: Scene, who: Principal, where: Conversation, to: Route
) -> None:
    """Anything else is a message of its own."""
    first = await scene.say("a", cut=True)
    other = await scene.say("b", who=who, where=where, to=to)
    assert other.turn != first.turn
    assert [one.continues for one in (await scene.view(other.turn)).inputs] == [False]


async def test_going_on_comes_before_steering(scene: Scene) -> None:
    """The rest belongs to its beginning, though a model turn of the same person is under way."""
    active = await scene.running()
    command = await scene.say("/shell a", cut=True, kind=TurnKind.COMMAND)
    rest = await scene.say("b", steer=True)
    assert (rest.turn, rest.steered) == (command.turn, False)
    assert len((await scene.view(active.turn)).inputs) == 1


async def test_a_cut_message_that_steers_holds_nothing(scene: Scene) -> None:
    """The turn runs already."""
    lease = await scene.running()
    assert (await scene.say("a", cut=True, steer=True)).turn == lease.turn
    await scene.store.release(lease)
    assert (await scene.claim()).turn == lease.turn


async def test_others_are_claimed_meanwhile(scene: Scene, clock: FakeClock) -> None:
    """In their order; the one that was held back keeps its place."""
    held = await scene.say(cut=True)
    other, command = await scene.say(to=GROUP), await scene.say(where=OTHER_CHAT, kind=TurnKind.COMMAND)
    assert [(await scene.claim()).turn for _ in range(2)] == [other.turn, command.turn]
    behind = await scene.say(to=route(SessionId("chat:h")))
    clock.advance(1.5)
    assert [(await scene.claim()).turn for _ in range(2)] == [held.turn, behind.turn]


async def test_runners_hear_when_the_rest_came(scene: Scene) -> None:
    """And not before: there is nothing to claim."""
    async with scene.store.live.subscribe(TURNS) as heard:
        await scene.say("a", cut=True)
        await scene.say("b", cut=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(heard)
    async with scene.store.live.subscribe(TURNS) as heard:
        await scene.say("c")
        assert await anext(heard) == TurnsDue()


async def test_waiting_is_said_once_for_one_text(scene: Scene) -> None:
    """Its beginning was told to wait behind the decision; the rest reports it only."""
    await scene.parked()
    first = await scene.say("a", cut=True, say_if_waiting="Wait.")
    rest = await scene.say("b", say_if_waiting="Wait.")
    assert (first.waiting, rest.waiting) == (True, True)
    assert len(await scene.slots(kind=SlotKind.REPLY)) == 1


async def test_a_new_history_takes_it_along(scene: Scene) -> None:
    """It was never started, so /new moves it and its rest still joins."""
    first = await scene.say("a", cut=True)
    await scene.stop(ControlEffect.RESET)
    assert (await scene.say("b")).turn == first.turn
    assert (await scene.view(first.turn)).turn.epoch == 1


async def test_given_back_it_is_not_held_again(scene: Scene, clock: FakeClock) -> None:
    """The wait was before its first start."""
    await scene.say(cut=True)
    clock.advance(2)
    lease = await scene.claim()
    await scene.store.release(lease)
    assert (await scene.claim()).turn == lease.turn
    assert await scene.state(lease.turn) is TurnState.RUNNING
