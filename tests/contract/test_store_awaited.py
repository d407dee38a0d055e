"""Homes that are awaited: who waits for the files of a session is told so in its chat, once."""

from __future__ import annotations

import pytest

from gateway.domain.ids import NodeId, SessionId
from gateway.domain.messages import Conversation
from gateway.domain.slots import SlotKind
from gateway.domain.turns import TurnKind
from gateway.domain.waits import StartOutcome
from gateway.ports import Store
from gateway.store.kernel.home_notices import Away, files_awaited
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, NODE, OTHER_NODE
from tests.contract.test_store_homes import AWAY_S, GROUP, HERE, both, claim, join, parked_at_home, pass_time
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, OTHER_CHAT, route


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


async def waits(scene: FamilyScene, how: str) -> None:
    """Let a turn wait at home, approved, and its node take no work any more."""
    await both(scene)
    asked = await parked_at_home(scene)
    if how == "replaced":  # before, its name is not given to another one
        await pass_time(scene, 40, OTHER_NODE)
    await scene.press(asked.wait)
    if how == "drained":
        await scene.store.drain("here", drained=True)
    elif how == "ended":
        await scene.store.resign(NODE)
    elif how == "replaced":
        await join(scene, NodeId("here#2"), home="place-new")


async def said(scene: FamilyScene, session: SessionId = MAIN) -> list[tuple[Conversation, str]]:
    """Return what was said in chats."""
    return [(slot.conversation, slot.text) for slot in await scene.slots(session, kind=SlotKind.REPLY)]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("how", "within_s", "why"),
    [
        ("silent", AWAY_S // 2, Away.SILENT),
        ("drained", 5, Away.LEFT),
        ("ended", 5, Away.LEFT),
        ("replaced", 5, Away.REPLACED),
    ],
)
async def test_chat_waiting_for_files_is_notified_once(scene: FamilyScene, how: str, within_s: int, why: Away) -> None:
    """In the chat that waits, and in another one of the family; by any node, and not at once."""
    await waits(scene, how)
    await pass_time(scene, within_s, OTHER_NODE, step_s=5)
    assert await scene.store.say_awaited(OTHER_NODE) == 0
    await pass_time(scene, 5, OTHER_NODE, step_s=5)
    assert await scene.store.say_awaited(OTHER_NODE) == 1
    await scene.say("and this", kind=TurnKind.COMMAND)
    await scene.say("and that", kind=TurnKind.COMMAND, where=OTHER_CHAT)
    await pass_time(scene, 10, OTHER_NODE, step_s=5)
    assert await scene.store.say_awaited(OTHER_NODE) == 1
    assert await scene.store.say_awaited(OTHER_NODE) == 0
    text = files_awaited(why, "here", for_owners=True)
    assert sorted(await said(scene), key=str) == sorted([(CHAT, text), (OTHER_CHAT, text)], key=str)


@pytest.mark.parametrize("how", ["lives", "works", "neighbour", "parked", "own"])
async def test_chat_not_waiting_for_files_gets_no_notice(scene: FamilyScene, how: str) -> None:
    """The home lives; it ends what it has begun; another node is there; nothing is to do; the node is the home."""
    await both(scene)
    asked, third = await parked_at_home(scene), NodeId("third#1")
    if how != "parked":
        await scene.press(asked.wait)
    if how == "works":
        await scene.say("beside", kind=TurnKind.COMMAND)
        assert len(await claim(scene, limit=1)) == 1
        await scene.store.drain("here", drained=True)
    if how == "neighbour":
        await join(scene, third, home=HERE, seen="here")
    others = {"lives": [NODE], "works": [NODE], "neighbour": [third]}.get(how, [])
    for _ in range(2 if how == "works" else 8):
        await pass_time(scene, 5, OTHER_NODE, *others, step_s=5)
    assert await scene.store.say_awaited(NODE if how == "own" else OTHER_NODE) == 0
    assert await said(scene) == []


async def test_a_group_does_not_read_the_name_of_the_node(scene: FamilyScene) -> None:
    await both(scene)
    await scene.say(kind=TurnKind.COMMAND, to=route(GROUP), where=OTHER_CHAT)
    (lease,) = await claim(scene)
    await scene.plan(lease)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    await pass_time(scene, AWAY_S, OTHER_NODE)  # its lease ends
    await pass_time(scene, 10, OTHER_NODE)
    assert await scene.store.say_awaited(OTHER_NODE) == 1
    assert await said(scene, GROUP) == [(OTHER_CHAT, files_awaited(Away.SILENT, "", for_owners=False))]


async def test_a_long_wait_for_a_home_has_a_notice_as_soon(scene: FamilyScene) -> None:
    """A home that is awaited for hours has a notice as soon: a live node gives a sign of life every ten seconds."""
    for node in (NODE, OTHER_NODE):
        await join(scene, node, away_s=7200)
    asked = await parked_at_home(scene)
    await scene.press(asked.wait)
    await pass_time(scene, 30, OTHER_NODE)
    assert await scene.store.say_awaited(OTHER_NODE) == 0
    await pass_time(scene, 10, OTHER_NODE)
    assert await scene.store.say_awaited(OTHER_NODE) == 1
