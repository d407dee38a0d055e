"""Copies of a store: what a store of one kind becomes in another, beside the same in memory."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from multiprocessing import Process
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from gateway.cli.stores import migrate as command
from gateway.domain.ids import SessionId, mint
from gateway.domain.messages import Received
from gateway.domain.nodes import NodeEntry, name_of
from gateway.domain.retention import Keep
from gateway.domain.slots import SlotKind
from gateway.errors import DragomanError, StoreError
from gateway.ports import Store
from gateway.store import open_store
from gateway.store.backup import make_backup, restore_backup
from gateway.store.copying import export, migrate
from gateway.store.homing import KeptFiles
from gateway.store.records import Record
from gateway.store.redis.copying import copy_of
from gateway.store.sqlite.copying import SqliteSnapshot, read_file
from gateway.system.clock import SystemClock
from gateway.toolcalls.workspaces import Workspaces
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Scene
from tests.contract.test_backups import KEY
from tests.contract.test_store_machine import RULES_A_RUN, StoreMachine
from tests.support.clock import FakeClock
from tests.support.faulty_store import Faults
from tests.support.makers import route
from tests.support.ram import ram
from tests.support.redis_server import RedisServer

OTHERS = 2_000
"""Rows beside those that are written while a store is copied."""


@pytest.mark.parametrize(
    "runs", [3, pytest.param(200, marks=[pytest.mark.whole("three runs stay"), pytest.mark.timeout(3600)])]
)
def test_a_store_goes_on_after_each_move(runs: int, redis_server: RedisServer) -> None:
    """With each restart the store moves to Redis, or back: after every move it acts as the one in memory."""

    class Machine(StoreMachine):
        """The same moves on a store that wanders."""

        def _durable(self, faults: Faults) -> Store:
            """Open it where it is now: in a file, then on Redis, then in a file."""
            before, self.homes = getattr(self, "homes", 0), getattr(self, "homes", 0) + 1
            place = Path(self.folder.name).resolve()

            def home(number: int) -> str:
                if number % 2:
                    return f"sqlite://{place}/{number}.db"
                return f"{redis_server.url}?prefix={place.name}-{number}"

            if before:
                migrate(home(before), home(before + 1), self.clock.now())
            return open_store(home(before + 1), self.clock)

    StoreMachine.moves.clear()
    run_state_machine_as_test(
        Machine,
        settings=settings(StoreMachine.TestCase.settings, max_examples=runs, stateful_step_count=RULES_A_RUN),
    )
    assert sum(StoreMachine.moves) >= runs * RULES_A_RUN // 2


async def test_an_export_beside_writers_is_of_one_moment(redis_server: RedisServer, tmp_path: Path) -> None:
    """While nodes write, all rows of a copy are of one moment: each turn has its message, none comes from later."""
    url, clock = f"{redis_server.url}?prefix={mint('export')}", FakeClock()
    store = open_store(url, clock)
    scene, ended = Scene(store, clock), asyncio.Event()

    async def write(number: int) -> None:
        while not ended.is_set():
            await scene.say(f"{number}", to=route(SessionId(f"chat:{number}")))
            await scene.finish(await scene.claim())

    async with asyncio.TaskGroup() as group:  # so that rows are read in many pieces
        for number in range(OTHERS):
            group.create_task(store.put("others", f"{number}", ""))
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(write(number))
        for number in range(3):
            await asyncio.to_thread(export, url, str(tmp_path / f"{number}.db"))
        ended.set()
    await store.close()
    await asyncio.to_thread(export, url, str(tmp_path / "last.db"))
    sizes = list[int]()
    for name in ("0", "1", "2", "last"):
        with read_file(str(tmp_path / f"{name}.db")) as snapshot:
            records = list(snapshot.records())
        assert max(one.values[-1] for one in records if one.kind == "message") <= snapshot.rev
        turns = {one.key for one in records if one.kind == "turn"}
        assert {one.values[2] for one in records if one.kind == "message"} == turns
        unended = Counter(one.values[2] for one in records if one.kind == "turn" and one.values[5] != "done")
        assert max(unended.values(), default=0) <= 1  # each writer ends its turn before it begins another
        sizes.append(len(records))
    assert 0 < sizes[0] <= sizes[1] <= sizes[2] <= sizes[3]
    again = open_store(f"sqlite://{tmp_path}/last.db", clock)
    assert len(await Scene(again, clock).rows(SessionId("chat:0"))) > 1
    await again.close()


async def _filled(url: str, clock: FakeClock, turns: int = 3) -> None:
    """Make a store with turns, approvals, a started call and a child."""
    store = open_store(url, clock)
    scene = Scene(store, clock)
    for number in range(turns):
        await scene.ended(route(SessionId(f"chat:{number % 50}")))
    await scene.started()
    await scene.parked(to=route(SessionId("chat:asked")))
    await store.close()


@pytest.mark.parametrize(
    "turns", [20, pytest.param(10_000, marks=[pytest.mark.whole("20 turns stay"), pytest.mark.timeout(3600)])]
)
async def test_there_and_back_each_row_is_the_same(turns: int, redis_server: RedisServer) -> None:
    with TemporaryDirectory(dir=ram()) as folder:
        clock, file, back = FakeClock(), f"sqlite://{folder}/dragoman.db", f"{folder}/back.db"
        await _filled(file, clock, turns)
        await asyncio.to_thread(migrate, file, url := f"{redis_server.url}?prefix={mint('back')}", clock.now())
        await asyncio.to_thread(migrate, url, back, clock.now())
        with read_file(f"{folder}/dragoman.db") as one, read_file(back) as other:
            assert one.rev == other.rev
            for was, is_ in zip(_sorted(one.records()), _sorted(other.records()), strict=True):
                assert was == is_


async def test_old_rows_of_a_moved_store_go_as_well(redis_server: RedisServer, tmp_path: Path) -> None:
    """Messages of no turn go too, for any ids that they had in the old store."""
    clock, url, file = FakeClock(), f"{redis_server.url}?prefix={mint('old')}", f"sqlite://{tmp_path}/moved.db"
    before = open_store(url, clock)
    await Scene(before, clock).stop()
    for _ in range(2):
        await Scene(before, clock).ended()
    await before.close()
    await asyncio.to_thread(migrate, url, file, clock.now())
    moved = open_store(file, clock)
    had = await Scene(moved, clock).items(Received)
    assert (await moved.trim(MAIN, Keep(turns=1))).turns == 1
    assert [one.turn for one in had][:1] == [None]
    assert await Scene(moved, clock).items(Received) == had[2:]
    await moved.close()


async def test_a_copy_knows_when_a_session_last_ended(redis_server: RedisServer, tmp_path: Path) -> None:
    """No turn starts before that, on either kind of store that was opened anew."""
    clock, file = FakeClock(), f"sqlite://{tmp_path}/dragoman.db"
    await _filled(file, clock, turns=2)
    await asyncio.to_thread(migrate, file, url := f"{redis_server.url}?prefix={mint('ends')}", clock.now())
    clock.advance(-0.003)
    for place in (file, url):
        store = open_store(place, clock)
        accepted = await Scene(store, clock).say(to=route(session := SessionId("chat:0")))
        await store.claim(NODE)
        (ended,) = await store.history(session, 0, 9)
        assert (await store.turn(accepted.turn)).turn.started_at == ended.turn.ended_at
        await store.close()


async def test_a_lone_daemon_gets_sessions_without_homes(redis_server: RedisServer, tmp_path: Path) -> None:
    """It works in its own folders. Back on Redis the first node that acts is the home, not the one of long ago."""
    url, file, clock = f"{redis_server.url}?prefix={mint('homes')}", tmp_path / "dragoman.db", FakeClock()
    store = open_store(url, clock)
    scene = Scene(store, clock)
    await store.join(NodeEntry(node=NODE, key=None, home="here"))
    await scene.say()
    (claimed,) = await store.claim(NODE, home="here")
    await scene.plan(claimed.lease)
    await scene.start(claimed.lease, 1)
    await store.close()
    copied = await asyncio.to_thread(migrate, url, str(file), clock.now())
    assert copied.homeless == {name_of(NODE): 1}
    alone = open_store(f"sqlite://{file}", clock)
    assert (await alone.places_of(claimed.lease.session), await alone.nodes()) == ([], [])
    clock.advance(60)
    await alone.reclaim()
    assert [one.lease.turn for one in await alone.claim(NODE, home="there")] == [claimed.lease.turn]
    await alone.close()


async def test_a_session_is_at_home_where_its_files_were(redis_server: RedisServer, tmp_path: Path) -> None:
    """A lone daemon's store names no homes: the node that gets its folder runs what has files there, and no other."""
    url, file, clock = f"{redis_server.url}?prefix={mint('kept')}", f"sqlite://{tmp_path}/dragoman.db", FakeClock()
    await _filled(file, clock, turns=2)
    with_files, without = SessionId("chat:0"), SessionId("chat:new")
    store = open_store(file, clock)
    for session in (with_files, without):
        await Scene(store, clock).say(to=route(session))
    await store.close()
    (workspaces := Workspaces(tmp_path)).workspace(with_files)
    said = await asyncio.to_thread(CliRunner().invoke, command, [file, url])
    assert (
        f"1 session at home in {tmp_path}: let one of the nodes have it as its state folder, and start that node first."
        in said.output
    )
    store, home = open_store(url, clock), workspaces.home()
    assert [[one.home for one in await store.places_of(session)] for session in (with_files, without)] == [[home], []]
    assert [one.lease.session for one in await store.claim(NODE, 9, home="new")] == [without]
    assert [one.lease.session for one in await store.claim(NODE, 9, home=home)] == [with_files]
    await store.close()


async def test_nodes_wait_for_the_home_of_a_moved_store(redis_server: RedisServer, tmp_path: Path) -> None:
    """The node with the folder may start after another: the copy counts as its orderly end."""
    url, file, clock = f"{redis_server.url}?prefix={mint('waits')}", f"sqlite://{tmp_path}/dragoman.db", FakeClock()
    store = open_store(file, clock)
    await Scene(store, clock).say()
    await store.close()
    files = KeptFiles(home="old", name="/old/state", has=lambda _: True)
    await asyncio.to_thread(migrate, file, url, clock.now(), files)
    store = open_store(url, clock)
    await store.join(NodeEntry(node=NODE, key=None, home="new"))
    taken = list[bool]()
    for wait in (9, 11):
        for _ in range(wait * 3):
            clock.advance(20)
            await store.alive(NODE)
        taken.append(await store.take_over(NODE, MAIN))
    assert taken == [False, True]
    (told,) = await Scene(store, clock).slots(kind=SlotKind.REPLY)
    assert "The node `/old/state` takes no work now" in told.text
    await store.close()


@pytest.mark.parametrize("how", ["migrated", "restored"])
async def test_a_moved_cluster_waits_for_each_home(how: str, redis_server: RedisServer, tmp_path: Path) -> None:
    """Nodes that lived when the copy was made are no members of it; their files are waited for as after a stop."""
    url, moved, clock = (*(f"{redis_server.url}?prefix={mint(one)}" for one in ("left", "moved")), FakeClock())
    store = open_store(url, clock)
    scene, homes = Scene(store, clock), {NODE: "here", OTHER_NODE: "there"}
    for node, home in homes.items():
        await store.join(NodeEntry(node=node, key=None, home=home))
    await scene.say()
    (claimed,) = await store.claim(NODE, home="here")
    await scene.plan(claimed.lease)
    await scene.start(claimed.lease, 1)
    await asyncio.to_thread(make_backup, url, file := str(tmp_path / "copy.db"), KEY, "1.0", clock)
    await store.close()
    clock.advance(3600)
    if how == "restored":
        copied = await restore_backup(file, moved, clock)
        alone = await restore_backup(file, f"sqlite://{tmp_path}/alone.db", clock)
        assert alone.homeless == {"here": 1}
    else:
        copied = await asyncio.to_thread(migrate, file, moved, clock.now())
    assert copied.homes == ["here", "there"]
    store = open_store(moved, clock)
    assert await store.nodes() == []
    await store.join(NodeEntry(node=OTHER_NODE, key=None, home="there"))
    taken = list[bool]()
    for wait in (9, 11):
        for _ in range(wait * 3):
            clock.advance(20)
            await store.alive(OTHER_NODE)
        await store.reclaim()
        assert await store.claim(OTHER_NODE, home="there") == []
        taken.append(bool(await store.astray(OTHER_NODE)))
    assert taken == [False, True]
    await store.join(NodeEntry(node=NODE, key=None, home="here"))
    assert await store.astray(OTHER_NODE) == []
    assert [one.lease.turn for one in await store.claim(NODE, home="here")] == [claimed.lease.turn]
    await store.close()


def _sorted(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    """Return records to compare, without the numbers of sessions: those of roots mean nothing."""
    listed = sorted(records, key=lambda one: (one.kind, one.key))
    return [(one.kind, one.key, one.values) for one in listed]


def _damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE audit SET tool = 'other'")
        db.commit()


def _age(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def _write(path: Path) -> None:
    path.write_text("This is a letter, and no store. It is long enough to be looked at, like any other file.")


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(8192)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_damage, "differs from what was written"),
        (_age, "has schema 99"),
        (_cut, "damaged"),
        (Path.unlink, "There is no store"),
        (_write, "no SQLite database"),
    ],
)
async def test_failed_copy_leaves_nothing(spoil: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    await _filled(f"sqlite://{tmp_path}/dragoman.db", FakeClock())
    spoil(tmp_path / "dragoman.db")
    with pytest.raises(DragomanError, match=says) as refused:
        await asyncio.to_thread(export, str(tmp_path / "dragoman.db"), str(tmp_path / "copy.db"))
    assert refused.value.cure
    assert not [name for name in os.listdir(tmp_path) if name.startswith("copy")]


async def test_a_target_must_be_empty_and_unused(redis_server: RedisServer, tmp_path: Path) -> None:
    file, url, clock = f"sqlite://{tmp_path}/dragoman.db", f"{redis_server.url}?prefix={mint('full')}", FakeClock()
    await _filled(file, clock)
    await _filled(url, clock)
    for target, says in ((url, "has a store"), (file, "exists already")):
        with pytest.raises(StoreError, match=says):
            await asyncio.to_thread(migrate, file, target, clock.now())
    store = open_store(file, clock)
    with pytest.raises(StoreError, match="A daemon has the store"):
        await asyncio.to_thread(migrate, file, f"{redis_server.url}?prefix={mint('new')}", clock.now())
    await asyncio.to_thread(export, file, str(tmp_path / "copy.db"))
    await store.close()
    running = open_store(url, SystemClock())
    await running.join(NodeEntry(node=NODE, key=None))
    with pytest.raises(StoreError, match="The node here uses"):
        await asyncio.to_thread(migrate, url, str(tmp_path / "other.db"), clock.now())
    await running.resign(NODE)
    await asyncio.to_thread(migrate, url, str(tmp_path / "other.db"), clock.now())
    await running.close()


async def test_a_full_target_is_seen_whichever_key_comes_first(redis_server: RedisServer) -> None:
    """Redis lists keys in an order of its own: in some stores the one that an empty one has, too, comes first."""
    for number in range(20):
        url = f"{redis_server.url}?prefix={mint('full')}"
        store = open_store(url, SystemClock())
        await store.put("colours", f"{number}", "blue")
        with copy_of(url) as copy, pytest.raises(StoreError, match="has a store"):
            copy.begin()
        assert await store.get("colours", f"{number}") == "blue"
        await store.close()


async def test_a_killed_copy_is_refused_and_restarts(redis_server: RedisServer, tmp_path: Path) -> None:
    """A daemon refuses what a copy left half full; the same copy given again removes that and is whole."""
    file, url, clock = f"sqlite://{tmp_path}/dragoman.db", f"{redis_server.url}?prefix={mint('half')}", FakeClock()
    await _filled(file, clock, 60)
    for cut in (1, 200):
        copy = Process(target=_copy_and_die, args=(file, url, cut))
        copy.start()
        await asyncio.to_thread(copy.join)
        assert copy.exitcode == -SIGKILL
        with pytest.raises(StoreError, match="half filled") as refused:
            open_store(url, clock)
        assert "again" in refused.value.cure
    await asyncio.to_thread(migrate, file, url, clock.now())
    store = open_store(url, clock)
    assert len(await Scene(store, clock).rows(SessionId("chat:0"))) > 1
    await store.close()


def _copy_and_die(file: str, url: str, after: int) -> None:
    """Fill a Redis, and be killed after so many records."""

    class Cut:
        """A snapshot that ends the process."""

        def __init__(self, whole: SqliteSnapshot) -> None:
            self._whole, self.rev = whole, whole.rev

        def records(self) -> Iterator[Record]:
            """Yield records, then die."""
            for number, one in enumerate(self._whole.records()):
                if number == after:
                    os.kill(os.getpid(), SIGKILL)
                yield one

    with copy_of(url) as copy, read_file(file.removeprefix("sqlite://")) as snapshot:
        copy.begin()
        copy.fill(Cut(snapshot))
