"""Homes: the files of a family of sessions are at one place, and whoever has that place runs its turns.

Two nodes, each with a place of its own. The one that leaves the first file is the home.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.ids import SYSTEM_HOME, NodeId, SessionId
from gateway.domain.messages import CONTEXT_KEPT
from gateway.domain.nodes import LEFT_TIMES, KeyMark, KeySource, NodeEntry, Role
from gateway.domain.slots import SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitKind, WaitState
from gateway.errors import FilesElsewhere
from gateway.ports import Store
from gateway.store.kernel.home_notices import Away, files_away
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    CHAT,
    OTHER_CHAT,
    answer,
    attachment,
    fetched,
    file_slot,
    new_wait,
    result,
    route,
    seconds,
)

HERE, THERE = "place-here", "place-there"
HOMES = {NODE: HERE, OTHER_NODE: THERE}
GROUP = SessionId("chat:g")
AWAY_S = 60
TOLD = (
    "The node `here` does not answer, and the files of this session are there. "
    "Work goes on with an empty folder on the node `there`. The files do not come back by themselves."
)
TOLD_IN_A_GROUP = (
    "The files of this conversation are on another machine that does not answer now. "
    "Work goes on with an empty folder. The files do not come back by themselves."
)
"""Without the node's name, which may hold a path: others read it."""


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


async def claim(scene: Scene, node: NodeId = NODE, limit: int = 5) -> list[Lease]:
    """Claim turns as a node with its own place."""
    return [one.lease for one in await scene.store.claim(node, limit, home=HOMES[node])]


async def planned(scene: Scene, node: NodeId = NODE, *, kind: TurnKind = TurnKind.MODEL) -> Lease:
    """Return the turn of a new message with a call planned, held by this node."""
    await scene.say(kind=kind)
    (lease,) = await claim(scene, node)
    await scene.plan(lease)
    return lease


async def at_home(scene: Scene) -> Lease:
    """Return a turn whose call was started here, which makes this the home of its session."""
    lease = await planned(scene)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    return lease


# --- whose turn it is -----------------------------------------------------------------------------


@pytest.mark.conformance
async def test_a_session_with_a_home_is_claimed_there_alone(scene: FamilyScene) -> None:
    """Its turns of now and those to come, of either kind; a session without a home goes to anybody."""
    before = await scene.say("said before", kind=TurnKind.COMMAND)
    lease = await at_home_beside(scene)
    after = await scene.say("said after", kind=TurnKind.COMMAND)
    await scene.say("in a group", to=route(GROUP), where=OTHER_CHAT)
    assert [one.session for one in await claim(scene, OTHER_NODE)] == [GROUP]
    await scene.came(lease, 1, result())
    assert await scene.finish(lease)
    later = await scene.say("later")
    assert await claim(scene, OTHER_NODE) == []
    assert [one.turn for one in await claim(scene)] == [before.turn, after.turn, later.turn]


async def at_home_beside(scene: FamilyScene) -> Lease:
    """Return a started turn, claimed while an older command waits."""
    accepted = await scene.say()
    command, lease = await claim(scene)
    await scene.store.release(command)
    assert lease.turn == accepted.turn
    await scene.plan(lease)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    return lease


@pytest.mark.conformance
async def test_sole_node_of_a_store_takes_every_turn(scene: FamilyScene) -> None:
    """It names no home: it gives none, and takes the turns of every one, oldest first."""
    started = await scene.started()
    await scene.came(started, 1, result())
    assert await scene.finish(started)
    assert await scene.store.places_of(MAIN) == []
    lease = await at_home(scene)
    await scene.say("in a group", to=route(GROUP), where=OTHER_CHAT)
    await scene.lapse()
    assert [one.lease.session for one in await scene.store.claim(NODE, 1)] == [GROUP]
    assert [one.lease.turn for one in await scene.store.claim(NODE, 5)] == [lease.turn]


@pytest.mark.conformance
async def test_children_share_the_home_of_their_root(scene: FamilyScene) -> None:
    """Those that were there before it, and those that are born later."""
    parent = await scene.at_work(2)  # claimed by a node without a place
    await scene.born(parent, 1)
    await scene.store.release(parent)
    (early, parent) = await claim(scene)
    await scene.store.release(early)
    assert await scene.start(parent, 2) is StartOutcome.STARTED
    await scene.born(parent, 2)
    assert await claim(scene, OTHER_NODE) == []
    assert len(await claim(scene)) == 2


async def _starts(scene: FamilyScene, lease: Lease) -> None:
    await scene.plan(lease)
    await scene.start(lease, 1)


async def _asks(scene: FamilyScene, lease: Lease) -> None:
    await scene.plan(lease)
    await scene.ask(lease, [new_wait(1, expires_in=seconds(60))])


async def _fetches(scene: FamilyScene, lease: Lease) -> None:
    (message,) = (await scene.view(lease.turn)).inputs
    await scene.store.record_fetched(lease, message.id, [fetched("inbox/photo.png")])


async def _speaks(scene: FamilyScene, lease: Lease) -> None:
    (message,) = (await scene.view(lease.turn)).inputs
    await scene.store.finish_turn(
        lease, TurnState.DONE, answer=answer(), given=[message], slots=[file_slot("a.ogg", n=0)], timers=[]
    )


ACTS: dict[str, Callable[[FamilyScene, Lease], Awaitable[None]]] = {
    "a call starts": _starts,
    "a call is asked about": _asks,
    "a file is fetched": _fetches,
    "an answer is spoken": _speaks,
}


@pytest.mark.parametrize("name", ACTS)
async def test_the_first_act_that_leaves_a_file_makes_the_home(scene: FamilyScene, name: str) -> None:
    """And at a node with another place the same act is refused, with nothing stored."""
    await scene.say("beside", kind=TurnKind.COMMAND)
    accepted = await scene.say(attachments=(attachment(),))
    command, lease = await claim(scene)
    assert lease.turn == accepted.turn
    await scene.store.release(command)
    (other,) = await claim(scene, OTHER_NODE)
    await ACTS[name](scene, lease)
    assert [place.home for place in await scene.store.places_of(MAIN)] == [HERE]
    with pytest.raises(FilesElsewhere):
        await _starts(scene, other)
    await scene.store.release(other)
    assert await claim(scene, OTHER_NODE) == []
    assert [one.turn for one in await claim(scene)] == [command.turn]


async def test_turn_without_files_gives_no_home(scene: FamilyScene) -> None:
    """A file that could not be fetched, and a plain answer."""
    await scene.say(attachments=(attachment(),))
    (lease,) = await claim(scene)
    (message,) = (await scene.view(lease.turn)).inputs
    await scene.store.record_fetched(lease, message.id, [fetched("", trouble="Too large.")])
    assert await scene.finish(lease)
    assert await scene.store.places_of(MAIN) == []


# --- a home that is away --------------------------------------------------------------------------


async def join(
    scene: Scene,
    node: NodeId,
    *,
    roles: frozenset[Role] = frozenset(Role),
    home: str = "",
    away_s: int = AWAY_S,
    seen: str = "",
) -> None:
    """Let a node with its own place in."""
    key = KeyMark(fingerprint="k", source=KeySource.CLUSTER)
    away = timedelta(seconds=away_s)
    entry = NodeEntry(node=node, key=key, seat=node, roles=roles, away_after=away, address=f"http://{node}")
    await scene.store.join(replace(entry, home=home or HOMES[node], seen=frozenset({seen})))


async def pass_time(scene: Scene, seconds_: int, *alive: NodeId, step_s: int = 10) -> None:
    """Let time pass. Only these nodes give signs of life, and sweep."""
    for _ in range(seconds_ // step_s):
        scene.clock.advance(step_s)
        for node in alive:
            await scene.store.alive(node)
    await scene.sweep(scene.store.reclaim)


async def both(scene: Scene) -> None:
    """Let both in, and wait until each may take what the other leaves."""
    for node in HOMES:
        await join(scene, node)
    await pass_time(scene, AWAY_S + 10, *HOMES)


@pytest.mark.conformance
async def test_a_home_that_is_silent_for_long_is_replaced(scene: FamilyScene) -> None:
    """Not before; once; by a node that says so to people and models. The old one does not get the session back."""
    await both(scene)
    asked = await parked_at_home(scene)
    await pass_time(scene, AWAY_S, OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == []
    await pass_time(scene, 10, OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == [MAIN]
    assert await claim(scene, OTHER_NODE) == [], "nobody took it yet"
    assert await scene.store.take_over(OTHER_NODE, MAIN)
    assert not await scene.store.take_over(OTHER_NODE, MAIN)
    assert await scene.store.astray(OTHER_NODE) == []
    await join(scene, NODE)
    assert await claim(scene) == []
    (lease,) = await claim(scene, OTHER_NODE)
    assert lease.turn == asked.turn
    assert [place.home for place in await scene.store.places_of(MAIN)] == [THERE, HERE]
    assert [(slot.conversation, slot.text) for slot in await scene.slots(kind=SlotKind.REPLY)] == [(CHAT, TOLD)]
    notice = (await scene.view(lease.turn)).inputs[-1]
    assert (notice.message.principal, notice.message.text, notice.given) == (SYSTEM_HOME, TOLD, None)


async def parked_at_home(scene: FamilyScene, calls: int = 1) -> Asked:
    """Return a turn that waits here for approvals."""
    lease = await planned(scene) if calls == 1 else await _planned(scene, calls)
    asked = await scene.ask(lease, [new_wait(n, expires_in=seconds(3600)) for n in range(1, calls + 1)])
    assert await scene.store.park(lease)
    return asked


async def _planned(scene: FamilyScene, calls: int) -> Lease:
    await scene.say()
    (lease,) = await claim(scene)
    await scene.plan(lease, calls)
    return lease


async def taken_over(scene: FamilyScene) -> None:
    """Let the node here go silent, and the other one take its session."""
    await pass_time(scene, AWAY_S + 20, OTHER_NODE)
    assert await scene.store.take_over(OTHER_NODE, MAIN)


async def test_approvals_for_the_old_home_are_asked_again(scene: FamilyScene) -> None:
    """Open ones, and those that were given and not used; a press on the old card decides nothing."""
    await both(scene)
    asked = await parked_at_home(scene, 2)
    await scene.press(asked.waits[0])
    await taken_over(scene)
    assert [await scene.wait_state(wait) for wait in asked.waits] == [WaitState.SUPERSEDED] * 2
    (lease,) = await claim(scene, OTHER_NODE)
    view = await scene.view(lease.turn)
    assert [(step.state, step.asked_anew) for step in view.steps[1:]] == [(StepState.PLANNED, True)] * 2
    await scene.press(asked.waits[1])
    assert await scene.start(lease, 2, asked.waits[1]) is StartOutcome.NOT_APPROVED
    again = await scene.ask(lease, [new_wait(1, expires_in=seconds(60)), new_wait(2, expires_in=seconds(60))])
    await scene.press(again.waits[1])
    assert await scene.start(lease, 2, again.waits[1]) is StartOutcome.STARTED


async def test_a_call_under_way_there_has_an_unknown_outcome(scene: FamilyScene) -> None:
    await both(scene)
    lease = await at_home(scene)
    await taken_over(scene)
    step = await scene.step(lease.turn, 1)
    assert step.result is not None
    assert (step.state, step.result.status) == (StepState.FINISHED, ResultStatus.UNKNOWN)
    (again,) = await claim(scene, OTHER_NODE)
    assert again.turn == lease.turn


async def test_takeover_keeps_questions_and_children(scene: FamilyScene) -> None:
    """A question stays open, and a child works at the new home; the family is told in each of its sessions."""
    await both(scene)
    lease = await _planned(scene, 2)
    await scene.ask(lease, [new_wait(1, expires_in=seconds(3600), kind=WaitKind.QUESTION)])
    assert await scene.start(lease, 2) is StartOutcome.STARTED
    child = await scene.born(lease, 2)
    assert await scene.store.park(lease)
    await taken_over(scene)
    assert await scene.state(lease.turn) is TurnState.PARKED
    (work,) = await claim(scene, OTHER_NODE)
    assert work.turn == child.turn
    assert [one.message.text for one in (await scene.view(child.turn)).inputs][1:] == [TOLD]
    assert [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)] == [TOLD]


async def test_notice_of_a_takeover_goes_to_the_next_model_turn(scene: FamilyScene) -> None:
    await both(scene)
    lease = await planned(scene, kind=TurnKind.COMMAND)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    await taken_over(scene)
    assert len((await scene.view(lease.turn)).inputs) == 1
    later = await scene.say("later")
    assert [one.message.text for one in (await scene.view(later.turn)).inputs] == [TOLD, "later"]


async def test_a_notice_outlives_what_is_overheard_later(scene: FamilyScene) -> None:
    """With no model turn to tell, it waits beside what others say, which is trimmed."""
    await both(scene)
    group = route(GROUP)
    await scene.say(kind=TurnKind.COMMAND, to=group, where=OTHER_CHAT)
    (lease,) = await claim(scene)
    await scene.plan(lease)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    await pass_time(scene, AWAY_S + 20, OTHER_NODE)
    assert await scene.store.take_over(OTHER_NODE, GROUP)
    for n in range(CONTEXT_KEPT + 2):
        await scene.overhear(f"chatter {n}", to=group)
    later = await scene.say("later", to=group, where=OTHER_CHAT)
    told, first, *_ = [one.message.text for one in (await scene.view(later.turn)).inputs]
    assert (told, first) == (TOLD_IN_A_GROUP, "chatter 2")


@pytest.mark.parametrize("how", ["drained", "ended", "no worker"])
async def test_a_node_that_takes_no_work_is_away_after_a_while(scene: FamilyScene, how: str) -> None:
    await both(scene)
    await parked_at_home(scene)
    if how == "drained":
        await scene.store.drain("here", drained=True)
    elif how == "ended":
        await scene.store.resign(NODE)
    else:
        await join(scene, NODE, roles=frozenset({Role.INGRESS}))
    alive = HOMES if how != "ended" else [OTHER_NODE]
    await pass_time(scene, AWAY_S * LEFT_TIMES, *alive, step_s=20)
    assert not await scene.store.take_over(OTHER_NODE, MAIN), "an upgrade keeps the files"
    await pass_time(scene, 10, *alive)
    assert await scene.store.take_over(OTHER_NODE, MAIN)
    told = files_away(Away.LEFT, "here", "there", for_owners=True)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)] == [told]


@pytest.mark.parametrize("how", ["held", "shared", "alive", "taker drained", "taker ends", "no home"])
async def test_a_home_is_kept(scene: FamilyScene, how: str) -> None:
    """While a turn is held, while another node is at the same place, and by whoever may take nothing."""
    await both(scene)
    third, leases = NodeId("third#1"), list[Lease]()
    if how != "no home":
        asked = await parked_at_home(scene)
        await scene.press(asked.wait)
    if how == "held":
        leases += await claim(scene)
    if how == "shared":
        await join(scene, third, home=HERE, seen="here")
    if how == "taker drained":
        await scene.store.drain("there", drained=True)
    if how == "taker ends":
        await scene.store.resign(OTHER_NODE)
    for _ in range(8):
        await pass_time(scene, 10, *{"shared": [OTHER_NODE, third], "alive": list(HOMES)}.get(how, [OTHER_NODE]))
        for lease in leases:
            await scene.store.renew(lease)
    assert not await scene.store.take_over(OTHER_NODE, MAIN)


async def test_a_home_is_away_by_its_own_time_too(scene: FamilyScene) -> None:
    """Nodes may differ while a setting is rolled out: the home tells that it lives by its own."""
    await join(scene, NODE)
    await join(scene, OTHER_NODE, away_s=5)
    await parked_at_home(scene)
    taken = list[bool]()
    for second in range(2, 134, 2):
        scene.clock.advance(2)
        await scene.store.alive(OTHER_NODE)
        if second in {10, 20, 30, 40, 50, 60, 70}:
            await scene.store.alive(NODE)
        taken.append(await scene.store.take_over(OTHER_NODE, MAIN))
    assert taken.index(True) * 2 + 2 == 70 + AWAY_S + 2


@pytest.mark.parametrize("how", ["killed", "ended"])
async def test_a_node_that_lost_its_state_folder_is_said_to(scene: FamilyScene, how: str) -> None:
    """Its name is back with another place. What the earlier one had is away as long after its last sign of life."""
    await both(scene)
    await parked_at_home(scene)
    await pass_time(scene, 40, OTHER_NODE)
    if how == "ended":
        await scene.store.resign(NODE)
    again = NodeId("here#2")
    await join(scene, again, home="place-new")
    assert await scene.store.astray(OTHER_NODE) == []
    await pass_time(scene, 20 if how == "killed" else AWAY_S, again, OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == []
    await pass_time(scene, 10, again, OTHER_NODE)
    if how == "killed":
        assert await scene.store.astray(OTHER_NODE) == [MAIN]
        await pass_time(scene, AWAY_S, again, OTHER_NODE)
    assert await scene.store.take_over(again if how == "killed" else OTHER_NODE, MAIN)
    told = files_away(Away.REPLACED, "here", "here" if how == "killed" else "there", for_owners=True)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)] == [told]


async def test_a_place_is_forgotten_a_month_after_its_end(scene: FamilyScene) -> None:
    """Not while its node lives. Its sessions are taken then as well."""
    await both(scene)
    await parked_at_home(scene)
    await pass_time(scene, 32 * 86_400, *HOMES, step_s=43_200)
    assert [place.name for place in await scene.store.places_of(MAIN)] == ["here"]
    await pass_time(scene, 32 * 86_400, OTHER_NODE, step_s=43_200)
    assert [place.name for place in await scene.store.places_of(MAIN)] == [HERE]
    await pass_time(scene, AWAY_S + 10, OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == [MAIN]
    assert await scene.store.take_over(OTHER_NODE, MAIN)
    told = files_away(Away.GONE, "", "there", for_owners=True)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.REPLY)] == [told]


async def test_takeover_waits_after_an_outage_of_the_store(scene: FamilyScene) -> None:
    """No node could say that it lives: the first one that can is not the only one that does."""
    await both(scene)
    await parked_at_home(scene)
    scene.clock.advance(600)
    await scene.store.alive(OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == []
    await pass_time(scene, AWAY_S, *HOMES)
    assert await scene.store.astray(OTHER_NODE) == []
    await pass_time(scene, AWAY_S + 10, OTHER_NODE)
    assert await scene.store.astray(OTHER_NODE) == [MAIN]


async def test_a_place_is_named_with_its_nodes_address(scene: FamilyScene) -> None:
    await both(scene)
    await parked_at_home(scene)
    (place,) = await scene.store.places_of(MAIN)
    assert (place.name, place.address, place.alive_at) == ("here", "http://here#1", scene.clock.now())
    assert await scene.store.node_named("here") == place
    await scene.store.resign(NODE)
    assert await scene.store.node_named("here") is None
    (place,) = await scene.store.places_of(MAIN)
    assert (place.name, place.address, place.alive_at) == ("here", "", None)
    assert await scene.store.places_of(GROUP) == []
