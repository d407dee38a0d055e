"""`Intake.control`: /stop and /new in every state that a turn can be in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.messages import Received
from gateway.domain.slots import SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import ResultStatus, outcome_unknown
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitState
from gateway.errors import LeaseLost
from gateway.ports import ControlEffect, Store
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_SLACK,
    ANN_TELEGRAM,
    CHAT,
    OTHER_CHAT,
    control,
    inbound,
    new_wait,
    result,
    route,
    seconds,
)


async def _answers(scene: Scene) -> list[str]:
    return [slot.text for slot in await scene.slots(kind=SlotKind.ANSWER)]


@pytest.mark.parametrize("effect", list(ControlEffect))
async def test_a_command_is_stored_with_its_reply(scene: Scene, effect: ControlEffect) -> None:
    """The command is a message of no turn; the reply goes where it was said."""
    command = inbound("/cmd", where=OTHER_CHAT)
    assert await scene.store.control(route(), command, control(effect)) == 0
    (received,) = await scene.items(Received)
    assert (received.turn, received.message) == (None, command)
    (reply,) = await scene.slots()
    idle = effect is ControlEffect.STOP
    assert (reply.kind, reply.conversation) == (SlotKind.REPLY, OTHER_CHAT)
    assert reply.text == ("Nothing to stop." if idle else "Done.")


async def test_a_known_command_does_nothing(scene: Scene) -> None:
    """A second delivery of /stop neither stops nor replies."""
    await scene.store.control(route(), inbound("/stop", key="9"), control())
    lease = await scene.running()
    before = await scene.rows()
    assert await scene.store.control(route(), inbound("/stop", key="9"), control()) is None
    assert await scene.rows() == before
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_a_command_without_effect_stops_nothing(scene: Scene) -> None:
    """/status and the like leave turns alone."""
    lease = await scene.running()
    assert await scene.stop(ControlEffect.NONE) == 0
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_stop_leaves_what_was_never_started(scene: Scene) -> None:
    """Queued messages stay queued."""
    accepted = await scene.say()
    assert await scene.stop() == 0
    assert await scene.state(accepted.turn) is TurnState.QUEUED


async def test_stop_ends_a_queued_turn_that_was_started(scene: Scene) -> None:
    """Nobody holds it, so it ends at once, with words in its own conversation."""
    lease = await scene.running()
    await scene.store.release(lease)
    assert await scene.stop() == 1
    view = await scene.view(lease.turn)
    assert (view.turn.state, view.turn.ended_at) == (TurnState.STOPPED, scene.clock.now())
    assert [r.given for r in view.inputs] == [0]
    assert await _answers(scene) == ["Stopped."]


@pytest.mark.parametrize("effect", [ControlEffect.STOP, ControlEffect.RESET])
async def test_stop_is_answered_once_in_its_conversation(scene: Scene, effect: ControlEffect) -> None:
    """The reply says it; neither a parked turn, nor one given back, nor one that is held says it again."""
    await scene.parked()
    commands = [await scene.running(kind=TurnKind.COMMAND) for _ in range(2)]
    await scene.store.release(commands[0])
    assert await scene.store.control(route(), inbound("/stop", where=CHAT), control(effect)) == 3
    assert (await scene.view(commands[1].turn)).turn.stopped_text == ""
    await scene.store.release(commands[1])
    assert await scene.state(commands[1].turn) is TurnState.STOPPED
    assert await _answers(scene) == []
    assert [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)] == ["Done."]


@pytest.mark.parametrize("effect", [ControlEffect.STOP, ControlEffect.RESET])
async def test_a_stop_from_elsewhere_is_announced_once_in_a_chat(scene: Scene, effect: ControlEffect) -> None:
    """Three commands of a chat are stopped from another one: it is told once, by the first of them."""
    leases = [await scene.running(kind=TurnKind.COMMAND) for _ in range(3)]
    for lease in leases[1:]:
        await scene.store.release(lease)
    assert await scene.stop(effect) == 3
    assert [(await scene.view(lease.turn)).turn.stopped_text for lease in leases] == ["Stopped.", "", ""]
    await scene.store.release(leases[0])
    assert await _answers(scene) == ["Stopped."]


async def test_a_held_turn_knows_what_whoever_stopped_it_has_it_say(scene: Scene) -> None:
    """Its holder reads it, and ends the turn with these words."""
    lease = await scene.running()
    assert (await scene.view(lease.turn)).turn.stopped_text == ""
    assert await scene.stop(with_=replace(control(ControlEffect.STOP), stopped_text="Ann stopped it.")) == 1
    assert (await scene.view(lease.turn)).turn.stopped_text == "Ann stopped it."
    assert await scene.stop() == 0
    assert (await scene.view(lease.turn)).turn.stopped_text == "Ann stopped it."


async def test_stop_ends_a_parked_turn(scene: Scene) -> None:
    """Its waits are withdrawn, its calls get a result, and it says so where it began."""
    asked = await scene.parked(2)
    assert await scene.stop() == 1
    view = await scene.view(asked.turn)
    assert view.turn.state is TurnState.STOPPED
    assert [wait.state for wait in view.waits] == [WaitState.CANCELLED] * 2
    assert [step.result.status for step in view.steps if step.result] == [ResultStatus.CANCELLED] * 2
    slot = await scene.slot_of(asked.turn, SlotKind.ANSWER)
    assert (slot.text, slot.conversation) == ("Stopped.", view.turn.conversation)


async def test_stop_after_a_crash_leaves_the_outcome_unknown(scene: Scene) -> None:
    """A call that was started may have happened: its result must not say that it did not."""
    lease = await scene.started()
    await scene.store.release(lease)
    await scene.stop()
    step = await scene.step(lease.turn, 1)
    assert (step.state, step.result) == (StepState.FINISHED, outcome_unknown(step.started_at))
    assert step.started_at is not None


async def test_stop_marks_a_running_turn_for_its_holder(scene: Scene) -> None:
    """It becomes STOPPING: the holder keeps its lease, for results only, and says the words itself."""
    lease = await scene.running()
    assert await scene.stop() == 1
    assert await scene.state(lease.turn) is TurnState.STOPPING
    assert await scene.store.renew(lease) is TurnState.STOPPING
    assert await _answers(scene) == []


async def test_stop_cancels_what_a_running_turn_did_not_start(scene: Scene) -> None:
    """Open and approved waits and planned calls go at once; a started call waits for its holder."""
    lease = await scene.planned(4)
    ttl = seconds(3600)
    asked = await scene.ask(lease, [new_wait(1, expires_in=ttl), new_wait(2, expires_in=ttl)])
    await scene.press(asked.waits[1])
    assert await scene.start(lease, 3) is StartOutcome.STARTED
    await scene.stop()
    view = await scene.view(lease.turn)
    assert [wait.state for wait in view.waits] == [WaitState.CANCELLED, WaitState.CANCELLED]
    states = [(step.state, step.result.status if step.result else None) for step in view.steps[1:]]
    cancelled = (StepState.FINISHED, ResultStatus.CANCELLED)
    assert states == [cancelled, cancelled, (StepState.STARTED, None), cancelled]


async def test_holder_of_a_stopping_turn_writes_only_results_and_end(scene: Scene) -> None:
    """Nothing may be planned, asked, started, parked or done any more."""
    lease = await scene.started()
    await scene.stop()
    with pytest.raises(LeaseLost):
        await scene.plan(lease)
    assert not await scene.store.open_waits(lease, [new_wait(1, expires_in=seconds(0))], [])
    assert await scene.start(lease, 1) is StartOutcome.STOPPING
    assert not await scene.store.park(lease)
    assert not await scene.finish(lease, TurnState.DONE)
    await scene.came(lease, 1, result("partial", status=ResultStatus.CANCELLED))
    assert await scene.finish(lease, TurnState.STOPPED)
    assert await scene.state(lease.turn) is TurnState.STOPPED


async def test_stopping_twice_counts_once(scene: Scene) -> None:
    """A turn that is stopping already is not stopped again."""
    await scene.running()
    assert await scene.stop() == 1
    assert await scene.stop() == 0
    replies = [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)]
    assert replies == ["Done.", "Nothing to stop."]


async def test_stop_takes_the_command_turns_too(scene: Scene) -> None:
    """Everything under way in the session stops, and the caller learns how many."""
    await scene.running()
    for _ in range(2):
        await scene.running(kind=TurnKind.COMMAND)
    assert await scene.stop() == 3
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert reply.text == "Done."


async def test_stop_of_one_person_leaves_the_others(scene: Scene) -> None:
    """`only` names whose turns stop."""
    theirs = await scene.running(kind=TurnKind.COMMAND)
    await scene.say(who=ANN_SLACK, kind=TurnKind.COMMAND)
    mine = await scene.claim()
    assert await scene.stop(only=ANN_SLACK) == 1
    assert await scene.state(mine.turn) is TurnState.STOPPING
    assert await scene.state(theirs.turn) is TurnState.RUNNING
    assert await scene.stop(only=ANN_TELEGRAM) == 1


async def test_stop_leaves_other_sessions(scene: Scene) -> None:
    """A session is the widest that a stop reaches."""
    lease = await scene.running()
    other = route(SessionId("chat:g"))
    assert await scene.stop(to=other) == 0
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_next_queued_turn_runs_after_a_stop(scene: Scene) -> None:
    """The lane is free as soon as the stopped turn has ended."""
    await scene.parked()
    queued = await scene.say("next")
    await scene.stop()
    assert (await scene.claim()).turn == queued.turn


# --- /new -----------------------------------------------------------------------------------


async def _epoch(store: Store) -> int:
    session = await store.session(MAIN)
    assert session is not None
    return session.epoch


async def test_reset_begins_a_new_history(scene: Scene) -> None:
    """The epoch is raised; what was said before is no longer in the history."""
    await scene.ended()
    assert await scene.stop(ControlEffect.RESET) == 0
    assert await _epoch(scene.store) == 1
    assert await scene.store.history(MAIN, 1, 10) == []
    assert len(await scene.store.history(MAIN, 0, 10)) == 1


async def test_reset_stops_and_moves_the_queued_turns(scene: Scene) -> None:
    """Running turns belong to the old history, queued ones to the new one."""
    lease = await scene.running()
    queued = await scene.say("next")
    assert await scene.stop(ControlEffect.RESET) == 1
    stopping, moved = await scene.view(lease.turn), await scene.view(queued.turn)
    assert (stopping.turn.state, stopping.turn.epoch) == (TurnState.STOPPING, 0)
    assert (moved.turn.state, moved.turn.epoch) == (TurnState.QUEUED, 1)
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert reply.text == "Done."


async def test_reset_ends_a_parked_turn_in_the_old_history(scene: Scene) -> None:
    """It ends in the epoch in which it ran."""
    asked = await scene.parked()
    await scene.stop(ControlEffect.RESET)
    (ended,) = await scene.store.history(MAIN, 0, 10)
    assert (ended.turn.id, ended.turn.state) == (asked.turn, TurnState.STOPPED)


async def test_new_turns_belong_to_the_new_history(scene: Scene) -> None:
    """A message after /new starts in the raised epoch."""
    await scene.ended()
    await scene.stop(ControlEffect.RESET)
    assert (await scene.view((await scene.say()).turn)).turn.epoch == 1


async def test_a_stop_does_not_begin_a_new_history(scene: Scene) -> None:
    """Only RESET raises the epoch."""
    await scene.ended()
    await scene.stop(ControlEffect.STOP)
    assert await _epoch(scene.store) == 0


async def test_a_command_makes_its_session(scene: Scene, clock: FakeClock) -> None:
    """/new as the very first message works, and reaches the person from then on."""
    clock.advance(5)
    assert await scene.stop(ControlEffect.RESET) == 0
    assert await _epoch(scene.store) == 1
    assert ANN_TELEGRAM in (await scene.store.last_contact(ANN, [ANN_TELEGRAM])).direct
    assert not await scene.store.claim(NODE)
