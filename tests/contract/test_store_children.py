"""`Children.spawn`: start of a sub-session, exactly once, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.children import CHILDREN_A_TURN, LIVE_BELOW_A_ROOT, Lineage, SpawnMode, SpawnRefusal, child_place
from gateway.domain.events import TURNS, TurnsDue
from gateway.domain.ids import SessionId, child_session
from gateway.domain.messages import Received
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitKind, WaitState
from gateway.errors import LeaseLost, NotFound
from gateway.ports import Store
from tests.contract.family import RUN, SESSION, FamilyScene, new_child
from tests.contract.scene import MAIN
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_SLACK, CHAT, beginning, result, route

MODES = list(SpawnMode)
GROUP = SessionId("chat:g")


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


# --- the beginning --------------------------------------------------------------------------


async def test_a_child_is_a_session_of_its_own_with_one_task(scene: FamilyScene) -> None:
    """Owner and root's kind are its parent's; the tools and the title are what was given."""
    lease = await scene.at_work()
    child = await scene.born(lease)
    session = await scene.session(child.session)
    assert (session.kind, session.origin) == (SessionKind.NON_MAIN, Origin.CHILD)
    assert (session.owner, session.root_kind, session.epoch) == (ANN, SessionKind.MAIN, 0)
    assert (session.title, session.tools, session.summary) == ("look", ("shell", "read"), "")
    assert session.lineage == Lineage(
        parent=MAIN,
        turn=lease.turn,
        n=1,
        root=MAIN,
        root_turn=lease.turn,
        conversation=CHAT,
        depth=1,
        mode=RUN,
        agent="reader",
        model="small",
        active_s=60.0,
        tokens=1000,
    )
    assert session.created_at == session.active_at == scene.clock.now()


@pytest.mark.parametrize("mode", MODES)
async def test_its_task_is_the_message_of_a_queued_turn(scene: FamilyScene, mode: SpawnMode) -> None:
    """The turn is at the child's own place and of the person whose turn spawned it; the words are a model's."""
    lease = await scene.at_work(to=route(GROUP), who=ANN_SLACK)
    child = await scene.born(lease, 1, mode)
    (turn,) = await scene.turns(child.session)
    assert (turn.kind, turn.state, turn.principal) == (TurnKind.MODEL, TurnState.QUEUED, ANN_SLACK)
    assert turn.conversation == child_place(child.session)
    (received,) = await scene.items(Received, child.session)
    message = received.message
    assert (message.text, message.principal, message.name) == ("Look at the disk.", "system:parent", "task")
    assert (message.conversation, message.direct, message.addressed) == (turn.conversation, True, True)
    assert (await scene.work(child)).turn == turn.id


async def test_run_waits_for_the_child_on_the_step(scene: FamilyScene) -> None:
    """The step is ASKED; the wait names the child and lasts as long as was asked for."""
    child = await scene.child()
    wait = await scene.wait(child.wait)
    assert (wait.kind, wait.state, wait.turn, wait.n) == (WaitKind.CHILD, WaitState.OPEN, child.parent.turn, 1)
    assert wait.payload == {"child": child.session}
    assert (wait.expires_at - scene.clock.now()).total_seconds() == 3600
    assert (await scene.step(child.parent.turn, 1)).state is StepState.ASKED
    assert await scene.store.park(child.parent)
    assert (await scene.store.counts()).open_approvals == 0


async def test_session_leaves_the_step_to_its_caller(scene: FamilyScene) -> None:
    """Nothing waits; the call returns at once."""
    lease = await scene.at_work()
    assert await scene.spawn(lease, 1, SESSION) is None
    assert (await scene.view(lease.turn)).waits == ()
    assert (await scene.step(lease.turn, 1)).state is StepState.STARTED
    await scene.came(lease, 1, result("begun"))


async def test_spawn_wakes_a_claimer(scene: FamilyScene) -> None:
    """A child begins at once."""
    lease = await scene.at_work()
    async with scene.store.event_bus.subscribe(TURNS) as events:
        await scene.spawn(lease)
        assert await anext(aiter(events)) == TurnsDue()


async def test_a_grandchild_has_the_root_of_its_parent(scene: FamilyScene) -> None:
    """And stands where the root's turn began, not in the child's own place."""
    child = await scene.child()
    lease = await scene.work(child)
    await scene.begin_calls(lease)
    below = new_child(lease, scene=scene)
    await scene.store.spawn(lease, 1, below)
    session = await scene.session(below.session)
    line = session.lineage
    assert line is not None
    assert (line.parent, line.turn, line.n) == (child.session, lease.turn, 1)
    assert (line.root, line.root_turn, line.conversation, line.depth) == (MAIN, child.parent.turn, CHAT, 2)
    assert (session.owner, session.root_kind) == (ANN, SessionKind.MAIN)


# --- once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_spawning_again_gives_the_same_child(scene: FamilyScene, mode: SpawnMode) -> None:
    """Nothing is written, whatever was asked for the second time, and whatever became of the child."""
    lease = await scene.at_work()
    child = await scene.born(lease, 1, mode)
    before = await scene.rows(), await scene.rows(child.session)
    assert await scene.spawn(lease, 1, mode) == child.spawned
    assert (await scene.rows(), await scene.rows(child.session)) == before
    await scene.end(child)
    assert await scene.spawn(lease, 1, mode) == child.spawned
    assert len(await scene.turns(child.session)) == 1


async def test_a_crash_after_the_spawn_leaves_one_child_and_its_wait(scene: FamilyScene) -> None:
    """RUN: the next holder finds the wait; asking again gives it too."""
    child = await scene.child()
    await scene.lapse()
    await scene.work(child)
    again = await scene.claim()
    assert again.turn == child.parent.turn
    assert await scene.spawn(again) == child.wait
    assert len(await scene.store.family(MAIN)) == 1


async def test_a_crash_before_the_result_leaves_one_child(scene: FamilyScene) -> None:
    """SESSION: the call is started again, spawns what is there already, and gets its result."""
    lease = await scene.at_work()
    assert await scene.spawn(lease, 1, SESSION) is None
    await scene.lapse()
    leases = [await scene.claim(), await scene.claim()]
    (again,) = [one for one in leases if one.turn == lease.turn]
    assert await scene.store.start_step(again, 1, None, beginning()) is StartOutcome.STARTED
    assert await scene.spawn(again, 1, SESSION) is None
    await scene.came(again, 1, result("begun"))
    assert len(await scene.store.family(MAIN)) == 1


async def test_repeated_spawn_is_the_same_child_at_every_limit(scene: FamilyScene) -> None:
    """An existing child is not counted as a new one."""
    lease = await scene.at_work(LIVE_BELOW_A_ROOT)
    waits = [await scene.spawn(lease, n) for n in range(1, LIVE_BELOW_A_ROOT + 1)]
    assert await scene.spawn(lease, 1) == waits[0]
    await scene.stop()
    assert await scene.spawn(lease, 1) == waits[0]


# --- refusals -------------------------------------------------------------------------------


async def test_a_stopped_turn_spawns_nothing(scene: FamilyScene) -> None:
    lease = await scene.at_work()
    await scene.stop()
    before = await scene.rows()
    assert await scene.spawn(lease) is SpawnRefusal.STOPPING
    assert await scene.rows() == before
    assert await scene.store.session(child_session(lease.turn, 1)) is None


@pytest.mark.parametrize("n", [0, 2, 3, -1])
async def test_only_a_started_step_spawns(scene: FamilyScene, n: int) -> None:
    """Not an answer, not one that is planned, not one that is not there."""
    lease = await scene.planned(2)
    await scene.start(lease, 1)
    before = await scene.rows()
    with pytest.raises(NotFound):
        await scene.spawn(lease, n)
    assert await scene.rows() == before


async def test_a_step_of_an_earlier_holder_is_started_again_first(scene: FamilyScene) -> None:
    """Otherwise two lives of one call could both be under way."""
    lease = await scene.at_work()
    await scene.lapse()
    again = await scene.claim()
    assert again.turn == lease.turn
    with pytest.raises(NotFound):
        await scene.spawn(again)
    with pytest.raises(LeaseLost):
        await scene.spawn(lease)
    assert await scene.store.family(MAIN) == []


async def test_the_id_is_that_of_the_step(scene: FamilyScene) -> None:
    """A session of somebody else is never taken for one's child."""
    lease = await scene.at_work()
    for id_ in (MAIN, child_session(lease.turn, 2), SessionId("child:other.1")):
        with pytest.raises(NotFound):
            await scene.store.spawn(lease, 1, replace(new_child(lease, scene=scene), session=id_))
    assert await scene.store.family(MAIN) == []


async def test_two_below_a_root_is_as_deep_as_it_goes(scene: FamilyScene) -> None:
    first = await scene.child()
    lease = await scene.work(first)
    await scene.begin_calls(lease)
    second = await scene.born(lease)
    below = await scene.work(second)
    await scene.begin_calls(below)
    before = await scene.rows(second.session)
    assert await scene.spawn(below) is SpawnRefusal.TOO_DEEP
    assert await scene.rows(second.session) == before


async def test_so_many_are_live_below_a_root(scene: FamilyScene) -> None:
    """The last one that may be is begun, the next one is not; one that has ended makes room, another root has its own.

    Children of children count.
    """
    lease = await scene.at_work(LIVE_BELOW_A_ROOT + 1)
    first = await scene.born(lease, 1)
    held = await scene.work(first)
    await scene.begin_calls(held, 2)
    await scene.born(held, 1)
    for n in range(2, LIVE_BELOW_A_ROOT - 1):
        await scene.born(lease, n)
    assert len(await scene.store.family(MAIN)) == LIVE_BELOW_A_ROOT - 1
    last = await scene.born(held, 2, SESSION)
    before = await scene.rows()
    assert await scene.spawn(lease, LIVE_BELOW_A_ROOT) is SpawnRefusal.TOO_MANY_LIVE
    assert await scene.rows() == before
    assert await scene.store.stop_child(MAIN, last.session, "Stopped.") == 1
    await scene.born(lease, LIVE_BELOW_A_ROOT)
    assert await scene.spawn(lease, LIVE_BELOW_A_ROOT + 1) is SpawnRefusal.TOO_MANY_LIVE


async def test_another_root_has_room_of_its_own(scene: FamilyScene) -> None:
    lease = await scene.at_work(LIVE_BELOW_A_ROOT)
    for n in range(1, LIVE_BELOW_A_ROOT + 1):
        await scene.born(lease, n)
        await scene.claim()
    other = await scene.at_work(to=route(GROUP))
    await scene.born(other)


async def test_a_child_is_live_until_its_task_has_ended(scene: FamilyScene) -> None:
    """One that is stopping still is: its holder may still be at work."""
    lease = await scene.at_work(LIVE_BELOW_A_ROOT + 1)
    children = [await scene.born(lease, n) for n in range(1, LIVE_BELOW_A_ROOT + 1)]
    held = await scene.work(children[0])
    await scene.store.stop_child(MAIN, children[0].session, "Stopped.")
    assert await scene.spawn(lease, LIVE_BELOW_A_ROOT + 1) is SpawnRefusal.TOO_MANY_LIVE
    assert await scene.finish(held, TurnState.STOPPED)
    await scene.born(lease, LIVE_BELOW_A_ROOT + 1)


async def test_so_many_are_spawned_by_a_turn(scene: FamilyScene) -> None:
    """The twentieth is begun, the next one is not, although all have ended; the next turn begins anew."""
    lease = await scene.at_work(CHILDREN_A_TURN + 1)
    for n in range(1, CHILDREN_A_TURN + 1):
        await scene.end(await scene.born(lease, n))
    assert await scene.spawn(lease, CHILDREN_A_TURN + 1) is SpawnRefusal.TOO_MANY_IN_TURN
    assert await scene.finish(lease)
    await scene.born(await scene.at_work())
