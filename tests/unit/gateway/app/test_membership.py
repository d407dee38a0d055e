from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.membership import Membership, gates_of
from gateway.app.node_entry import fingerprints, seat_of
from gateway.app.shared_disk import SharedDisk
from gateway.domain.events import NODES, NodesChanged
from gateway.domain.ids import NodeId
from gateway.domain.nodes import KeyMark, KeySource, NodeEntry, Role
from gateway.errors import UnseenNodes
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.fakes import in_background, until
from tests.unit.gateway.app.test_build import loaded

KEY = KeyMark(fingerprint="k", source=KeySource.CLUSTER)


def member(store: MemoryStore, name: str = "here", *roles: Role, owners: str = "a") -> Membership:
    mine = frozenset(roles or Role)
    entry = NodeEntry(
        node=NodeId(f"{name}#1"), key=KEY, seat=f"seat of {name}", roles=mine, configuration={"owners": owners}
    )
    return Membership(entry=entry, node=store, events=store.event_bus, gates=gates_of(mine))


@asynccontextmanager
async def running(one: Membership) -> AsyncGenerator[None]:
    task = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def comes(wanted: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return wanted()

    await until(holds)


def opened(one: Membership) -> set[Role]:
    return {role for role, gate in one.gates.items() if gate.is_open}


async def test_a_drained_node_closes_its_gates_at_once() -> None:
    store = MemoryStore(FakeClock())
    here = member(store, "here", Role.WORKER, Role.DELIVERY)
    await here.join()
    assert opened(here) == {Role.WORKER, Role.DELIVERY}
    async with running(here):
        for drained, left in ((True, set[Role]()), (False, {Role.WORKER, Role.DELIVERY})):
            await store.drain("here", drained=drained)
            store.event_bus.publish(NODES, NodesChanged())
            await comes(lambda drained=drained: here.drained is drained)
            assert opened(here) == left


async def test_another_configuration_is_reported_while_it_differs() -> None:
    store = MemoryStore(FakeClock())
    here, there = member(store), member(store, "there", owners="b")
    await there.join()
    await here.join()
    assert here.standing().differs == ["there is configured otherwise: owners."]
    await there.resign()
    async with running(here):
        store.event_bus.publish(NODES, NodesChanged())
        await comes(lambda: not here.standing().differs)


async def test_a_node_whose_name_another_took_says_so() -> None:
    store = MemoryStore(clock := FakeClock())
    here = member(store)
    await here.join()
    clock.advance(31)
    await store.join(replace(here.entry, node=NodeId("here#2"), seat="elsewhere"))
    async with running(here):
        store.event_bus.publish(NODES, NodesChanged())
        await comes(lambda: bool(here.trouble))
    assert "A node called here works on this store already" in here.standing().trouble


def test_a_seat_is_the_folder_and_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = seat_of(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert seat_of(tmp_path / "b") == before != seat_of(tmp_path)


OWNERS = '[owners]\nann = ["telegram:1"]\n'
RULE = '[[rules]]\ntool = "shell"\npattern = "git *"\ndecision = "allow"\n'


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (OWNERS, OWNERS, set[str]()),
        (OWNERS, "", {"owners"}),
        (OWNERS + RULE, RULE + OWNERS, set[str]()),
        (RULE, RULE.replace("git", "ls"), {"tools"}),
        ("", '[people]\nallow = ["telegram:2"]\n', {"people"}),
        ("", '[chats]\nallow = ["telegram:-2"]\n', {"chats"}),
        ("", '[tools.shell]\napproval = "deny"\n', {"tools"}),
        ("", '[sessions]\npreset = { dm = "explore" }\n', {"sessions", "presets"}),
        ("", "[limits]\ncalls_per_turn = 3\n", {"limits"}),
        ("", '[cluster]\nhome_away_after = "90s"\n', {"home_away_after"}),
        ("", "[http]\nport = 1\n[log]\nlevel = \"debug\"\n", set[str]()),
    ],
)  # fmt: skip
def test_only_settings_that_decide_are_fingerprinted(tmp_path: Path, one: str, other: str, differ: set[str]) -> None:
    """Wherever it is written."""
    found = [fingerprints(loaded(tmp_path, text)) for text in (one, other)]
    assert {name for name in found[0] if found[0][name] != found[1][name]} == differ


async def test_a_node_is_named_on_cards_while_there_are_others() -> None:
    store = MemoryStore(FakeClock())
    here = member(store)
    await here.join()
    assert here.shown_name() == ""
    await member(store, "there").join()
    async with running(here):
        store.event_bus.publish(NODES, NodesChanged())
        await comes(lambda: here.shown_name() == "here")


def placed(store: MemoryStore, name: str, folder: Path) -> Membership:
    """Return a node whose place has the id that all have here, in this folder."""
    one = member(store, name)
    one.entry, one.place = replace(one.entry, home="copied"), SharedDisk(workspaces=folder)
    return one


async def test_nodes_with_the_same_files_share_a_place(tmp_path: Path) -> None:
    """Three of them. Nothing is left of the questions."""
    store = MemoryStore(FakeClock())
    here, there, third = (placed(store, name, tmp_path / "one") for name in ("here", "there", "third"))
    await here.join()
    assert not (tmp_path / "one").exists(), "a lone node asks nobody"
    async with running(here):
        await there.join()
        async with running(there):
            await third.join()
    assert third.entry.seen == {"here", "there"}
    assert here.entry.seen == {"there", "third"}
    assert list((tmp_path / "one").iterdir()) == []


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "has died"])
async def test_a_copied_state_folder_is_no_shared_place(tmp_path: Path, answers: bool) -> None:
    """Its node is refused, and is no node of the place, unless the other one has died."""
    store = MemoryStore(clock := FakeClock())
    here, copied = placed(store, "here", tmp_path / "one"), placed(store, "copied", tmp_path / "two")
    copied.answer_within_s = 0.3
    await here.join()
    if answers:
        async with running(here):
            clock.advance(1)
            with pytest.raises(UnseenNodes, match="have the mark of here, but lie on another disk"):
                await copied.join()
        return
    async with in_background(copied.join()) as joining:
        await comes(lambda: (tmp_path / "two" / ".nodes").exists())
        clock.advance(31)
        await joining
