from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.app.homes import HomeKeeper
from gateway.domain.ids import NodeId, SessionId
from gateway.domain.nodes import HomeHolder, KeyMark, KeySource, NodeEntry
from gateway.domain.turns import TurnKind
from gateway.domain.waits import StartOutcome
from gateway.system.gate import Gate
from gateway.toolcalls.workspaces import ASIDE, Workspaces
from tests.contract.scene import MAIN, Scene
from tests.support.clock import FakeClock
from tests.support.fakes import FailingStore, in_background, until

HERE, BESIDE, THERE = NodeId("here#1"), NodeId("beside#1"), NodeId("there#1")
"""The first two share a place."""


class OldListStore(FailingStore):
    """A store whose list of families may be older than its rows, and which cannot move some of them."""

    listed: Sequence[SessionId] = ()
    broken: frozenset[SessionId] = frozenset()
    missed: int = 0
    """Times that a node looked for homes that are awaited."""

    async def say_awaited(self, node: NodeId) -> int:
        """Count."""
        self.missed += 1
        return await super().say_awaited(node)

    async def astray(self, node: NodeId) -> Sequence[SessionId]:
        """Return the old list, or the one of now."""
        return self.listed or await super().astray(node)

    async def places_of(self, session: SessionId) -> Sequence[HomeHolder]:
        """Read; a broken one is at its old home."""
        return await super().places_of(MAIN if session in self.broken else session)

    async def take_over(self, node: NodeId, session: SessionId) -> bool:
        """Fail, or take."""
        if session in self.broken:
            raise ValueError("damaged")
        return await super().take_over(node, session)


async def join(store: FailingStore, node: NodeId, home: Path | str = THERE) -> None:
    key = KeyMark(fingerprint="k", source=KeySource.CLUSTER)
    at = home if isinstance(home, str) else Workspaces(home).home()
    await store.join(
        NodeEntry(node=node, key=key, seat=node, home=at, away_after=timedelta(seconds=30), seen=frozenset({"here"}))
    )


@pytest.fixture
async def store(tmp_path: Path) -> OldListStore:
    """A store with a session whose home has been silent for long, and two nodes of one place that may take it."""
    clock = FakeClock()
    store = OldListStore(clock)
    scene = Scene(store, clock)
    await join(store, HERE, tmp_path)
    await join(store, BESIDE, tmp_path)
    await join(store, THERE)
    await scene.say(kind=TurnKind.COMMAND)
    [claimed] = await store.claim(THERE, home=THERE)
    await scene.plan(claimed.lease)
    assert await scene.start(claimed.lease, 1) is StartOutcome.STARTED
    for _ in range(4):
        clock.advance(10)
        await store.alive(HERE)
        await store.alive(BESIDE)
    await store.reclaim()
    return store


def keeper(store: OldListStore, folder: Path, node: NodeId = HERE, *, is_open: bool = True) -> HomeKeeper:
    spaces, gate = Workspaces(folder), Gate(is_open=is_open)
    return HomeKeeper(node=node, homes=store, leases=store, workspaces=spaces, gate=gate)


async def homes(store: OldListStore) -> list[str]:
    return [place.home for place in await store.places_of(MAIN)]


async def test_a_session_is_taken_with_an_empty_workspace(store: OldListStore, tmp_path: Path) -> None:
    """Files of the session from an earlier time are kept under another name."""
    spaces = Workspaces(tmp_path)
    (spaces.workspace(MAIN) / "old").write_text("from before")
    await keeper(store, tmp_path).look()
    assert await homes(store) == [spaces.home(), THERE]
    assert list(spaces.workspace(MAIN).iterdir()) == []
    aside = [path for path in spaces.workspace(MAIN).parent.iterdir() if ASIDE in path.name]
    assert [[entry.name for entry in path.iterdir()] for path in aside] == [["old"]]


async def test_family_is_not_taken_when_its_folder_cannot_be_set_aside(store: OldListStore, tmp_path: Path) -> None:
    (tmp_path / "workspaces").rename(tmp_path / "elsewhere")
    (tmp_path / "workspaces").write_text("in the way")
    await keeper(store, tmp_path).look()
    assert await homes(store) == [THERE]


async def test_failed_takeover_blocks_no_other(store: OldListStore, tmp_path: Path) -> None:
    bad = SessionId("chat:bad")
    store.listed, store.broken = (bad, MAIN), frozenset({bad})
    await keeper(store, tmp_path).look()
    assert len(await homes(store)) == 2


async def test_a_workspace_that_a_neighbour_took_is_left(store: OldListStore, tmp_path: Path) -> None:
    """Two nodes of one place saw the same list; the turns of the first already work in the folder."""
    store.listed = await store.astray(BESIDE)
    await keeper(store, tmp_path).look()
    file = Workspaces(tmp_path).workspace(MAIN) / "new"
    file.write_text("of a turn")
    await keeper(store, tmp_path, BESIDE).look()
    assert file.exists()


async def test_two_nodes_of_a_place_take_nothing_at_once(store: OldListStore, tmp_path: Path) -> None:
    one, other = keeper(store, tmp_path), keeper(store, tmp_path, BESIDE)
    name = f"homes/{one.workspaces.home()}"
    assert await store.hold(name, BESIDE, timedelta(seconds=9))
    await one.look()
    assert await homes(store) == [THERE]
    await other.look()
    assert len(await homes(store)) == 2
    assert await store.hold(name, HERE, timedelta(seconds=9)), "free for the next look"


async def test_a_node_that_takes_no_turns_takes_no_session(store: OldListStore, tmp_path: Path) -> None:
    one = keeper(store, tmp_path, is_open=False)
    one.every_s = 0.001

    async def taken() -> bool:
        return len(await store.places_of(MAIN)) == 2

    async with in_background(one.run()):
        await asyncio.sleep(0.05)
        assert not await taken()
        one.gate.set(True)
        await until(taken)


async def test_home_is_not_missed_after_an_outage_of_the_store(store: OldListStore, tmp_path: Path) -> None:
    """Any node misses a home, one that takes no turns as well, once its looks followed each other for a while."""
    one = keeper(store, tmp_path, is_open=False)
    one.heard_for_s, found = 0.1, list[int]()
    for every_s, pause_s in ((60.0, 0), (60.0, 0.11), (0.001, 0.11), (60.0, 0.11)):
        one.every_s = every_s
        await asyncio.sleep(pause_s)
        await one.look()
        found.append(store.missed)
    assert found == [0, 1, 1, 2]
