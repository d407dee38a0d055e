from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.app.homes import HomeKeeper
from gateway.domain.ids import NodeId
from gateway.domain.nodes import KeyMark, KeySource, NodeEntry
from gateway.domain.turns import TurnKind
from gateway.domain.waits import StartOutcome
from gateway.system.gate import Gate
from gateway.toolcalls.workspaces import ASIDE, Workspaces
from tests.contract.scene import MAIN, Scene
from tests.support.clock import FakeClock
from tests.support.fakes import FailingStore, in_background, until

HERE, THERE = NodeId("here#1"), NodeId("there#1")


async def join(store: FailingStore, node: NodeId) -> None:
    key = KeyMark(fingerprint="k", source=KeySource.CLUSTER)
    await store.join(NodeEntry(node=node, key=key, seat=node, home=str(node), away_after=timedelta(seconds=30)))


@pytest.fixture
async def store() -> FailingStore:
    """A store with a session whose home has been silent for long, and a node that may take it."""
    clock = FakeClock()
    store = FailingStore(clock)
    scene = Scene(store, clock)
    await join(store, HERE)
    await join(store, THERE)
    await scene.say(kind=TurnKind.COMMAND)
    [claimed] = await store.claim(THERE, home=THERE)
    await scene.plan(claimed.lease)
    assert await scene.start(claimed.lease, 1) is StartOutcome.STARTED
    for _ in range(4):
        clock.advance(10)
        await store.alive(HERE)
    await store.reclaim()
    return store


def keeper(store: FailingStore, folder: Path, *, is_open: bool = True) -> HomeKeeper:
    return HomeKeeper(node=HERE, homes=store, workspaces=Workspaces(folder), gate=Gate(is_open=is_open))


async def test_a_session_is_taken_with_an_empty_workspace(store: FailingStore, tmp_path: Path) -> None:
    """What this node has of it from an earlier time is kept under another name."""
    spaces = Workspaces(tmp_path)
    (spaces.workspace(MAIN) / "old").write_text("from before")
    await keeper(store, tmp_path).look()
    assert [place.home for place in await store.places_of(MAIN)] == [HERE, THERE]
    assert list(spaces.workspace(MAIN).iterdir()) == []
    aside = [path for path in spaces.workspace(MAIN).parent.iterdir() if ASIDE in path.name]
    assert [[entry.name for entry in path.iterdir()] for path in aside] == [["old"]]


async def test_what_cannot_be_set_aside_is_not_taken(store: FailingStore, tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("in the way")
    await keeper(store, tmp_path).look()
    assert [place.home for place in await store.places_of(MAIN)] == [THERE]


async def test_a_node_that_takes_no_turns_takes_no_session(store: FailingStore, tmp_path: Path) -> None:
    one = keeper(store, tmp_path, is_open=False)
    one.every_s = 0.001

    async def taken() -> bool:
        return len(await store.places_of(MAIN)) == 2

    async with in_background(one.run()):
        await asyncio.sleep(0.05)
        assert not await taken()
        one.gate.set(True)
        await until(taken)
