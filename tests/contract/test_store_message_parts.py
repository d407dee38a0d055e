"""`Intake.accept` of messages that their platform cut off: the turn waits briefly for the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.domain.events import TURNS, TurnsDue
from gateway.domain.ids import Principal, SessionId
from gateway.domain.messages import Conversation
from gateway.domain.routes import Route, WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.turns import TurnKind, TurnState
from gateway.ports import ControlEffect
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, WAITING, route

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
    """A cut-off command, too, goes on in plain text."""
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


async def test_message_after_the_last_part_begins_its_own_turn(scene: Scene) -> None:
    """The last input is whole."""
    first = await scene.say("a", cut=True)
    await scene.say("b")
    assert (await scene.say("c")).turn != first.turn


async def test_message_after_the_wait_for_parts_begins_its_own_turn(scene: Scene, clock: FakeClock) -> None:
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


@pytest.mark.parametrize("more", [{"reply_to": "7"}, {"quoted": "a forwarded text"}, {"unread": "a photo"}])
@KINDS
async def test_message_with_more_than_text_is_no_next_part(scene: Scene, kind: TurnKind, more: dict[str, Any]) -> None:
    """A platform cuts plain text into plain text: a reply, a quote or a picture is a message of its own."""
    first = await scene.say("a", cut=True, kind=kind)
    other = await scene.say("b", **more)
    assert other.turn != first.turn
    assert [one.continues for one in (await scene.view(other.turn)).inputs] == [False]


@KINDS
async def test_a_command_goes_on_with_nothing(scene: Scene, kind: TurnKind) -> None:
    """It runs as a command, and what it follows stays as it was sent."""
    first = await scene.say("a", cut=True, kind=kind)
    command = await scene.say("/shell uptime", kind=TurnKind.COMMAND)
    assert command.turn != first.turn
    assert [(await scene.view(one)).turn.kind for one in (first.turn, command.turn)] == [kind, TurnKind.COMMAND]


async def test_another_message_of_the_person_ends_the_wait(scene: Scene) -> None:
    """The platform sends the parts one after the other: after anything else there is no rest, and nobody waits."""
    first = await scene.say("a", cut=True)
    async with scene.store.event_bus.subscribe(TURNS) as heard:
        await scene.say("an answer", reply_to="7")
        assert await anext(heard) == TurnsDue()
    assert (await scene.say("b")).turn != first.turn
    assert (await scene.claim()).turn == first.turn


@pytest.mark.parametrize(("follows", "joins"), [("m7", True), ("m8", False), ("", True)])
async def test_next_part_has_the_next_number_where_messages_count(scene: Scene, follows: str, joins: bool) -> None:
    """On other platforms time alone decides."""
    first = await scene.say("a", cut=True, event_key="m7")
    assert ((await scene.say("b", follows=follows)).turn == first.turn) is joins


async def test_each_part_follows_the_one_before_it(scene: Scene) -> None:
    """Not the first one; and what is kept says nothing of it."""
    first = await scene.say("a", cut=True, event_key="m7", follows="m6")
    assert (await scene.say("b", cut=True, event_key="m8", follows="m7")).turn == first.turn
    assert (await scene.say("c", event_key="m9", follows="m7")).turn != first.turn
    assert [one.message.follows for one in (await scene.view(first.turn)).inputs] == ["", ""]


# --- how much, how long ---------------------------------------------------------------------


async def test_eight_parts_are_one_message_at_most(scene: Scene) -> None:
    """Then the turn is due at once, and what comes next is a message of its own."""
    first = await scene.say("0", cut=True)
    for part in range(1, 7):
        assert (await scene.say(str(part), cut=True)).turn == first.turn
    assert not await scene.store.claim(NODE)
    async with scene.store.event_bus.subscribe(TURNS) as heard:
        assert (await scene.say("7", cut=True)).turn == first.turn
        assert await anext(heard) == TurnsDue()
    assert (await scene.say("8", cut=True)).turn != first.turn
    assert len((await scene.view(first.turn)).inputs) == 8
    assert (await scene.claim()).turn == first.turn


async def test_overheard_message_is_no_part(scene: Scene) -> None:
    """A turn that is given talk of the group may still have its eight parts."""
    for _ in range(8):
        await scene.overhear("beside", to=GROUP)
    first = await scene.say("a", cut=True, to=GROUP, event_key="m7")
    assert (await scene.say("b", cut=True, to=GROUP, follows="m7")).turn == first.turn
    assert not await scene.store.claim(NODE)


async def test_cut_message_waits_six_seconds_at_most(scene: Scene, clock: FakeClock) -> None:
    """From the arrival of the first part, however many follow."""
    first = await scene.say("0", cut=True)
    for part in range(1, 5):
        clock.advance(1.4)
        assert (await scene.say(str(part), cut=True)).turn == first.turn
    clock.advance(0.399)
    assert not await scene.store.claim(NODE)
    clock.advance(0.001)
    assert (await scene.say("5")).turn != first.turn
    assert (await scene.claim()).turn == first.turn


async def test_going_on_comes_before_steering(scene: Scene) -> None:
    """The rest belongs to its beginning, though a model turn of the same person is under way."""
    active = await scene.running()
    command = await scene.say("/shell a", cut=True, kind=TurnKind.COMMAND)
    rest = await scene.say("b", running=WhileRunning.STEER)
    assert (rest.turn, rest.steered) == (command.turn, False)
    assert len((await scene.view(active.turn)).inputs) == 1


async def test_a_cut_message_that_steers_holds_nothing(scene: Scene) -> None:
    """The turn runs already."""
    lease = await scene.running()
    assert (await scene.say("a", cut=True, running=WhileRunning.STEER)).turn == lease.turn
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
    async with scene.store.event_bus.subscribe(TURNS) as heard:
        await scene.say("a", cut=True)
        await scene.say("b", cut=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(heard)
    async with scene.store.event_bus.subscribe(TURNS) as heard:
        await scene.say("c")
        assert await anext(heard) == TurnsDue()


async def test_waiting_is_announced_once_for_one_text(scene: Scene) -> None:
    """Its beginning was told to wait behind the decision; the rest reports it only."""
    await scene.parked()
    first = await scene.say("a", cut=True, say_if_waiting=WAITING)
    rest = await scene.say("b", say_if_waiting=WAITING)
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
