"""`Intake.drop` of overheard messages: stored for the session's next model turn, as data."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.events import SESSIONS, Changed
from gateway.domain.ids import SessionId
from gateway.domain.messages import Received
from gateway.domain.routes import Drop, DropReason, WhileRunning
from gateway.domain.turns import TurnKind, TurnState
from gateway.ports import ControlEffect, Store
from tests.contract.scene import Scene
from tests.support.makers import ANN_TELEGRAM, OTHER_CHAT, answer, inbound, route

GROUP = route(SessionId("chat:g"))
OTHER_GROUP = route(SessionId("chat:h"))


def texts(inputs: tuple[Received, ...]) -> list[str]:
    return [one.message.text for one in inputs]


async def test_overheard_message_makes_the_session_and_no_turn(store: Store, scene: Scene) -> None:
    """A row of the session with no turn."""
    async with store.event_bus.subscribe(SESSIONS) as heard:
        await scene.overhear("a", to=GROUP)
        assert await anext(heard) == Changed(session=GROUP.session)
    (kept,) = await scene.items(Received, GROUP.session)
    assert (kept.message.text, kept.context, kept.turn, kept.given) == ("a", True, None, None)
    session = await store.session(GROUP.session)
    assert session is not None
    assert (session.kind, session.title) == (GROUP.kind, GROUP.title)
    assert (await store.counts()).queued_turns == 0


async def test_the_next_model_turn_is_given_it_first(scene: Scene) -> None:
    """In order, before the message, as given before the first step."""
    for text in ("a", "b"):
        await scene.overhear(text, to=GROUP)
    turn = (await scene.say("c", to=GROUP)).turn
    inputs = (await scene.view(turn)).inputs
    assert [(one.message.text, one.context, one.given) for one in inputs] == [
        ("a", True, 0),
        ("b", True, 0),
        ("c", False, None),
    ]
    assert {one.turn for one in inputs} == {turn}


async def test_overheard_message_is_given_once(scene: Scene) -> None:
    """The turn after that has only what was said since."""
    await scene.overhear("a", to=GROUP)
    await scene.say("b", to=GROUP)
    await scene.overhear("c", to=GROUP)
    turn = (await scene.say("d", to=GROUP)).turn
    assert texts((await scene.view(turn)).inputs) == ["c", "d"]


async def test_only_the_last_fifty_are_given_and_the_others_never(scene: Scene) -> None:
    """Older messages are forgotten."""
    for number in range(53):
        await scene.overhear(str(number), to=GROUP)
    first, second = await scene.say("hello", to=GROUP), await scene.say("again", to=GROUP)
    assert texts((await scene.view(first.turn)).inputs) == [*map(str, range(3, 53)), "hello"]
    await scene.overhear("later", to=GROUP)
    assert texts((await scene.view((await scene.say("third", to=GROUP)).turn)).inputs) == ["later", "third"]
    assert texts((await scene.view(second.turn)).inputs) == ["again"]


async def test_a_command_is_not_given_any(scene: Scene) -> None:
    """It stays for the next model turn."""
    await scene.overhear("a", to=GROUP)
    command = await scene.say("/shell date", to=GROUP, kind=TurnKind.COMMAND)
    model = await scene.say("b", to=GROUP)
    assert texts((await scene.view(command.turn)).inputs) == ["/shell date"]
    assert texts((await scene.view(model.turn)).inputs) == ["a", "b"]


async def test_a_message_that_joins_a_turn_brings_none(scene: Scene) -> None:
    """Only a new turn is given it."""
    lease = await scene.running(GROUP)
    await scene.overhear("a", to=GROUP)
    assert (await scene.say("b", to=GROUP, running=WhileRunning.STEER)).steered
    assert texts((await scene.view(lease.turn)).inputs) == ["hello", "b"]


async def test_sessions_do_not_share_it(scene: Scene) -> None:
    """A group's messages stay in the group's session."""
    await scene.overhear("a", to=GROUP)
    turn = (await scene.say("b", to=OTHER_GROUP)).turn
    assert texts((await scene.view(turn)).inputs) == ["b"]


async def test_a_new_history_forgets_it(scene: Scene) -> None:
    """`/new` is a new history."""
    await scene.overhear("a", to=GROUP)
    await scene.stop(ControlEffect.RESET, to=GROUP)
    await scene.overhear("b", to=GROUP)
    assert texts((await scene.view((await scene.say("c", to=GROUP)).turn)).inputs) == ["b", "c"]


async def test_overheard_message_needs_no_given_mark(scene: Scene) -> None:
    """Nobody has to say that it was given."""
    await scene.overhear("a", to=GROUP)
    await scene.say("b", to=GROUP)
    lease = await scene.claim()
    told = (await scene.view(lease.turn)).inputs[1:]
    ended = await scene.store.finish_turn(lease, TurnState.DONE, answer=answer(), given=told, slots=[], timers=[])
    assert ended
    assert [one.given for one in (await scene.view(lease.turn)).inputs] == [0, 0]


async def test_edit_of_context_counts_until_a_model_reads_it(scene: Scene) -> None:
    """The model gets the text that the group sees."""
    message = await scene.overhear("v0", to=GROUP)
    assert await scene.edit(message, "v1")
    turn = (await scene.say("hello", to=GROUP)).turn
    assert await scene.edit(message, "v2")
    first = (await scene.view(turn)).inputs[0]
    assert (first.message, first.context, first.given) == (replace(message, text="v2"), True, 0)


async def test_an_edit_is_late_when_the_model_may_have_read_it(scene: Scene) -> None:
    """While the turn is held, and for ever once there is an answer; not when it was given back without one."""
    message = await scene.overhear("v0", to=GROUP)
    await scene.say("hello", to=GROUP)
    lease = await scene.claim()
    assert not await scene.edit(message, "v1")
    await scene.store.release(lease)
    assert await scene.edit(message, "v2")
    lease = await scene.claim()
    await scene.plan(lease)
    await scene.store.release(lease)
    assert not await scene.edit(message, "v3")
    assert texts((await scene.view(lease.turn)).inputs) == ["v2", "hello"]


async def test_only_who_said_it_may_edit_it(scene: Scene) -> None:
    """And only where it was said."""
    message = await scene.overhear("v0", to=GROUP)
    assert not await scene.edit(message, "v1", who=ANN_TELEGRAM)
    assert not await scene.edit(replace(message, conversation=OTHER_CHAT), "v1")
    assert [one.message for one in await scene.items(Received, GROUP.session)] == [message]


async def test_its_event_is_taken_once(store: Store, scene: Scene) -> None:
    """Twice delivered, once kept; and it is no message that a duplicate could name."""
    message = replace(inbound("a", direct=False), addressed=False)
    drop = Drop(reason=DropReason.CONTEXT, told=False, route=GROUP)
    assert [await store.drop(message, drop, "") for _ in range(2)] == [True, False]
    assert len(await scene.items(Received, GROUP.session)) == 1
    accepted = await store.accept(GROUP, message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    assert (accepted.duplicate, accepted.inbound, accepted.turn) == (True, "", "")


async def test_without_a_route_it_is_dropped(store: Store) -> None:
    """Nothing says where it belongs."""
    assert await store.drop(inbound("a"), Drop(reason=DropReason.CONTEXT, told=False), "")
    assert await store.sessions() == []
