"""`Intake.accept` and `drop` of albums: each picture arrives as a separate message; together they are one turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.ids import Principal, SessionId
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.routes import Drop, DropReason, Route, WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.ports import ControlEffect
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, WAITING, attachment, inbound, route

GROUP = route(SessionId("chat:g"))
OF_ONE: dict[str, Any] = {"album": "a1.7", "attachments": (attachment(),)}


def texts(view: TurnView) -> list[tuple[str, bool, bool]]:
    """Return the turn's texts, each with whether it continues another and whether it was overheard."""
    return [(one.message.text, one.continues, one.context) for one in view.inputs]


async def beside(scene: Scene, text: str, *, who: Principal = ANN_TELEGRAM, album: str = "a1.7") -> Inbound:
    """A picture of an album is sent in the group without a word for the bot."""
    message = replace(inbound(text, direct=False, who=who), addressed=False, **{**OF_ONE, "album": album})
    assert await scene.store.drop(message, Drop(reason=DropReason.CONTEXT, told=False, route=GROUP), "")
    return message


@pytest.mark.parametrize("kind", list(TurnKind))
async def test_an_album_is_one_turn(scene: Scene, clock: FakeClock, kind: TurnKind) -> None:
    """It waits a second after each picture."""
    first = await scene.say("what is this?", kind=kind, **OF_ONE)
    clock.advance(0.9)
    second = await scene.say("", **OF_ONE)
    assert (second.turn, second.steered, second.duplicate) == (first.turn, False, False)
    clock.advance(0.999)
    assert not await scene.store.claim(NODE)
    clock.advance(0.001)
    assert (await scene.claim()).turn == first.turn
    view = await scene.view(first.turn)
    assert texts(view) == [("what is this?", False, False), ("", True, False)]
    assert [one.message.attachments for one in view.inputs] == [(attachment(),)] * 2


async def test_an_album_that_comes_again_writes_nothing(scene: Scene, clock: FakeClock) -> None:
    """The platform tells all of it again when the daemon died before it was confirmed."""
    for again in (False, True):
        for key in ("m7", "m8"):
            assert (await scene.say("", event_key=key, **OF_ONE)).duplicate is again
    clock.advance(1)
    lease = await scene.claim()
    assert (await scene.say("", event_key="m7", **OF_ONE)).duplicate
    assert len((await scene.view(lease.turn)).inputs) == 2


async def test_an_album_cut_in_two_by_a_crash_is_whole(scene: Scene, clock: FakeClock) -> None:
    """While its turn is queued behind another one, the rest joins however late it comes."""
    await scene.running()
    first = await scene.say("look", event_key="m7", **OF_ONE)
    clock.advance(100)
    assert (await scene.say("look", event_key="m7", **OF_ONE)).duplicate
    assert (await scene.say("", event_key="m8", **OF_ONE)).turn == first.turn
    assert len((await scene.view(first.turn)).inputs) == 2


@pytest.mark.parametrize("more", [OF_ONE, {"cut": True}])
async def test_a_restart_waits_again_for_the_rest(scene: Scene, clock: FakeClock, more: dict[str, Any]) -> None:
    """The platform tells it again as soon as it is asked, so the turn does not begin before."""
    first = await scene.say("a", **more)
    clock.advance(5)
    assert await scene.store.void_leases("here") == 0
    clock.advance(1.499)
    assert not await scene.store.claim(NODE)
    rest: dict[str, Any] = {**more, "cut": False}
    assert (await scene.say("b", **rest)).turn == first.turn
    clock.advance(1)
    assert (await scene.claim()).turn == first.turn


async def test_a_restart_holds_no_turn_that_was_begun(scene: Scene, clock: FakeClock) -> None:
    """Nor one that never waited."""
    await scene.say("a", **OF_ONE)
    other = await scene.say("b", to=GROUP)
    clock.advance(1)
    leases = [await scene.claim() for _ in range(2)]
    assert other.turn in {lease.turn for lease in leases}
    assert await scene.store.void_leases("here") == 2
    assert {(await scene.claim()).turn for _ in range(2)} == {lease.turn for lease in leases}


async def test_ten_pictures_are_due_at_once(scene: Scene) -> None:
    """No album has more."""
    turns = {(await scene.say("", **OF_ONE)).turn for _ in range(9)}
    assert not await scene.store.claim(NODE)
    turns.add((await scene.say("", **OF_ONE)).turn)
    assert turns == {(await scene.claim()).turn}


async def test_an_album_waits_six_seconds_at_most(scene: Scene, clock: FakeClock) -> None:
    """From its first picture on."""
    first = await scene.say("", **OF_ONE)
    for _ in range(6):
        clock.advance(0.99)
        await scene.say("", **OF_ONE)
    clock.advance(0.059)
    assert not await scene.store.claim(NODE)
    clock.advance(0.001)
    assert (await scene.claim()).turn == first.turn


@pytest.mark.parametrize("more", [{"album": "a1.8"}, {"album": ""}])
async def test_another_message_ends_the_wait_of_an_album(scene: Scene, more: dict[str, Any]) -> None:
    """Another album, or a text, is a turn of its own; the album's is due."""
    first = await scene.say("", **OF_ONE)
    other = await scene.say("and?", **{**OF_ONE, **more})
    assert other.turn != first.turn
    assert (await scene.claim()).turn == first.turn


async def test_a_text_right_after_an_album_is_its_own_turn(scene: Scene) -> None:
    """It was not cut off from anything."""
    first = await scene.say("", **OF_ONE)
    assert (await scene.say("and?")).turn != first.turn


@pytest.mark.parametrize(
    ("who", "where", "to"),
    [(BOB, CHAT, route()), (ANN_TELEGRAM, OTHER_CHAT, route()), (ANN_TELEGRAM, CHAT, GROUP)],
)
async def test_an_album_is_of_one_person_in_one_place(
    scene: Scene, who: Principal, where: Conversation, to: Route
) -> None:
    """The id alone joins nothing."""
    first = await scene.say("", **OF_ONE)
    assert (await scene.say("", who=who, where=where, to=to, **OF_ONE)).turn != first.turn


# --- beside other turns -----------------------------------------------------------------------


@pytest.mark.parametrize("running", [WhileRunning.STEER, WhileRunning.QUEUE])
async def test_an_album_steers_no_other_turn(scene: Scene, clock: FakeClock, running: WhileRunning) -> None:
    """A turn under way would be given its first picture alone."""
    lease = await scene.running()
    first = await scene.say("", running=running, **OF_ONE)
    second = await scene.say("", running=running, **OF_ONE)
    assert (first.turn, first.steered) == (second.turn, False)
    assert first.turn != lease.turn
    await scene.finish(lease)
    clock.advance(1)
    assert (await scene.claim()).turn == first.turn


async def test_an_album_interrupts_once(scene: Scene, clock: FakeClock) -> None:
    """Its first picture stops the running turn, the others join."""
    lease = await scene.running()
    turns = {(await scene.say("", running=WhileRunning.INTERRUPT, **OF_ONE)).turn for _ in range(3)}
    assert await scene.state(lease.turn) is TurnState.STOPPING
    assert len(turns) == 1
    assert turns != {lease.turn}


@pytest.mark.parametrize("running", list(WhileRunning))
async def test_a_late_picture_steers_its_album(scene: Scene, clock: FakeClock, running: WhileRunning) -> None:
    """The turn began without it: it is given next, and the turn cannot end before."""
    first = await scene.say("look", **OF_ONE)
    clock.advance(1)
    lease = await scene.claim()
    late = await scene.say("", running=running, **OF_ONE)
    assert (late.turn, late.steered) == (first.turn, True)
    assert texts(await scene.view(first.turn)) == [("look", False, False), ("", True, False)]
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_a_picture_after_the_answer_is_its_own_turn(scene: Scene, clock: FakeClock) -> None:
    """And a further one joins that."""
    first = await scene.say("look", **OF_ONE)
    clock.advance(1)
    await scene.finish(await scene.claim())
    late = await scene.say("", **OF_ONE)
    assert late.turn != first.turn
    assert (await scene.say("", **OF_ONE)).turn == late.turn


async def test_a_late_picture_of_a_command_is_its_own_turn(scene: Scene, clock: FakeClock) -> None:
    """A command that runs reads nothing more."""
    first = await scene.say("/shell ls", kind=TurnKind.COMMAND, **OF_ONE)
    clock.advance(1)
    await scene.claim()
    late = await scene.say("", **OF_ONE)
    assert late.turn != first.turn
    assert (await scene.view(late.turn)).turn.kind is TurnKind.MODEL


async def test_a_command_does_not_join_an_album(scene: Scene) -> None:
    """It runs as a command."""
    first = await scene.say("", **OF_ONE)
    command = await scene.say("/shell ls", kind=TurnKind.COMMAND, **OF_ONE)
    assert command.turn != first.turn
    assert (await scene.view(command.turn)).turn.kind is TurnKind.COMMAND


async def test_an_album_is_told_once_to_wait(scene: Scene) -> None:
    """Behind a decision, as any message."""
    await scene.parked()
    told = [(await scene.say("", say_if_waiting=WAITING, **OF_ONE)).waiting for _ in range(3)]
    assert told == [True] * 3
    assert len(await scene.slots(kind=SlotKind.REPLY)) == 1


async def test_a_new_history_takes_an_album_along(scene: Scene) -> None:
    """It was never started."""
    first = await scene.say("", **OF_ONE)
    await scene.stop(ControlEffect.RESET)
    assert (await scene.say("", **OF_ONE)).turn == first.turn


# --- in a group -------------------------------------------------------------------------------


async def test_pictures_before_the_mention_are_of_its_turn(scene: Scene, clock: FakeClock) -> None:
    """The caption may stand below the last one. What others said stays context, and other albums too."""
    await beside(scene, "one")
    await scene.overhear("talk", to=GROUP)
    await beside(scene, "other", album="a1.8")
    await beside(scene, "two")
    found = await scene.say("@bot look", to=GROUP, **OF_ONE)
    await beside(scene, "three")
    clock.advance(1)
    assert (await scene.claim()).turn == found.turn
    assert texts(await scene.view(found.turn)) == [
        ("one", False, False),
        ("talk", False, True),
        ("other", False, True),
        ("two", True, False),
        ("@bot look", True, False),
        ("three", True, False),
    ]


async def test_pictures_before_a_command_are_of_its_turn(scene: Scene) -> None:
    """Commands are given no context; these are theirs."""
    await beside(scene, "one")
    await scene.overhear("talk", to=GROUP)
    found = await scene.say("/shell ls", to=GROUP, kind=TurnKind.COMMAND, **OF_ONE)
    assert texts(await scene.view(found.turn)) == [("one", False, False), ("/shell ls", True, False)]


async def test_nobody_elses_pictures_are_taken(scene: Scene) -> None:
    """The id alone takes nothing."""
    await beside(scene, "theirs", who=BOB)
    found = await scene.say("@bot look", to=GROUP, **OF_ONE)
    assert texts(await scene.view(found.turn)) == [("theirs", False, True), ("@bot look", False, False)]


async def test_a_picture_that_was_taken_can_be_edited(scene: Scene) -> None:
    """As long as its turn waits."""
    message = await beside(scene, "one")
    found = await scene.say("@bot look", to=GROUP, **OF_ONE)
    assert await scene.edit(message, "won")
    assert [one.message.text for one in (await scene.view(found.turn)).inputs] == ["won", "@bot look"]


async def test_a_picture_beside_the_bot_that_comes_again(scene: Scene) -> None:
    """It is known, whether it was overheard or joined."""
    place = Drop(reason=DropReason.CONTEXT, told=False, route=GROUP)
    message = await beside(scene, "one")
    found = await scene.say("@bot look", to=GROUP, **OF_ONE)
    more = await beside(scene, "two")
    assert [await scene.store.drop(one, place, "") for one in (message, more)] == [False, False]
    assert len((await scene.view(found.turn)).inputs) == 3
