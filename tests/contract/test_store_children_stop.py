"""`Children`: stops of a family, orphans, and the list of a family."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gateway.domain.events import TurnWoken, turn_topic
from gateway.domain.ids import SessionId, TurnId, child_session
from gateway.domain.slots import SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import WaitState
from gateway.errors import Forbidden, NotFound
from gateway.ports import ControlEffect, Store
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import changed
from gateway.store.kernel_store import KernelStore
from tests.contract.family import RUN, SESSION, Child, FamilyScene, spent
from tests.contract.scene import MAIN
from tests.support.clock import FakeClock
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, OTHER_CHAT, deny, new_wait, result, route, seconds

GROUP = SessionId("chat:g")
STOPPED, STOPPING = TurnState.STOPPED, TurnState.STOPPING


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


async def _tree(scene: FamilyScene) -> tuple[Child, Child, Child, Lease]:
    """A parked child with one of its own in each mode, both queued; and the lease of the root's turn."""
    lease = await scene.at_work()
    child = await scene.born(lease)
    held = await scene.work(child)
    await scene.begin_calls(held, 2)
    waited, free = await scene.born(held, 1), await scene.born(held, 2, SESSION)
    assert await scene.store.park(held)
    return child, waited, free, lease


async def _states(scene: FamilyScene, *children: Child) -> list[TurnState]:
    return [await scene.state(child.turn) for child in children]


# --- the parent is stopped ------------------------------------------------------------------


@pytest.mark.parametrize("effect", [ControlEffect.STOP, ControlEffect.RESET])
async def test_stop_reaches_every_live_child_below(scene: FamilyScene, effect: ControlEffect) -> None:
    """Parked, queued, never started, in both modes and at both depths; the caller learns how many."""
    child, waited, free, lease = await _tree(scene)
    assert await scene.stop(effect) == 4
    assert await _states(scene, child, waited, free) == [STOPPED] * 3
    assert await scene.state(lease.turn) is STOPPING
    assert [await scene.wait_state(one.wait) for one in (child, waited)] == [WaitState.CANCELLED] * 2
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert reply.text == "Done."
    for one in (child, waited, free):
        assert [slot.text for slot in await scene.slots(one.session)] == ["Stopped."]
    assert await scene.stop(effect) == 0
    assert len(await scene.turns()) == 1


async def test_a_running_child_may_write_results_only(scene: FamilyScene) -> None:
    """Its holder is woken; the end is nobody's news."""
    child = await scene.child()
    held = await scene.work(child)
    async with scene.store.event_bus.subscribe(turn_topic(child.turn)) as events:
        assert await scene.stop() == 2
        assert await anext(aiter(events)) == TurnWoken(turn=child.turn)
    assert await scene.store.renew(held) is STOPPING
    assert await scene.stop() == await scene.store.stop_child(MAIN, child.session, "again") == 0
    assert not await scene.end_held(held)
    assert await scene.end_held(held, STOPPED)
    assert await scene.wait_state(child.wait) is WaitState.CANCELLED
    assert await scene.state(child.parent.turn) is STOPPING


async def test_stop_reaches_a_child_whose_spawning_turn_has_ended(scene: FamilyScene) -> None:
    """Mode SESSION: it goes on beside its parent, until that is told to stop."""
    child = await scene.child(SESSION)
    assert await scene.finish(child.parent)
    assert await scene.state(child.turn) is TurnState.QUEUED
    assert await scene.stop() == 1
    assert await _states(scene, child) == [STOPPED]
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert reply.text == "Done."


async def test_stop_of_one_person_reaches_the_children_of_that_person(scene: FamilyScene) -> None:
    """Children of other people's turns go on."""
    mine = await scene.child(SESSION)
    assert await scene.finish(mine.parent)
    await scene.claim()
    await scene.say(who=ANN_SLACK, where=OTHER_CHAT)
    lease = await scene.claim()
    await scene.begin_calls(lease, 2)
    theirs = [await scene.born(lease, 1), await scene.born(lease, 2, SESSION)]
    assert await scene.stop(only=ANN_SLACK) == 3
    assert await _states(scene, *theirs) == [STOPPED] * 2
    assert await _states(scene, mine) == [TurnState.RUNNING]
    assert await scene.stop(only=ANN_TELEGRAM) == 1


async def test_stop_leaves_the_children_of_other_sessions(scene: FamilyScene) -> None:
    child = await scene.child(to=route(GROUP))
    assert await scene.stop() == 0
    assert await _states(scene, child) == [TurnState.QUEUED]


async def test_a_queued_message_stays_though_children_are_stopped(scene: FamilyScene) -> None:
    """Only a child's turn is stopped that was never started."""
    child = await scene.child(SESSION)
    queued = await scene.say("next")
    assert await scene.stop() == 2
    assert await scene.state(queued.turn) is TurnState.QUEUED
    assert await _states(scene, child) == [STOPPED]


async def test_a_command_turn_waits_for_its_child_like_any(scene: FamilyScene) -> None:
    """`/spawn`: parked, woken by the end, stopped with it."""
    lease = await scene.running(kind=TurnKind.COMMAND)
    await scene.begin_calls(lease)
    child = await scene.born(lease)
    assert await scene.store.park(lease)
    await scene.end(child)
    assert (await scene.claim()).turn == lease.turn


# --- races ----------------------------------------------------------------------------------


async def test_a_child_that_ended_first_stays_answered(scene: FamilyScene) -> None:
    child = await scene.child()
    await scene.end(child)
    assert await scene.stop() == 1
    assert await scene.wait_state(child.wait) is WaitState.ANSWERED
    step = await scene.step(child.parent.turn, 1)
    assert step.result is not None
    assert (step.state, step.result.status) == (StepState.FINISHED, ResultStatus.CANCELLED)


async def test_a_child_that_ends_while_its_parent_stops_tells_nobody(scene: FamilyScene) -> None:
    """The parent's turn may have ended by then."""
    child = await scene.child()
    held = await scene.work(child)
    await scene.stop()
    assert await scene.finish(child.parent, STOPPED)
    rows = await scene.rows()
    assert await scene.end_held(held, TurnState.FAILED)
    assert await scene.rows() == rows
    assert await scene.wait_state(child.wait) is WaitState.CANCELLED


async def test_expired_leases_of_a_stopped_family_end_in_one_sweep(scene: FamilyScene) -> None:
    """One sweep ends both, whichever is first."""
    child = await scene.child()
    await scene.work(child)
    await scene.stop()
    await scene.lapse()
    assert await _states(scene, child) == [STOPPED]
    assert await scene.state(child.parent.turn) is STOPPED
    assert await scene.wait_state(child.wait) is WaitState.CANCELLED


# --- a wait is withdrawn --------------------------------------------------------------------

Withdraw = Callable[[FamilyScene, Child], Awaitable[object]]


async def _end_of_turn(scene: FamilyScene, child: Child) -> None:
    assert await scene.finish(child.parent, TurnState.FAILED)


async def _done_all_the_same(scene: FamilyScene, child: Child) -> None:
    assert await scene.finish(child.parent)


async def _result(scene: FamilyScene, child: Child) -> None:
    await scene.came(child.parent, 1, result("gave up"))


async def _stop(scene: FamilyScene, child: Child) -> None:
    await scene.stop()


async def _time(scene: FamilyScene, child: Child) -> None:
    scene.clock.advance(3600)
    assert await scene.sweep(scene.store.expire_waits) == 1


WITHDRAWN: dict[str, tuple[Withdraw, WaitState]] = {
    "end of turn": (_end_of_turn, WaitState.CANCELLED),
    "answer": (_done_all_the_same, WaitState.CANCELLED),
    "result": (_result, WaitState.CANCELLED),
    "stop": (_stop, WaitState.CANCELLED),
    "expiry": (_time, WaitState.EXPIRED),
}


@pytest.mark.parametrize("how", WITHDRAWN)
async def test_a_child_nobody_waits_for_is_stopped_with_all_below(scene: FamilyScene, how: str) -> None:
    """In the same transition, whatever ended the wait."""
    child, waited, free, lease = await _tree(scene)
    withdraw, state = WITHDRAWN[how]
    await withdraw(scene, child)
    assert await _states(scene, child, waited, free) == [STOPPED] * 3
    assert await scene.wait_state(child.wait) is state
    assert await scene.wait_state(waited.wait) is WaitState.CANCELLED
    assert [line.session.id for line in await scene.store.family(MAIN) if line.turn.state is not STOPPED] == []
    assert {turn.id for turn in await scene.turns()} == {lease.turn}


async def test_denial_that_withdraws_siblings_stops_their_child(scene: FamilyScene) -> None:
    lease = await scene.planned(2)
    await scene.start(lease, 1)
    child = await scene.born(lease, 1)
    asked = await scene.ask(lease, [new_wait(2, expires_in=seconds(60))])
    await scene.press(asked.wait, deny(withdraw_siblings=True))
    assert await scene.wait_state(child.wait) is WaitState.CANCELLED
    assert await _states(scene, child) == [STOPPED]


async def test_a_parent_whose_child_took_too_long_goes_on(scene: FamilyScene) -> None:
    """The wait expires, the parked turn is queued, and what the child asked meanwhile is withdrawn, not expired."""
    lease = await scene.at_work()
    child = await scene.born(lease, ttl_s=600)
    held = await scene.work(child)
    await scene.plan(held)
    asked = await scene.ask(held, [new_wait(1, expires_in=seconds(600))])
    for one in (lease, held):
        assert await scene.store.park(one)
    scene.clock.advance(600)
    await scene.sweep(scene.store.expire_waits)
    assert await scene.wait_state(child.wait) is WaitState.EXPIRED
    assert await scene.wait_state(asked.wait) is WaitState.CANCELLED
    assert await _states(scene, child) == [STOPPED]
    assert [slot.text for slot in await scene.slots(child.session, kind=SlotKind.ANSWER)] == [
        "Stopped: nobody waits for it any longer."
    ]
    assert (await scene.claim()).turn == lease.turn


# --- stop_child -----------------------------------------------------------------------------


async def test_one_child_is_stopped_and_its_parent_goes_on(scene: FamilyScene) -> None:
    """With all below it; twice is safe; its siblings go on."""
    child, waited, free, lease = await _tree(scene)
    assert await scene.store.stop_child(MAIN, child.session, "Enough.") == 3
    assert await scene.store.stop_child(MAIN, child.session, "Enough.") == 0
    assert await _states(scene, child, waited, free) == [STOPPED] * 3
    assert [slot.text for slot in await scene.slots(waited.session)] == ["Enough."]
    wait = await scene.wait(child.wait)
    assert (wait.state, wait.payload["state"], wait.payload["text"]) == (WaitState.ANSWERED, "stopped", "Enough.")
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_a_grandchild_is_stopped_by_the_root_or_its_parent(scene: FamilyScene) -> None:
    child, waited, free, _ = await _tree(scene)
    assert await scene.store.stop_child(MAIN, waited.session, "Enough.") == 1
    assert await scene.store.stop_child(child.session, free.session, "Enough.") == 1
    assert await _states(scene, waited, free, child) == [STOPPED, STOPPED, TurnState.QUEUED]
    assert await scene.wait_state(waited.wait) is WaitState.ANSWERED


async def test_nobody_stops_what_is_not_below(scene: FamilyScene) -> None:
    """Not itself, its parent, its sibling, a root, another root's child, or nothing; and nothing is changed."""
    other = await scene.child(to=route(GROUP))
    await scene.work(other)
    child, waited, free, _ = await _tree(scene)
    before = await scene.rows(child.session), await scene.rows(free.session), await scene.rows(other.session)
    for parent, target in [
        (child.session, child.session),
        (waited.session, child.session),
        (waited.session, free.session),
        (child.session, MAIN),
        (MAIN, MAIN),
        (MAIN, other.session),
        (GROUP, child.session),
        (MAIN, SessionId("child:none.1")),
        (SessionId("none"), child.session),
    ]:
        with pytest.raises(NotFound):
            await scene.store.stop_child(parent, target, "Enough.")
    assert (await scene.rows(child.session), await scene.rows(free.session), await scene.rows(other.session)) == before


async def test_only_whose_task_it_is_stops_a_child(scene: FamilyScene) -> None:
    """With `only`, another person's child stays as it is; the own one is stopped with all below it."""
    child, waited, free, _ = await _tree(scene)
    before = await scene.rows(child.session)
    for target in (child, waited):
        with pytest.raises(Forbidden):
            await scene.store.stop_child(MAIN, target.session, "Enough.", ANN_SLACK)
    with pytest.raises(NotFound):
        await scene.store.stop_child(GROUP, child.session, "Enough.", ANN_SLACK)
    assert await scene.rows(child.session) == before
    assert await scene.store.stop_child(MAIN, child.session, "Enough.", ANN_TELEGRAM) == 3
    assert await _states(scene, child, waited, free) == [STOPPED] * 3
    with pytest.raises(Forbidden):
        await scene.store.stop_child(MAIN, child.session, "Enough.", ANN_SLACK)


# --- orphans --------------------------------------------------------------------------------


async def _forget_the_parent(store: Store, lease: Lease) -> None:
    """The parent's turn has ended and its children were not told: what no transition leaves behind."""
    assert isinstance(store, KernelStore)

    def end(part: Part) -> None:
        row = part.turns[lease.turn]
        part.turns.put(lease.turn, changed(row, turn=changed(row.turn, state=TurnState.STOPPED), ended_rev=row.rev))

    await store.run(end)


@pytest.mark.conformance
async def test_a_live_child_of_an_ended_turn_is_swept(scene: FamilyScene) -> None:
    """Once: one that is stopping already is left to its holder, or to its lease's end. Mode SESSION is no orphan."""
    lease = await scene.at_work(3)
    queued, running, free = [await scene.born(lease, n, mode) for n, mode in [(1, RUN), (2, RUN), (3, SESSION)]]
    await scene.claim()
    held = await scene.claim()
    assert held.turn == running.turn
    assert await scene.store.reclaim() == 0
    await _forget_the_parent(scene.store, lease)
    assert await scene.store.reclaim() == 2
    assert await scene.store.reclaim() == 0
    assert await _states(scene, queued, running, free) == [STOPPING, STOPPING, TurnState.QUEUED]
    assert await scene.finish(held, STOPPED)


# --- the list -------------------------------------------------------------------------------


async def _listed(scene: FamilyScene, session: SessionId = MAIN, limit: int = 50) -> list[SessionId]:
    return [line.session.id for line in await scene.store.family(session, limit)]


@pytest.mark.conformance
async def test_live_ones_come_first_then_those_that_ended_last(scene: FamilyScene) -> None:
    """Each parent before its own, though it ended and its child goes on."""
    lease = await scene.at_work(5)
    a, b, c, d = [(await scene.born(lease, n, SESSION)) for n in (1, 2, 3, 4)]
    held = {child: await scene.work(child) for child in (a, b, c, d)}
    for child in (b, a):
        assert await scene.end_held(held[child])
    e = await scene.born(lease, 5)
    assert await _listed(scene) == [one.session for one in (c, d, e, a, b)]
    assert await _listed(scene, limit=4) == [one.session for one in (c, d, e, a)]
    assert await _listed(scene, limit=0) == []
    assert await _listed(scene, GROUP) == await _listed(scene, SessionId("none")) == []
    held[e] = await scene.work(e)
    await scene.begin_calls(held[c])
    below = await scene.born(held[c], 1, SESSION)
    working = await scene.work(below)
    assert await scene.end_held(held[c])
    assert await _listed(scene) == [one.session for one in (c, d, e, below, a, b)]
    assert await _listed(scene, c.session) == [below.session]
    assert await scene.end_held(held[e])
    assert await scene.end_held(working, STOPPED)
    assert await _listed(scene) == [one.session for one in (d, c, below, e, a, b)]


@pytest.mark.conformance
async def test_the_children_of_a_turn_are_its_own(scene: FamilyScene) -> None:
    """In the order of its steps: none of what those spawned, and none of another turn of the session."""
    before = await scene.at_work()
    earlier = await scene.born(before, 1)
    assert await scene.finish(before, STOPPED)
    lease = await scene.at_work(11)
    spawned = [await scene.born(lease, n, SESSION) for n in (2, 11, 1)]
    child = await scene.work(spawned[0])
    await scene.begin_calls(child)
    below = await scene.born(child, 1)
    assert [one.session.id for one in await scene.store.children_of(child.turn)] == [below.session]
    lines = await scene.store.children_of(lease.turn)
    assert [one.session.id for one in lines] == [child_session(lease.turn, n) for n in (1, 2, 11)]
    by_id = {one.session.id: one for one in await scene.store.family(MAIN)}
    assert list(lines) == [by_id[one.session.id] for one in lines]
    assert [one.session.id for one in await scene.store.children_of(before.turn)] == [earlier.session]
    assert await scene.store.children_of(TurnId("none")) == []


@pytest.mark.conformance
async def test_a_line_says_what_its_task_is_at(scene: FamilyScene) -> None:
    """The turn that does the task, its open approvals, and the tokens it used so far itself; without its summary."""
    child = await scene.child()
    held = await scene.work(child)
    await scene.store.plan(held, spent("", 100, 10, 7, calls=2), given=[], slots=[])
    ttl = seconds(60)
    asked = await scene.ask(held, [new_wait(1, expires_in=ttl), new_wait(2, expires_in=ttl)])
    await scene.press(asked.waits[0])
    (line,) = await scene.store.family(MAIN)
    assert line.session == await scene.session(child.session)
    assert line.turn == (await scene.view(child.turn)).turn
    assert (line.waiting, line.input_tokens, line.output_tokens) == (1, 100, 10)
    among = {one.session.id: one for one in await scene.store.sessions()}[child_session(child.parent.turn, 1)]
    assert among.session == await scene.session(child.session)
    assert (among.waiting, among.queued, among.running) == (1, 0, 1)
    assert await scene.end_held(held, TurnState.FAILED)
    assert await scene.store.compact(child.session, 0, child.turn, "In short.", None)
    assert (await scene.session(child.session)).summary == "In short."
    lines = [*await scene.store.family(MAIN), *await scene.store.sessions()]
    assert {one.session.summary for one in lines} == {""}


@pytest.mark.conformance
async def test_no_number_of_children_hides_a_root_or_a_live_child(scene: FamilyScene, clock: FakeClock) -> None:
    """Roots and ended children are limited apart from each other; live children come with their roots."""
    await scene.parked(to=route(GROUP))
    clock.advance(1)
    lease = await scene.at_work(4)
    children: list[Child] = []
    for n in (1, 2, 3, 4):
        clock.advance(1)
        children.append(await scene.born(lease, n))
    await scene.work(children[0])
    for child in children[1:]:
        await scene.end(child)
    live, _, third, last = [child.session for child in children]

    async def listed(limit: int, ended: int) -> list[SessionId]:
        return [line.session.id for line in await scene.store.sessions(limit, ended)]

    assert await listed(2, 2) == [last, third, live, MAIN, GROUP]
    assert await listed(2, 0) == [live, MAIN, GROUP]
    assert await listed(1, 1) == [last, live, MAIN]
    assert await listed(0, 0) == []
