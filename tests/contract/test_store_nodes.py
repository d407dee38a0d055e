"""Nodes of a gateway: who may be one, who lives, who is drained, and what each holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.ids import NodeId
from gateway.domain.nodes import KeyMark, KeySource, NodeEntry, Role, differences
from gateway.errors import ConfigError, NotFound, StartError, UnseenNodes
from tests.contract.scene import NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock

STATE, CLUSTER = KeySource.STATE, KeySource.CLUSTER
KEY = KeyMark(fingerprint="k", source=CLUSTER)


def entry(node: NodeId = NODE, seat: str = "seat") -> NodeEntry:
    return NodeEntry(node=node, key=KEY, seat=f"{seat} of {node}", version="1", configuration={"owners": "a"})


# --- one key for all ------------------------------------------------------------------------------


async def _join(scene: Scene, *keys: tuple[KeySource, str], leave: bool = True) -> None:
    """Let nodes in one after the other, each after the one before has ended."""
    for n, (source, fingerprint) in enumerate(keys):
        node = NodeId(f"n{n}#1")
        await scene.store.join(NodeEntry(node=node, key=KeyMark(fingerprint=fingerprint, source=source)))
        if leave:
            await scene.store.resign(node)


@pytest.mark.parametrize(
    "keys",
    [
        ((STATE, "a"), (STATE, "a")),
        ((CLUSTER, "a"), (CLUSTER, "a")),
        ((STATE, "a"), (CLUSTER, "b"), (CLUSTER, "b")),
    ],
    ids=["its own again", "one of all", "from its own to one of all"],
)
async def test_nodes_with_one_key_join(scene: Scene, keys: tuple[tuple[KeySource, str], ...]) -> None:
    await _join(scene, *keys)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (((STATE, "a"), (STATE, "b")), r"another state folder\. .* set \[cluster\] key on every node"),
        (((CLUSTER, "a"), (STATE, "b")), r"this one has none\. Give every node the same \[cluster\] key"),
        (((CLUSTER, "a"), (CLUSTER, "b")), r"another \[cluster\] key than this one\. Give every node the same"),
        (((STATE, "a"), (CLUSTER, "b"), (STATE, "a")), r"this one has none\. Give every node"),
    ],
    ids=["two own ones", "none", "another one", "back to its own"],
)
async def test_a_node_with_another_key_is_refused(
    scene: Scene, keys: tuple[tuple[KeySource, str], ...], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        await _join(scene, *keys)


async def test_a_cluster_key_waits_until_the_node_without_one_ends(scene: Scene) -> None:
    with pytest.raises(ConfigError, match=r"without a \[cluster\] key works on this store\. Stop that node"):
        await _join(scene, (STATE, "a"), (CLUSTER, "b"), leave=False)


async def test_a_node_without_a_mark_joins_any_store(scene: Scene) -> None:
    """No other node can open its store."""
    await _join(scene, (STATE, "a"))
    await scene.store.join(NodeEntry(node=OTHER_NODE, key=None))


# --- one name for each ----------------------------------------------------------------------------


async def test_a_second_node_of_a_name_waits_for_the_first_ones_end(scene: Scene, clock: FakeClock) -> None:
    await scene.store.join(entry())
    clock.advance(20)
    await scene.store.alive(NODE)
    clock.advance(29)
    second = entry(NodeId("here#2"))
    with pytest.raises(StartError, match=r"A node called here works on this store already.*--node NAME"):
        await scene.store.join(second)
    clock.advance(2)
    assert (await scene.store.join(second)).node == "here#2"
    assert await scene.store.alive(NODE) is None, "the first one must join again, and is refused"
    with pytest.raises(StartError):
        await scene.store.join(entry())


async def test_the_next_life_in_a_seat_takes_the_place_at_once(scene: Scene) -> None:
    first, second = entry(), replace(entry(), node=NodeId("here#2"))
    await scene.store.join(first)
    assert (await scene.store.join(second)).node == "here#2"
    await scene.store.resign(NODE)
    assert [line.node for line in await scene.store.nodes()] == ["here#2"], "the earlier life takes nobody off the list"


async def test_a_node_with_the_store_to_itself_needs_no_seat(scene: Scene) -> None:
    """The store's own lock says that no other one lives."""
    for n in (1, 2):
        await scene.store.join(NodeEntry(node=NodeId(f"here#{n}"), key=None, seat=str(n)))


# --- one disk for each place ----------------------------------------------------------------------


async def test_a_home_is_shared_with_nodes_seen_there(scene: Scene, clock: FakeClock) -> None:
    """A copied state folder has the id of the first one's place, but not its files."""
    await scene.store.join(replace(entry(), home="place"))
    there = replace(entry(OTHER_NODE), home="place")
    with pytest.raises(UnseenNodes, match=r"the mark of here, but lie on another disk\. Remove workspaces/\.home"):
        await scene.store.join(there)
    assert [line.name for line in await scene.store.nodes()] == ["here"]
    await scene.store.join(replace(there, home="", asks="same?"))
    assert {line.name: line.asks for line in await scene.store.nodes()} == {"here": "", "there": "same?"}
    await scene.store.join(replace(there, seen=frozenset({"here"})))
    assert [line.asks for line in await scene.store.nodes()] == ["", ""]
    await scene.store.resign(OTHER_NODE)
    clock.advance(31)
    await scene.store.join(there)


async def test_a_disk_of_all_nodes_is_one(scene: Scene) -> None:
    """A node that did not mount it has an empty folder in its place. One with its own disk is another matter."""
    await scene.store.join(replace(entry(), home="disk", shares=True))
    with pytest.raises(StartError, match=r"is another one here than on here\. Mount the same disk on every node"):
        await scene.store.join(replace(entry(OTHER_NODE), home="not mounted", shares=True))
    await scene.store.join(replace(entry(OTHER_NODE), home="its own"))


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_the_list_says_who_lives_and_what_each_holds(scene: Scene, clock: FakeClock) -> None:
    await scene.store.join(entry())
    clock.advance(5)
    await scene.store.join(replace(entry(OTHER_NODE), roles=frozenset({Role.WORKER}), version="2"))
    lease = await scene.running()
    clock.advance(27)
    here, there = await scene.store.nodes()
    assert (here.name, here.lives, here.drained, here.turns) == ("here", False, False, (lease.turn,))
    assert (there.name, there.lives, there.roles, there.version) == ("there", True, {Role.WORKER}, "2")
    assert there.since == there.alive_at == clock.now() - timedelta(seconds=27)
    await scene.store.resign(NODE)
    assert [line.name for line in await scene.store.nodes()] == ["there"]
    clock.advance(86_401)
    assert await scene.store.nodes() == []


async def test_a_difference_of_settings_is_said_of_living_nodes(scene: Scene, clock: FakeClock) -> None:
    await scene.store.join(replace(entry(), configuration={"owners": "a", "tools": "b"}))
    await scene.store.join(replace(entry(OTHER_NODE), configuration={"owners": "a", "tools": "c", "hooks": "d"}))
    here, there = lines = await scene.store.nodes()
    assert differences(here, lines) == ["there is configured otherwise: hooks, tools."]
    assert differences(there, [here]) == ["here is configured otherwise: hooks, tools."]
    assert differences(here, [replace(there, lives=False)]) == []


# --- draining -------------------------------------------------------------------------------------


async def test_a_drained_node_stays_so_over_restarts_until_it_resumes(scene: Scene) -> None:
    await scene.store.join(entry())
    assert await scene.store.drain("he", drained=True) == "here"
    line = await scene.store.alive(NODE)
    assert line is not None
    assert line.drained
    await scene.store.resign(NODE)
    assert (await scene.store.join(entry())).drained
    await scene.store.drain("here", drained=False)
    assert [one.drained for one in await scene.store.nodes()] == [False]


async def test_a_drained_node_that_is_gone_may_work_when_it_comes_back(scene: Scene) -> None:
    await scene.store.join(entry())
    await scene.store.drain("here", drained=True)
    await scene.store.resign(NODE)
    assert await scene.store.nodes() == []
    assert await scene.store.drain("here", drained=False) == "here"
    assert not (await scene.store.join(entry())).drained
    await scene.store.resign(NODE)
    with pytest.raises(NotFound, match="There is no node 'here'"):
        await scene.store.drain("here", drained=True)


@pytest.mark.parametrize("named", ["nobody", "", "node-"])
async def test_a_node_to_drain_is_named_exactly(scene: Scene, named: str) -> None:
    for name in ("node-1", "node-2"):
        await scene.store.join(entry(NodeId(f"{name}#1")))
    with pytest.raises(NotFound, match="Name one of them: node-1, node-2"):
        await scene.store.drain(named, drained=True)
