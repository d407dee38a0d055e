"""`Retention`: what is removed, what never is, and what stands in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from gateway.domain.children import MessageFate, NewMessage
from gateway.domain.ids import SessionId, SlotId, TurnId
from gateway.domain.messages import Received
from gateway.domain.retention import Keep, LostFiles
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import NewSlot, Slot
from gateway.domain.turns import Lease, Turn, TurnKind, TurnState
from gateway.domain.waits import NewWait, StartOutcome
from gateway.errors import NotFound
from gateway.ports import ControlEffect, Store
from tests.contract.family import SESSION, FamilyScene
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN_TELEGRAM,
    answer,
    approval,
    copy_timer,
    fetched,
    inbound,
    new_wait,
    result,
    route,
    said,
)

ONE = Keep(turns=1)
DAY = Keep(age=timedelta(days=1))
GROUP = SessionId("chat:telegram/main/-1")
DAY_S = 86_400


async def trim(store: Store, keep: Keep = ONE, session: SessionId = MAIN) -> int:
    """Remove all that is old of a session; return how many turns went."""
    turns, passed = 0, 0
    while True:
        done = await store.trim(session, keep, passed)
        turns += done.turns
        if done.passed is None:
            return turns
        assert (done.rows, done.passed) != (0, passed), "it makes progress"
        passed = done.passed


async def turns_of(scene: Scene, session: SessionId = MAIN) -> list[TurnId]:
    return [turn.id for turn in await scene.items(Turn, session)]


async def is_gone(scene: Scene, turn: TurnId) -> bool:
    try:
        await scene.view(turn)
    except NotFound:
        return True
    return False


async def settled(scene: Scene) -> TurnId:
    """A turn with an answer that was sent."""
    lease = await scene.running()
    await end(scene, lease, [said()])
    await scene.send_all()
    return lease.turn


async def end(scene: Scene, lease: Lease, slots: Sequence[NewSlot], timers: Sequence[NewWait] = ()) -> None:
    """End a turn with these slots."""
    given = (await scene.view(lease.turn)).inputs
    assert await scene.store.finish_turn(
        lease, TurnState.DONE, answer=answer(), given=given, slots=slots, timers=timers
    )


@pytest.mark.conformance
async def test_the_last_turns_are_kept(scene: Scene) -> None:
    first, second, third = [await settled(scene) for _ in range(3)]
    assert await trim(scene.store, Keep(turns=2)) == 1
    assert await turns_of(scene) == [second, third]
    assert await is_gone(scene, first)
    assert [one.turn.id for one in await scene.store.history(MAIN, 0, 10)] == [second, third]
    rows = await scene.store.older(MAIN, None, 1000)
    assert {getattr(row.item, "turn", second) for row in rows.rows} == {second, third}
    assert (rows.removed, rows.more) == (1, False)
    assert (await scene.store.older(MAIN, None, 1)).removed == 0  # older ones are there
    assert len((await scene.store.changes(MAIN, 0, 1000)).rows) == len(rows.rows)


@pytest.mark.conformance
async def test_turns_of_the_last_days_are_kept(scene: Scene, clock: FakeClock) -> None:
    old = await settled(scene)
    clock.advance(90_000)
    young = await settled(scene)
    assert await trim(scene.store, DAY) == 1
    assert await turns_of(scene) == [young]
    assert await is_gone(scene, old)
    clock.advance(90_000)
    assert await trim(scene.store, DAY) == 1
    assert await turns_of(scene) == []
    assert await scene.store.session(MAIN) is not None


async def test_without_a_limit_nothing_is_removed(scene: Scene, clock: FakeClock) -> None:
    turns = [await settled(scene) for _ in range(3)]
    clock.advance(1e8)
    assert await trim(scene.store, Keep()) == 0
    assert await turns_of(scene) == turns


async def test_turn_within_either_limit_is_kept(scene: Scene, clock: FakeClock) -> None:
    old = await settled(scene)
    clock.advance(90_000)
    young = [await settled(scene) for _ in range(3)]
    both = Keep(turns=1, age=timedelta(days=1))
    assert await trim(scene.store, both) == 1
    assert await turns_of(scene) == young
    clock.advance(90_000)
    assert await trim(scene.store, both) == 2
    assert await turns_of(scene) == young[2:]
    assert await is_gone(scene, old)


async def test_the_window_of_a_model_stays(scene: Scene) -> None:
    """The last turns of the present history that no summary replaces."""
    turns = [await settled(scene) for _ in range(4)]
    keep = Keep(turns=1, window=3)
    assert await trim(scene.store, keep) == 1
    assert await turns_of(scene) == turns[1:]
    assert await scene.store.compact(MAIN, 0, turns[1], "what was said", None)
    assert await trim(scene.store, keep) == 1
    assert await turns_of(scene) == turns[2:]
    await scene.stop(ControlEffect.RESET)
    assert await trim(scene.store, keep) == 1
    assert await turns_of(scene) == turns[3:]


@pytest.mark.conformance
async def test_turns_go_in_order_over_histories(scene: Scene) -> None:
    """The one of a history that was begun anew, then the oldest of the present one."""
    await settled(scene)
    await scene.stop(ControlEffect.RESET)
    present = [await settled(scene) for _ in range(3)]
    await scene.send_all()
    assert await trim(scene.store, Keep(turns=2)) == 2
    assert await turns_of(scene) == present[1:]


@pytest.mark.conformance
async def test_unended_turn_is_never_removed(scene: Scene, clock: FakeClock) -> None:
    """Queued, running, parked; and an ended turn with a message to send."""
    parked = await scene.parked()
    command = await scene.running(kind=TurnKind.COMMAND)
    unsent = await scene.running(route(GROUP))
    await end(scene, unsent, [said()])
    queued = await scene.say()
    clock.advance(1e8)
    for session in (MAIN, GROUP):
        await trim(scene.store, DAY, session)
    for turn in (parked.turn, command.turn, queued.turn, unsent.turn):
        assert not await is_gone(scene, turn)
    assert (await scene.wait(parked.wait)).turn == parked.turn
    await scene.send_all()
    assert await trim(scene.store, DAY, GROUP) == 1


async def test_a_turn_with_a_timer_stays(scene: Scene, clock: FakeClock) -> None:
    lease, slot = await scene.running(), SlotId("o1")
    timer = copy_timer(slot, expires_in=timedelta(days=9))
    await end(scene, lease, [said(slot=slot)], [timer])
    await scene.send_all()
    clock.advance(2 * DAY_S)
    assert await trim(scene.store, DAY) == 0
    clock.advance(8 * DAY_S)
    await scene.sweep(scene.store.fire_timers)
    await scene.send_all()
    assert await trim(scene.store, DAY) == 1


@pytest.mark.conformance
async def test_a_large_turn_goes_in_pieces(scene: Scene) -> None:
    """A crash between two of them leaves a turn that is whole as far as it is there."""
    asked = await scene.asked(40)
    for n in range(1, 41):
        await scene.press(asked.waits[n - 1])
        assert await scene.start(asked.lease, n, asked.waits[n - 1]) is StartOutcome.STARTED
        await scene.came(asked.lease, n, result(), [said(f"{n}")])
    assert await scene.finish(asked.lease)
    await scene.send_all()
    last, rounds = await settled(scene), 0
    while (done := await scene.store.trim(MAIN, ONE)).passed is not None:
        assert 0 < done.rows <= 60
        rounds += 1
        if not done.turns:
            view = await scene.view(asked.turn)
            assert [step.n for step in view.steps] == list(range(len(view.steps)))
    assert rounds > 1
    assert await turns_of(scene) == [last]
    assert [slot.turn for slot in await scene.slots()] == [last]
    assert await scene.store.wait(asked.wait) is None
    assert await scene.store.card_slots(asked.wait) == []
    assert (await scene.store.audit_head()).seq == 40  # the audit stays


@pytest.mark.conformance
async def test_children_go_with_their_turn(store: Store, clock: FakeClock) -> None:
    """At any depth. A live one keeps the turn that spawned it."""
    scene = FamilyScene(store, clock)
    child = await scene.child()
    assert await store.park(child.parent)
    at_work = await scene.work(child)
    await scene.begin_calls(at_work)
    below = await scene.born(at_work, 1, SESSION)
    await scene.end(below)
    await scene.sweep(scene.store.reclaim)
    assert await scene.end_held(at_work)
    again = await scene.claim()
    await scene.came(again, 1, result())
    assert await scene.finish(again)
    kept = await scene.child(SESSION)
    assert await scene.finish(kept.parent)
    held = await scene.work(kept)
    await settled(scene)
    await scene.send_all()
    assert await trim(store) == 3  # the turn and two below it; the other one has a live child
    assert [await store.session(one) for one in (child.session, below.session)] == [None, None]
    assert await is_gone(scene, child.turn)
    assert (await scene.session(kept.session)).id == kept.session
    assert [line.session.id for line in await store.family(MAIN)] == [kept.session]
    assert await scene.end_held(held)
    while leases := await store.claim(NODE):
        await scene.finish(leases[0].lease)
    await scene.send_all()
    assert await trim(store) == 3  # it told its end in a turn of its own
    assert await store.family(MAIN) == []
    assert [line.session.id for line in await store.sessions()] == [MAIN]


async def test_a_child_asked_again_goes_with_its_last_task(store: Store, clock: FakeClock) -> None:
    scene = FamilyScene(store, clock)
    child = await scene.child(SESSION)
    assert await scene.finish(child.parent)
    await scene.end(child)
    again = await scene.claim()  # told of its end
    await scene.begin_calls(again)
    message = NewMessage(child=child.session, text="And?", tools=("shell",), active_s=60, tokens=0, waits=None)
    assert await store.send(again, 1, message) is MessageFate.BEGUN
    await scene.came(again, 1, result())
    assert await scene.finish(again)
    second = await scene.claim()
    await scene.end_held(second)
    last = await scene.claim()
    assert await scene.finish(last)
    assert await trim(store, Keep(turns=2)) == 2
    assert await is_gone(scene, child.turn)
    assert [turn.id for turn in await scene.turns(child.session)] == [second.turn]
    assert await trim(store) == 2
    assert await store.session(child.session) is None


@pytest.mark.conformance
async def test_an_approval_stays_with_its_grant(scene: Scene, clock: FakeClock) -> None:
    lease = await scene.planned()
    wait = replace(new_wait(1, expires_in=timedelta(hours=1)), approval=replace(approval(1), scope="example.org"))
    asked = await scene.ask(lease, [wait])
    await scene.press(asked.wait)
    assert await scene.start(lease, 1, asked.wait) is StartOutcome.STARTED
    await scene.came(lease, 1, result())
    assert await scene.finish(lease)
    await settled(scene)
    await scene.send_all()
    (grant,) = await scene.store.live_grants()
    assert await trim(scene.store) == 0
    await scene.store.revoke_grant(grant.id, ANN_TELEGRAM)
    assert await trim(scene.store) == 1
    assert await scene.store.live_grants() == []


@pytest.mark.conformance
async def test_rows_without_a_turn_are_removed_too(scene: Scene, clock: FakeClock) -> None:
    """Control commands with their replies, once they are older than every turn that stays."""
    await scene.stop()
    await settled(scene)
    await scene.stop()
    await scene.send_all()
    last = await settled(scene)
    await scene.stop()
    await scene.send_all()
    assert await trim(scene.store) == 1
    rows = [row.item for row in await scene.rows()]
    said_to = [one for one in rows if isinstance(one, Received) and one.turn is None]
    told = [one for one in rows if isinstance(one, Slot) and one.turn is None]
    assert (len(said_to), len(told)) == (1, 1)
    assert await turns_of(scene) == [last]


async def test_overheard_messages_stay_for_the_next_turn(scene: Scene, clock: FakeClock) -> None:
    group = route(GROUP)
    await scene.overhear("long ago", to=group)
    clock.advance(2 * DAY_S)
    assert await trim(scene.store, DAY, GROUP) == 0
    lease = await scene.running(group)
    assert {one.message.text for one in (await scene.view(lease.turn)).inputs} == {"long ago", "hello"}


async def test_files_of_a_removed_turn_are_named(scene: Scene) -> None:
    """Until somebody removed them. A turn that called nothing and brought nothing has none."""
    await settled(scene)
    lease = await scene.started()
    message = (await scene.view(lease.turn)).inputs[0].id
    await scene.store.record_fetched(lease, message, [fetched("inbox/i1-1.png"), fetched("", trouble="too large")])
    await scene.came(lease, 1, result())
    assert await scene.finish(lease)
    await settled(scene)
    assert await scene.store.lost_files() == []
    assert await trim(scene.store) == 2
    named = LostFiles(turn=lease.turn, session=MAIN, works_in=MAIN, inbox=("inbox/i1-1.png",))
    assert await scene.store.lost_files() == [named]
    await scene.store.forget_files([lease.turn, TurnId("t-other")])
    assert await scene.store.lost_files() == []


async def test_a_repeated_event_of_a_removed_turn(scene: Scene, clock: FakeClock) -> None:
    """It is known for two weeks; then no platform repeats it."""
    message = inbound("once")
    accept = partial(scene.store.accept, route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE)
    first = await accept(say_if_waiting=None)
    assert await scene.finish(await scene.claim())
    await settled(scene)
    assert await trim(scene.store) == 1
    assert await is_gone(scene, first.turn)
    assert (await accept(say_if_waiting=None)).duplicate
    assert not await scene.edit(message, "late")


@pytest.mark.conformance
async def test_roots_are_given_a_few_at_a_time(store: Store, clock: FakeClock) -> None:
    scene = FamilyScene(store, clock)
    for number in range(3):
        await scene.ended(route(SessionId(f"chat:{number}")))
        clock.advance(1)
    await scene.child()
    found, after = list[SessionId](), ""
    while True:
        some, after = await store.some_roots(after, 2)
        assert len(some) <= 2
        found += some
        if not after:
            break
    assert sorted(found) == sorted([MAIN, *(SessionId(f"chat:{number}") for number in range(3))])


async def test_a_clock_that_was_ahead_moves_no_later_turn(scene: Scene, clock: FakeClock) -> None:
    """One turn began or ended years ahead. Once the clock is right, turns have its time, and do not overlap again."""
    await scene.finish(await scene.running())
    years = timedelta(days=5 * 365).total_seconds()
    clock.advance(years)
    await scene.finish(await scene.running())
    begun = await scene.running()
    clock.advance(-years)
    await scene.finish(begun)
    assert (await scene.view(begun.turn)).turn.ended_at == clock.now()
    clock.advance(3600)
    lease = await scene.running()
    await scene.finish(lease)
    turn = (await scene.view(lease.turn)).turn
    assert turn.started_at == turn.ended_at == clock.now()
    clock.advance(-0.003)
    assert (await scene.view((await scene.running()).turn)).turn.started_at == turn.ended_at
