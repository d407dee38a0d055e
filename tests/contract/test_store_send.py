"""`Children.send`: a message to a child arrives once, begins a further task of one that has ended, and loops end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.children import (
    CHILDREN_A_TURN,
    LIVE_BELOW_A_ROOT,
    MAX_HOPS,
    MessageFate,
    NewMessage,
    SpawnMode,
    SpawnRefusal,
)
from gateway.domain.events import TURNS, TurnsDue
from gateway.domain.ids import Principal, SessionId, WaitId
from gateway.domain.messages import Received
from gateway.domain.steps import StepState
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import ChildEnd, WaitKind, WaitState
from gateway.errors import Forbidden, NotFound
from gateway.ports import ControlEffect, SessionChange, Store
from tests.contract.family import RUN, SESSION, Child, FamilyScene, spent
from tests.contract.scene import MAIN
from tests.support.clock import FakeClock
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, CHAT, beginning, control, result, route, seconds

GROUP = SessionId("chat:g")
WAITS = [None, 600.0]


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


def message(child: SessionId, waits_s: float | None = None, text: str = "And the folders?") -> NewMessage:
    """Return a message to a child, with limits of a further task that differ from those of its first."""
    waits = None if waits_s is None else seconds(waits_s)
    return NewMessage(child=child, text=text, waits=waits, tools=("read", "write"), active_s=30.0, tokens=500)


async def ended(scene: FamilyScene, mode: SpawnMode = SESSION) -> tuple[Lease, Child]:
    """Return a root's turn at work, with a child of it that has ended."""
    lease = await scene.at_work()
    child = await scene.born(lease, 1, mode)
    await scene.end(child, text="Nine files.")
    if mode is SESSION:
        await scene.finish(lease)
        lease = await scene.claim()  # the report of the end
        await scene.finish(lease)
        lease = await scene.at_work()
    else:
        await scene.came(lease, 1, result("Nine files."))
        await scene.begin_calls(lease)
    return lease, child


async def step_at_work(scene: FamilyScene, lease: Lease) -> int:
    """Return the number of the turn's last step, which was started."""
    return len((await scene.view(lease.turn)).steps) - 1


async def sent(
    scene: FamilyScene, lease: Lease, child: SessionId, waits_s: float | None = None
) -> WaitId | MessageFate | SpawnRefusal:
    """Send a message by the turn's last step."""
    return await scene.store.send(lease, await step_at_work(scene, lease), message(child, waits_s))


# --- a further task -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(SpawnMode))
async def test_ended_child_begins_a_further_task(scene: FamilyScene, mode: SpawnMode) -> None:
    """It is the same session with its history; the message is its new turn, with limits of its own."""
    lease, child = await ended(scene, mode)
    assert await sent(scene, lease, child.session) is MessageFate.BEGUN
    first, second = await scene.turns(child.session)
    assert (first.state, second.state) == (TurnState.DONE, TurnState.QUEUED)
    task, more = [one.message for one in await scene.items(Received, child.session)]
    assert (task.text, more.text) == ("Look at the disk.", "And the folders?")
    assert (more.principal, more.conversation) == ("system:parent", task.conversation)
    session = await scene.session(child.session)
    line = session.lineage
    assert line is not None
    assert (line.turn, line.mode, line.active_s, line.tokens) == (lease.turn, SESSION, 30.0, 500)
    assert (line.parent, line.depth, line.agent, line.model) == (MAIN, 1, "reader", "small")
    assert session.tools == ("read",), "what it had, of what its parent has now"
    (listed,) = await scene.store.family(MAIN)
    assert (listed.turn.id, listed.turn.state) == (second.id, TurnState.QUEUED)


async def test_further_task_ends_as_a_message_of_its_own(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    await sent(scene, lease, child.session)
    await scene.finish(lease)
    again = await scene.claim()
    assert again.session == child.session
    assert [view.turn.id for view in await scene.store.history(child.session, 0, 10)] == [child.turn]
    await scene.end_held(again, text="Three folders.")
    ends = [one.message for one in await scene.items(Received) if one.message.principal == "system:child"]
    assert [one.quoted for one in ends] == ["Task: look\n\nNine files.", "Task: look\n\nThree folders."]
    assert len({one.event_key for one in ends}) == 2


async def test_further_task_answers_the_waiting_call(scene: FamilyScene) -> None:
    """The step is asked, the turn parks, and the answer with its tokens is the wait's; no message is sent."""
    lease, child = await ended(scene, RUN)
    n = await step_at_work(scene, lease)
    wait = await sent(scene, lease, child.session, 600)
    assert not isinstance(wait, MessageFate | SpawnRefusal)
    opened = await scene.wait(wait)
    assert (opened.kind, opened.state, opened.n) == (WaitKind.CHILD, WaitState.OPEN, n)
    assert (opened.expires_at - scene.clock.now()).total_seconds() == 600
    assert (await scene.step(lease.turn, n)).state is StepState.ASKED
    assert await scene.store.park(lease)
    again = await scene.claim()
    given = (await scene.view(again.turn)).inputs
    await scene.store.finish_turn(
        again, TurnState.DONE, answer=spent("Three.", 70, 7, 0), given=given, slots=[], timers=[]
    )
    end = ChildEnd.of(await scene.wait(wait))
    assert end is not None
    assert (end.child, end.text, end.usage.input_tokens) == (child.session, "Three.", 70)
    assert (await scene.claim()).turn == lease.turn
    assert not [one for one in await scene.items(Received) if one.message.principal == "system:child"]
    lines = await scene.store.children_of(lease.turn)
    assert [(line.n, line.input_tokens) for line in lines] == [(1, 0), (n, 70)], "each task, by its step"


async def test_further_task_follows_the_limits_of_its_parent(scene: FamilyScene) -> None:
    """Tools switched off meanwhile stay off, and a preset of the parent's holds below it."""
    lease, child = await ended(scene)
    limits = SessionChange(preset="plan", tools_off=frozenset({"shell"}))
    await scene.stop(with_=replace(control(ControlEffect.NONE), change=limits))
    await sent(scene, lease, child.session)
    session = await scene.session(child.session)
    assert (session.presets_above, session.tools_off) == (("plan",), ("shell",))


async def test_sender_wakes_whoever_claims(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    async with scene.store.event_bus.subscribe(TURNS) as events:
        await sent(scene, lease, child.session)
        assert await anext(aiter(events)) == TurnsDue()


# --- the task at work -----------------------------------------------------------------------


async def test_message_joins_the_task_at_work(scene: FamilyScene) -> None:
    """It is one more message of the same turn, which cannot end before it is read."""
    lease = await scene.at_work(2)
    child = await scene.born(lease, 1, SESSION)
    held = await scene.work(child)
    assert await scene.store.send(lease, 2, message(child.session)) is MessageFate.JOINED
    assert [one.message.text for one in (await scene.view(held.turn)).inputs] == [
        "Look at the disk.",
        "And the folders?",
    ]
    first = (await scene.view(held.turn)).inputs[0]
    early = await scene.store.finish_turn(
        held, TurnState.DONE, answer=spent("Nine.", 1, 1, 0), given=[first], slots=[], timers=[]
    )
    assert not early
    line = (await scene.session(child.session)).lineage
    assert line is not None
    assert (line.n, line.active_s) == (1, 60.0), "its limits stay"


async def test_call_can_wait_for_the_task_at_work(scene: FamilyScene) -> None:
    """Its end is the call's result then, in place of a message."""
    lease = await scene.at_work(2)
    child = await scene.born(lease, 1, SESSION)
    held = await scene.work(child)
    wait = await scene.store.send(lease, 2, message(child.session, 600))
    assert not isinstance(wait, MessageFate | SpawnRefusal)
    assert await scene.store.park(lease)
    await scene.end_held(held, text="Nine, and three.")
    end = ChildEnd.of(await scene.wait(wait))
    assert end is not None
    assert end.text == "Nine, and three."
    assert (await scene.claim()).turn == lease.turn
    assert [line.n for line in await scene.store.children_of(lease.turn)] == [2], "counted once"


async def test_only_one_call_waits_for_a_child(scene: FamilyScene) -> None:
    lease = await scene.at_work(2)
    child = await scene.born(lease, 1, RUN)
    assert await scene.store.send(lease, 2, message(child.session, 600)) is MessageFate.JOINED
    assert len((await scene.view(lease.turn)).waits) == 1


# --- the wait -------------------------------------------------------------------------------


async def test_child_goes_on_when_the_wait_expires(scene: FamilyScene) -> None:
    """The sender is woken at once, and the answer is a message later."""
    lease, child = await ended(scene)
    wait = await sent(scene, lease, child.session, 60)
    assert not isinstance(wait, MessageFate | SpawnRefusal)
    assert await scene.store.park(lease)
    held = await scene.claim()
    scene.clock.advance(10)
    await scene.store.renew(held)
    scene.clock.advance(10)
    await scene.store.renew(held)
    scene.clock.advance(14)
    await scene.store.renew(held)
    scene.clock.advance(14)
    await scene.store.renew(held)
    scene.clock.advance(14)
    await scene.store.expire_waits()
    assert (await scene.wait(wait)).state is WaitState.EXPIRED
    woken = await scene.claim()
    assert woken.turn == lease.turn
    assert (await scene.store.renew(held)) is TurnState.RUNNING
    await scene.came(woken, await step_at_work(scene, woken), result("not yet"))
    await scene.end_held(woken)
    await scene.end_held(held, text="Three.")
    last = (await scene.items(Received))[-1].message
    assert (last.principal, last.quoted) == ("system:child", "Task: look\n\nThree.")


async def test_stop_of_the_sender_stops_the_child(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    wait = await sent(scene, lease, child.session, 600)
    assert not isinstance(wait, MessageFate | SpawnRefusal)
    assert await scene.store.park(lease)
    await scene.stop()
    assert (await scene.wait(wait)).state is WaitState.CANCELLED
    assert [turn.state for turn in await scene.turns(child.session)] == [TurnState.DONE, TurnState.STOPPED]


# --- to the parent --------------------------------------------------------------------------


async def test_child_at_work_writes_to_its_parent_once(scene: FamilyScene) -> None:
    """It is a turn of the parent's, in which nobody's word stands; written again by the same step, nothing happens."""
    lease = await scene.at_work()
    child = await scene.born(lease, 1, SESSION)
    await scene.finish(lease)
    held = await scene.work(child)
    await scene.begin_calls(held, 2)
    for n in (1, 1, 2):
        assert await scene.store.tell(held, n, f"Half {n}.") is MessageFate.JOINED
    said = [one.message for one in await scene.items(Received) if one.message.principal == "system:child"]
    assert [one.quoted for one in said] == ["Half 1.", "Half 2."]
    assert {one.text for one in said} == {f"The sub-session `{child.session}` is at work."}
    assert {(one.conversation, one.direct) for one in said} == {(CHAT, False)}
    above = await scene.claim()
    assert [one.message.quoted for one in (await scene.view(above.turn)).inputs] == ["Half 1.", "Half 2."]


async def test_child_that_is_waited_for_or_stopped_does_not_write(scene: FamilyScene) -> None:
    lease = await scene.at_work(2)
    awaited, later = await scene.born(lease, 1, RUN), await scene.born(lease, 2, SESSION)
    for child, refused in ((awaited, SpawnRefusal.AWAITED), (later, SpawnRefusal.STOPPING)):
        held = await scene.work(child)
        await scene.begin_calls(held)
        if refused is SpawnRefusal.STOPPING:
            await scene.stop(with_=control(ControlEffect.RESET))
        assert await scene.store.tell(held, 1, "Half.") is refused
    assert not [one for one in await scene.items(Received) if one.message.principal == "system:child"]


async def test_session_without_a_parent_writes_to_none(scene: FamilyScene) -> None:
    with pytest.raises(NotFound):
        await scene.store.tell(await scene.at_work(), 1, "Half.")


@pytest.mark.parametrize("answers", [True, False])
async def test_two_that_write_to_each_other_end(scene: FamilyScene, answers: bool) -> None:
    """A person must speak after so many messages of a child at work, with or without answers of the parent."""
    lease = await scene.at_work()
    child = await scene.born(lease, 1, SESSION)
    await scene.finish(lease)
    held, found = await scene.work(child), list[object]()
    for _ in range(MAX_HOPS):
        await scene.begin_calls(held)
        assert await scene.store.tell(held, await step_at_work(scene, held), "And?") is MessageFate.JOINED
        above = await scene.claim()
        await scene.begin_calls(above)
        found.append(await sent(scene, above, child.session) if answers else MessageFate.JOINED)
        await scene.finish(above)
    assert found[-1] is (SpawnRefusal.TOO_MANY_HOPS if answers else MessageFate.JOINED)
    await scene.begin_calls(held)
    assert await scene.store.tell(held, await step_at_work(scene, held), "And?") is SpawnRefusal.TOO_MANY_HOPS


# --- once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_s", WAITS)
@pytest.mark.parametrize("live", [False, True])
async def test_sending_again_changes_nothing(scene: FamilyScene, waits_s: float | None, live: bool) -> None:
    """A call that is run again after a crash finds what it sent, whatever became of it since."""
    if live:
        lease = await scene.at_work(2)
        child = await scene.born(lease, 1, SESSION)
    else:
        lease, child = await ended(scene)
    first = await sent(scene, lease, child.session, waits_s)
    before = await scene.rows(), await scene.rows(child.session)
    assert await sent(scene, lease, child.session, waits_s) == first
    assert (await scene.rows(), await scene.rows(child.session)) == before
    await scene.end_held(await scene.claim())
    assert await sent(scene, lease, child.session, waits_s) == first
    assert sum(one.message.text == "And the folders?" for one in await scene.items(Received, child.session)) == 1


async def test_crash_before_the_result_sends_nothing_twice(scene: FamilyScene) -> None:
    """The next holder starts the step again, and the message is there once."""
    lease, child = await ended(scene)
    n = await step_at_work(scene, lease)
    assert await sent(scene, lease, child.session) is MessageFate.BEGUN
    await scene.lapse()
    leases = [await scene.claim(), await scene.claim()]
    (again,) = [one for one in leases if one.turn == lease.turn]
    await scene.store.start_step(again, n, None, beginning())
    assert await scene.store.send(again, n, message(child.session)) is MessageFate.BEGUN
    assert len(await scene.turns(child.session)) == 2


# --- refusals -------------------------------------------------------------------------------


async def test_only_own_children_are_in_reach(scene: FamilyScene) -> None:
    """Not itself, not a child's child, not what another session spawned, not what nobody did."""
    other = await scene.at_work(to=route(GROUP), who=ANN_SLACK)
    stranger = await scene.born(other, 1, SESSION)
    await scene.work(stranger)
    lease = await scene.at_work(2)
    child = await scene.born(lease, 1, SESSION)
    held = await scene.work(child)
    await scene.begin_calls(held, 2)
    below = await scene.born(held, 1, SESSION)
    for session in (MAIN, GROUP, stranger.session, below.session, SessionId("child:none")):
        with pytest.raises(NotFound):
            await scene.store.send(lease, 2, message(session))
    with pytest.raises(NotFound):
        await scene.store.send(held, 2, message(MAIN))
    assert await scene.store.send(held, 2, message(below.session)) is MessageFate.JOINED


async def test_child_of_another_person_is_not_asked(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    with pytest.raises(Forbidden):
        await scene.store.send(
            lease, await step_at_work(scene, lease), message(child.session), Principal("telegram:2002")
        )
    assert await scene.store.send(lease, await step_at_work(scene, lease), message(child.session), ANN_TELEGRAM)
    assert len(await scene.turns(child.session)) == 2


async def test_only_a_started_step_sends(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    with pytest.raises(NotFound, match="started"):
        await scene.store.send(lease, 0, message(child.session))
    assert len(await scene.turns(child.session)) == 1


async def test_stopped_turn_sends_nothing(scene: FamilyScene) -> None:
    lease, child = await ended(scene)
    await scene.stop()
    assert await sent(scene, lease, child.session) is SpawnRefusal.STOPPING


async def test_child_that_is_being_stopped_is_not_asked(scene: FamilyScene) -> None:
    lease = await scene.at_work(2)
    child = await scene.born(lease, 1, SESSION)
    await scene.work(child)
    await scene.store.stop_child(MAIN, child.session, "Stopped.")
    assert await sent(scene, lease, child.session) is SpawnRefusal.ENDING


async def test_full_root_begins_no_further_task(scene: FamilyScene) -> None:
    lease = await scene.at_work(LIVE_BELOW_A_ROOT + 2)
    first = await scene.born(lease, 1, SESSION)
    await scene.end(first)
    for n in range(2, LIVE_BELOW_A_ROOT + 2):
        await scene.born(lease, n, SESSION)
    assert await sent(scene, lease, first.session) is SpawnRefusal.TOO_MANY_LIVE
    assert await scene.store.stop_child(MAIN, (await scene.store.family(MAIN))[0].session.id, "Stopped.")
    assert await sent(scene, lease, first.session) is MessageFate.BEGUN


async def test_turn_gives_so_many_tasks(scene: FamilyScene) -> None:
    """A further task counts as a new child does."""
    lease = await scene.at_work(CHILDREN_A_TURN + 1)
    child = await scene.born(lease, 1, SESSION)
    await scene.end(child)
    for n in range(2, CHILDREN_A_TURN + 1):
        assert await scene.store.send(lease, n, message(child.session)) is MessageFate.BEGUN
        await scene.came(lease, n, result("sent"))
        await scene.end_held(await scene.claim())
    refused = await scene.store.send(lease, CHILDREN_A_TURN + 1, message(child.session))
    assert refused is SpawnRefusal.TOO_MANY_IN_TURN


# --- loops ----------------------------------------------------------------------------------


async def test_two_sessions_do_not_write_for_ever(scene: FamilyScene) -> None:
    """Each end begins a turn that asks again, until the last one is refused; a person's word begins anew."""
    lease, child = await ended(scene)
    for _ in range(MAX_HOPS):
        assert await sent(scene, lease, child.session) is MessageFate.BEGUN
        await scene.came(lease, await step_at_work(scene, lease), result("sent"))
        await scene.end_held(lease)
        await scene.end_held(await scene.claim(), text="And now?")
        lease = await scene.claim()
        await scene.begin_calls(lease)
    before = await scene.rows(child.session)
    assert await sent(scene, lease, child.session) is SpawnRefusal.TOO_MANY_HOPS
    assert await sent(scene, lease, child.session, 600) is SpawnRefusal.TOO_MANY_HOPS
    assert await scene.rows(child.session) == before
    await scene.finish(lease)
    asked = await scene.at_work()
    assert await sent(scene, asked, child.session) is MessageFate.BEGUN


async def test_wait_that_expires_is_one_hop_too(scene: FamilyScene) -> None:
    """The answer that comes later began with a message to a session."""
    lease, child = await ended(scene)
    for _ in range(MAX_HOPS):
        wait = await sent(scene, lease, child.session, 10)
        assert not isinstance(wait, MessageFate | SpawnRefusal)
        assert await scene.store.park(lease)
        held = await scene.claim()
        scene.clock.advance(11)
        await scene.store.expire_waits()
        lease = await scene.claim()
        await scene.came(lease, await step_at_work(scene, lease), result("not yet"))
        await scene.end_held(lease)
        await scene.end_held(held, text="Now.")
        lease = await scene.claim()
        await scene.begin_calls(lease)
    assert await sent(scene, lease, child.session, 10) is SpawnRefusal.TOO_MANY_HOPS
