"""`TurnQueue`: leases of turns, and how a turn is parked, ended or returned."""

from __future__ import annotations

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import StepKind, StepState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import BEGUN_AT_MOST, Lease, TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitKind, WaitState
from gateway.errors import LeaseLost
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import PAGE, answer, copy_timer, deny, new_wait, result, route, said, seconds

GROUP = route(SessionId("chat:g"))


# --- claim ----------------------------------------------------------------------------------


async def test_an_empty_queue_gives_nothing(store: Store) -> None:
    """Nothing, at once."""
    assert not await store.claim(NODE)


async def test_a_claim_is_a_lease_of_fifteen_seconds(scene: Scene, clock: FakeClock) -> None:
    """The turn runs under the node's name with a fence; it was started now."""
    accepted = await scene.say()
    clock.advance(3)
    lease = await scene.claim(OTHER_NODE)
    assert (lease.turn, lease.session, lease.node) == (accepted.turn, MAIN, OTHER_NODE)
    turn = (await scene.view(lease.turn)).turn
    assert (turn.state, turn.started_at) == (TurnState.RUNNING, clock.now())
    clock.advance(14.9)
    assert await scene.store.reclaim() == 0
    clock.advance(0.1)
    assert await scene.store.reclaim() == 1


async def test_a_view_tells_the_time_under_the_present_lease(scene: Scene, clock: FakeClock) -> None:
    """By the store's clock, and no longer than the lease: after its end nobody works."""
    lease = await scene.planned()
    clock.advance(4)
    assert (await scene.view(lease.turn)).held == seconds(4)
    clock.advance(60)
    assert (await scene.view(lease.turn)).held == seconds(15)
    await scene.store.release(lease)
    view = await scene.view(lease.turn)
    assert (view.held, view.turn.active_ms) == (seconds(0), 15_000)


async def test_several_turns_are_claimed_at_once_as_they_stand(scene: Scene) -> None:
    """The longest waiting comes first; a command lane gives no more than may run; each has all its rows."""
    commands = [(await scene.say(str(n), kind=TurnKind.COMMAND)).turn for n in range(6)]
    await scene.say(to=GROUP)
    claimed = await scene.store.claim(NODE, 3)
    assert [one.lease.turn for one in claimed] == commands[:3]
    assert len(await scene.store.claim(NODE, 9)) == 2
    assert not await scene.store.claim(NODE, 9)
    assert [one.view for one in claimed] == [await scene.view(turn) for turn in commands[:3]]


async def test_a_turn_is_claimed_by_one(scene: Scene) -> None:
    """Nobody else gets it while it is held."""
    await scene.running()
    assert not await scene.store.claim(OTHER_NODE)


@pytest.mark.conformance
async def test_a_session_runs_its_model_turns_one_after_the_other(scene: Scene) -> None:
    """First come, first served; the next only when the one before has ended."""
    turns = [(await scene.say(str(n))).turn for n in range(3)]
    for turn in turns:
        lease = await scene.claim()
        assert lease.turn == turn
        assert not await scene.store.claim(NODE)
        await scene.finish(lease)
    assert not await scene.store.claim(NODE)


@pytest.mark.conformance
async def test_few_are_claimed_beside_one_that_was_begun_often(scene: Scene) -> None:
    """The company of a turn that did not end halves with each start; the next claim takes the others."""
    for n in range(4):
        await scene.say(to=route(SessionId(f"chat:{n}")))
    for begun in range(BEGUN_AT_MOST):
        sizes = list[int]()
        while claimed := await scene.store.claim(NODE, 32):
            sizes.append(len(claimed))
        assert sizes == {8: [2, 2], 9: [1, 1, 1, 1]}.get(begun, [4])
        assert await scene.store.void_leases("here") == 4


@pytest.mark.conformance
async def test_turns_of_a_session_do_not_overlap_in_time(scene: Scene, clock: FakeClock) -> None:
    """A turn ends no earlier than it started and starts no earlier than the last end, on a node that is behind."""
    first = await scene.running()
    clock.advance(-0.003)
    await scene.finish(first)
    clock.advance(-0.003)
    queued, began = await scene.running(), (await scene.view(first.turn)).turn
    await scene.say("next")
    clock.advance(1)
    await scene.finish(queued)
    clock.advance(-0.003)
    turns = [(await scene.view(turn)).turn for turn in (queued.turn, (await scene.claim()).turn)]
    assert began.started_at == began.ended_at == turns[0].started_at
    assert turns[0].ended_at == turns[1].started_at


async def test_a_parked_turn_holds_back_the_next(scene: Scene) -> None:
    """It has not ended: the order of the history is kept."""
    await scene.parked()
    await scene.say("next")
    assert not await scene.store.claim(NODE)


async def test_a_stopping_turn_holds_back_the_next(scene: Scene) -> None:
    """Its holder still writes results."""
    await scene.running()
    await scene.say("next")
    await scene.stop()
    assert not await scene.store.claim(NODE)


async def test_sessions_run_side_by_side(scene: Scene) -> None:
    """The turn that waits longest goes first, whatever its session."""
    first = [(await scene.say(to=to)).turn for to in (GROUP, route())]
    assert [(await scene.claim()).turn for _ in range(2)] == first


async def test_commands_run_beside_the_model_turn(scene: Scene) -> None:
    """They have leases of their own and wait for nobody."""
    await scene.running()
    accepted = await scene.say(kind=TurnKind.COMMAND)
    assert (await scene.claim()).turn == accepted.turn


@pytest.mark.conformance
async def test_four_commands_of_a_session_run_at_once(scene: Scene) -> None:
    """The fifth waits until one ended; another session's commands do not count."""
    for _ in range(6):
        await scene.say(kind=TurnKind.COMMAND)
    leases = [await scene.claim() for _ in range(4)]
    assert not await scene.store.claim(NODE)
    await scene.say(to=GROUP, kind=TurnKind.COMMAND)
    assert (await scene.claim()).session == GROUP.session
    await scene.finish(leases[2])
    await scene.claim()
    assert not await scene.store.claim(NODE)


async def test_a_stopping_command_still_counts(scene: Scene) -> None:
    """RUNNING and STOPPING ones both take a place."""
    for _ in range(4):
        await scene.running(kind=TurnKind.COMMAND)
    await scene.stop()
    await scene.say(kind=TurnKind.COMMAND)
    assert not await scene.store.claim(NODE)


async def test_a_parked_command_does_not_count(scene: Scene) -> None:
    """Ten open cards of commands do not keep the eleventh command from running."""
    for _ in range(5):
        asked = await scene.asked(kind=TurnKind.COMMAND)
        assert await scene.store.park(asked.lease)
    for _ in range(4):
        await scene.running(kind=TurnKind.COMMAND)
    await scene.say(kind=TurnKind.COMMAND)
    assert not await scene.store.claim(NODE)


async def test_a_woken_command_waits_for_a_place(scene: Scene) -> None:
    """A decision does not break the limit."""
    asked = await scene.asked(kind=TurnKind.COMMAND)
    await scene.store.park(asked.lease)
    leases = [await scene.running(kind=TurnKind.COMMAND) for _ in range(4)]
    await scene.press(asked.wait)
    assert not await scene.store.claim(NODE)
    await scene.store.release(leases[0])
    assert (await scene.claim()).turn == asked.turn


async def test_the_start_of_a_turn_is_its_first_claim(scene: Scene, clock: FakeClock) -> None:
    """`started_at` stays; `active_ms` counts what was held, and no parked time."""
    asked = await scene.asked()
    begun = clock.now()
    clock.advance(2)
    await scene.store.park(asked.lease)
    clock.advance(100)
    await scene.press(asked.wait)
    clock.advance(7)
    lease = await scene.claim()
    clock.advance(1.5)
    await scene.finish(lease)
    turn = (await scene.view(asked.turn)).turn
    assert (turn.started_at, turn.ended_at, turn.active_ms) == (begun, clock.now(), 3500)


async def test_nobody_works_when_the_lease_has_run_out(scene: Scene, clock: FakeClock) -> None:
    """A night without power, or a machine that slept, is not counted as work."""
    lease = await scene.running()
    clock.advance(3)
    await scene.store.renew(lease)
    clock.advance(8 * 3600)
    assert await scene.store.void_leases("here") == 1
    assert (await scene.view(lease.turn)).turn.active_ms == 18_000

    again = await scene.claim()
    clock.advance(10)
    await scene.store.renew(again)
    clock.advance(3600)
    await scene.store.renew(again)
    clock.advance(2)
    await scene.finish(again)
    assert (await scene.view(lease.turn)).turn.active_ms == 18_000 + 10_000 + 15_000 + 2_000


# --- renew ----------------------------------------------------------------------------------


async def test_a_renewed_lease_lasts_fifteen_seconds_from_now(scene: Scene, clock: FakeClock) -> None:
    """Renewed in time, a turn is never taken away."""
    lease = await scene.running()
    for _ in range(5):
        clock.advance(14.9)
        assert await scene.store.reclaim() == 0
        assert await scene.store.renew(lease) is TurnState.RUNNING
    clock.advance(15)
    assert await scene.store.reclaim() == 1


# --- park -----------------------------------------------------------------------------------


async def test_a_turn_parks_on_an_open_wait(scene: Scene) -> None:
    """Its lease is gone; the wait and the steps stay."""
    asked = await scene.parked(2)
    view = await scene.view(asked.turn)
    assert view.turn.state is TurnState.PARKED
    assert [wait.state for wait in view.waits] == [WaitState.OPEN] * 2
    assert not await scene.store.claim(NODE)


async def test_a_turn_without_open_waits_does_not_park(scene: Scene) -> None:
    """Nothing would wake it."""
    lease = await scene.running()
    assert not await scene.store.park(lease)
    assert await scene.store.renew(lease) is TurnState.RUNNING


async def test_a_turn_with_an_unused_approval_does_not_park(scene: Scene) -> None:
    """The press came while it was about to park: the call can run."""
    asked = await scene.asked(2)
    await scene.press(asked.wait)
    assert not await scene.store.park(asked.lease)
    assert await scene.state(asked.turn) is TurnState.RUNNING


@pytest.mark.parametrize("how", ["denied", "expired"])
async def test_a_turn_whose_decided_call_has_no_result_does_not_park(scene: Scene, clock: FakeClock, how: str) -> None:
    """The result is written first."""
    lease = await scene.planned(2)
    first, second = (new_wait(n, expires_in=seconds(ttl)) for n, ttl in ((1, 60), (2, 3600)))
    await scene.ask(lease, [first, second])
    if how == "denied":
        await scene.press(first.id, deny())
    else:
        clock.advance(60)
        assert await scene.store.expire_waits() == 1
    assert not await scene.store.park(lease)
    await scene.store.finish_step(lease, 1, result(status=ResultStatus.DENIED))
    assert await scene.store.park(lease)


async def test_a_turn_with_something_to_run_does_not_park(scene: Scene) -> None:
    """A planned call that nobody has to allow, and one that runs, need their holder."""
    lease = await scene.planned(2)
    await scene.ask(lease, [new_wait(1, expires_in=seconds(60))])
    assert not await scene.store.park(lease)
    await scene.start(lease, 2)
    assert not await scene.store.park(lease)
    await scene.store.finish_step(lease, 2, result())
    assert await scene.store.park(lease)


async def test_a_consumed_approval_does_not_keep_a_turn_from_parking(scene: Scene) -> None:
    """Its call has its result; another wait is open."""
    asked = await scene.asked(2)
    await scene.press(asked.wait)
    await scene.start(asked.lease, 1, asked.wait)
    await scene.store.finish_step(asked.lease, 1, result())
    assert await scene.store.park(asked.lease)


async def test_messages_do_not_keep_a_turn_from_parking(scene: Scene) -> None:
    """They are given after the results."""
    asked = await scene.asked()
    await scene.say(running=WhileRunning.STEER)
    assert await scene.store.park(asked.lease)


@pytest.mark.parametrize("kind", list(WaitKind))
async def test_a_turn_parks_on_every_kind_of_wait(scene: Scene, kind: WaitKind) -> None:
    """Approvals, children and timers are waits alike."""
    asked = await scene.asked(wait_kind=kind)
    assert await scene.store.park(asked.lease)


# --- finish_turn ----------------------------------------------------------------------------


async def test_the_end_of_a_turn_is_one_transition(scene: Scene, clock: FakeClock) -> None:
    """The last answer is a model step; messages are given before it; its slots and timers are stored."""
    shown = await _some_slot(scene)
    lease = await scene.running()
    (received,) = (await scene.view(lease.turn)).inputs
    slot = said("Done.", where=PAGE)
    timer = copy_timer(shown.id, expires_in=seconds(30))
    last = answer("Done.")
    assert await scene.store.finish_turn(
        lease, TurnState.DONE, answer=last, given=[received], slots=[slot], timers=[timer]
    )
    view = await scene.view(lease.turn)
    assert (view.turn.state, view.turn.ended_at) == (TurnState.DONE, clock.now())
    assert [(step.n, step.kind, step.state, step.answer) for step in view.steps] == [
        (0, StepKind.MODEL, StepState.FINISHED, last)
    ]
    assert [r.given for r in view.inputs] == [0]
    stored = await scene.slot_of(lease.turn, SlotKind.ANSWER)
    assert (stored.text, stored.conversation, stored.state) == ("Done.", PAGE, SlotState.SENT)
    assert [(wait.kind, wait.state, wait.expires_at - wait.opened_at) for wait in view.waits] == [
        (WaitKind.TIMER, WaitState.OPEN, timer.expires_in)
    ]


async def _some_slot(scene: Scene) -> Slot:
    await scene.stop()
    return (await scene.slots())[0]


async def test_a_turn_can_end_without_an_answer(scene: Scene) -> None:
    """A command's result is a slot, not a model step."""
    lease = await scene.running(kind=TurnKind.COMMAND)
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.store.finish_turn(lease, TurnState.DONE, answer=None, given=[received], slots=[said("ok")], timers=[])
    view = await scene.view(lease.turn)
    assert (view.turn.state, view.steps) == (TurnState.DONE, ())
    assert all(r.given is not None for r in view.inputs)


async def test_a_turn_is_not_done_while_a_message_waits(scene: Scene) -> None:
    """A steering message that came meanwhile is answered too: nothing changes, the caller goes on."""
    lease = await scene.running()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.say("one more thing", running=WhileRunning.STEER)
    before = await scene.rows()
    assert not await scene.store.finish_turn(
        lease, TurnState.DONE, answer=answer(), given=[received], slots=[said()], timers=[]
    )
    assert await scene.rows() == before
    assert await scene.finish(lease)


@pytest.mark.parametrize("state", [TurnState.STOPPED, TurnState.FAILED])
async def test_a_turn_that_failed_ends_with_messages_waiting(scene: Scene, state: TurnState) -> None:
    """They count as given then, so that nothing waits for ever."""
    lease = await scene.running()
    await scene.say("one more thing", running=WhileRunning.STEER)
    assert await scene.store.finish_turn(lease, state, answer=None, given=[], slots=[said("Sorry.")], timers=[])
    view = await scene.view(lease.turn)
    assert view.turn.state is state
    assert all(r.given is not None for r in view.inputs)


@pytest.mark.parametrize("state", [TurnState.STOPPED, TurnState.FAILED])
async def test_a_stopping_turn_is_ended_by_its_holder(scene: Scene, state: TurnState) -> None:
    """DONE is refused and changes nothing; STOPPED and FAILED end it."""
    lease = await scene.running()
    await scene.stop()
    before = await scene.rows()
    assert not await scene.finish(lease, TurnState.DONE)
    assert await scene.rows() == before
    assert await scene.finish(lease, state)
    assert await scene.state(lease.turn) is state


async def test_calls_left_over_get_a_result_at_the_end(scene: Scene) -> None:
    """Planned and asked ones CANCELLED, a started one UNKNOWN; waits are withdrawn; real results stay."""
    lease = await scene.planned(5)
    ttl = seconds(60)
    asked = await scene.ask(lease, [new_wait(2, expires_in=ttl), new_wait(3, expires_in=ttl)])
    await scene.press(asked.waits[1])
    await scene.start(lease, 4)
    await scene.start(lease, 5)
    await scene.store.finish_step(lease, 5, result("mine"))
    assert await scene.finish(lease, TurnState.FAILED)
    view = await scene.view(lease.turn)
    assert [step.result.status for step in view.steps if step.result] == [
        ResultStatus.CANCELLED,
        ResultStatus.CANCELLED,
        ResultStatus.CANCELLED,
        ResultStatus.UNKNOWN,
        ResultStatus.OK,
    ]
    assert [wait.state for wait in view.waits] == [WaitState.CANCELLED] * 2


# --- release --------------------------------------------------------------------------------


async def test_a_released_turn_is_queued_again(scene: Scene) -> None:
    """Another node goes on with it at once; the old holder is out."""
    lease = await scene.started()
    await scene.store.release(lease)
    assert await scene.state(lease.turn) is TurnState.QUEUED
    assert (await scene.step(lease.turn, 1)).state is StepState.STARTED
    assert (await scene.claim(OTHER_NODE)).fence > lease.fence


async def test_a_stopping_turn_ends_when_it_is_released(scene: Scene) -> None:
    """It says so where it began, and its started call has an unknown outcome."""
    lease = await scene.started()
    await scene.stop()
    await scene.store.release(lease)
    assert await scene.state(lease.turn) is TurnState.STOPPED
    step = await scene.step(lease.turn, 1)
    assert step.result is not None
    assert step.result.status is ResultStatus.UNKNOWN
    assert (await scene.slot_of(lease.turn, SlotKind.ANSWER)).text == "Stopped."


# --- fences ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reclaimed", "claimed again", "parked", "ended", "released", "stopped and swept"])
async def test_a_stale_lease_writes_nothing(scene: Scene, how: str) -> None:
    """Every method refuses it and leaves every row as it was; `release` says nothing."""
    asked = await scene.asked()
    stale = asked.lease
    await _lose(scene, asked.lease, how)
    before = await scene.rows()
    store, ttl = scene.store, seconds(60)
    with pytest.raises(LeaseLost):
        await store.renew(stale)
    with pytest.raises(LeaseLost):
        await store.park(stale)
    with pytest.raises(LeaseLost):
        await store.finish_turn(stale, TurnState.FAILED, answer=answer(), given=[], slots=[said()], timers=[])
    with pytest.raises(LeaseLost):
        await store.plan(stale, answer(calls=1), given=[], slots=[said()])
    with pytest.raises(LeaseLost):
        await store.open_waits(stale, [new_wait(1, expires_in=ttl)], [said()])
    with pytest.raises(LeaseLost):
        await scene.start(stale, 1, asked.wait)
    with pytest.raises(LeaseLost):
        await store.finish_step(stale, 1, result())
    await store.release(stale)
    assert await scene.rows() == before


async def _lose(scene: Scene, lease: Lease, how: str) -> None:
    if how == "parked":
        assert await scene.store.park(lease)
    elif how == "ended":
        assert await scene.finish(lease, TurnState.FAILED)
    elif how == "released":
        await scene.store.release(lease)
    else:
        if how == "stopped and swept":
            await scene.stop()
        await scene.lapse()
        if how == "claimed again":
            await scene.claim(OTHER_NODE)


async def test_the_fence_grows_with_each_claim(scene: Scene) -> None:
    """Each holder of a turn has a higher number than all before it."""
    lease = await scene.running()
    fences = [lease.fence]
    for _ in range(3):
        await scene.lapse()
        fences.append((await scene.claim()).fence)
    assert fences == sorted(set(fences))


async def test_an_expired_lease_is_good_until_it_is_taken_away(scene: Scene, clock: FakeClock) -> None:
    """A holder that slept too long and was not missed may go on: the fence decides, not the clock."""
    lease = await scene.planned()
    clock.advance(60)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    assert await scene.store.renew(lease) is TurnState.RUNNING
    assert await scene.store.reclaim() == 0
