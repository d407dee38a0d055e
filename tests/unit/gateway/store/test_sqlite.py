"""Behaviour of the SQLite store beyond the contract: file ownership, kills, a full disk, group commit."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from gateway.domain.events import TURNS, TurnsDue
from gateway.domain.ids import NodeId, SessionId, TurnId
from gateway.domain.routes import Accepted, WhileRunning
from gateway.domain.turns import Lease, TurnKind
from gateway.errors import Forbidden, LeaseLost, NotFound, StoreDamaged, StoreError, StoreInUse, StoreTooNew
from gateway.store.sqlite import SqliteStore, open_sqlite
from gateway.store.sqlite.failures import store_error
from gateway.store.sqlite.statements import load_migrations
from gateway.store.sqlite.tx import ReadTx, Tx
from gateway.store.sqlite.writer import IDLE_S, LONG_WAL
from tests.support.clock import FakeClock
from tests.support.makers import answer, inbound, route, said, seconds
from tests.support.places import with_mounts
from tests.support.proof import times
from tests.unit.gateway.store.opened import first, opened, say

ROOT = Path(__file__).parents[4]
NODE = NodeId("here#1")

SLOW_DISK_S = 5.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "dragoman.db")


def child(*arguments: str) -> subprocess.Popen[str]:
    """Start one of the processes of `children`."""
    command = [sys.executable, "-m", "tests.unit.gateway.store.children", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def query(path: str, statement: str) -> list[tuple[object, ...]]:
    """Look at the file from outside."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement).fetchall()


def written_at(path: str) -> int:
    """When the file itself was written last, in nanoseconds; its log is another file."""
    return Path(path).stat().st_mtime_ns


# --- whose file -----------------------------------------------------------------------------


async def test_the_file_and_its_folder_are_for_the_daemons_user_only(path: str) -> None:
    async with opened(path) as store:
        await store.probe()
        made = [Path(path).parent, *sorted(Path(path).parent.iterdir())]
    modes = {one.name: oct(stat.S_IMODE(one.stat().st_mode)) for one in made if one.exists()}
    assert modes == {"state": "0o700", "dragoman.db": "0o600", "dragoman.db.lock": "0o600"}


async def test_a_second_daemon_is_refused_with_the_firsts_process_id(path: str) -> None:
    with child("hold", path) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with pytest.raises(StoreInUse, match=rf"process {holder.pid}\b"):
                open_sqlite(path, FakeClock())
        finally:
            holder.kill()
    async with opened(path) as store:
        assert await store.sessions() == []


async def test_a_newer_schema_is_refused_and_left_as_it_is(path: str) -> None:
    async with opened(path):
        pass
    query(path, "PRAGMA user_version = 999")
    with pytest.raises(StoreTooNew, match="999"):
        open_sqlite(path, FakeClock())
    assert query(path, "PRAGMA user_version") == [(999,)]


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "other.db")
    query(path, "CREATE TABLE theirs (a)")
    before = Path(path).read_bytes()
    with pytest.raises(StoreError, match="another program") as refused:
        open_sqlite(path, FakeClock())
    assert "store.url" in refused.value.cure
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("content", [b"a letter to my aunt\n" * 100, b"x"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no SQLite database"):
        open_sqlite(str(path), FakeClock())
    assert path.read_bytes() == content


def test_unopenable_store_has_a_reason_and_a_cure(tmp_path: Path) -> None:
    for path, why in (("dragoman.db", "not absolute"), (str(tmp_path), "directory")):
        with pytest.raises(StoreError, match=why) as refused:
            open_sqlite(path, FakeClock())
        assert refused.value.cure


async def test_a_refused_start_leaves_the_store_free(path: str) -> None:
    async with opened(path):
        pass
    query(path, "PRAGMA user_version = 999")
    with pytest.raises(StoreTooNew):
        open_sqlite(path, FakeClock())
    query(path, f"PRAGMA user_version = {len(load_migrations())}")
    async with opened(path) as store:
        await store.probe()


async def test_the_file_is_durable_and_the_readers_cannot_write(path: str) -> None:
    async with opened(path) as store:
        names = ["read_journal_mode", "read_synchronous", "read_foreign_keys", "read_busy_timeout"]
        assert await store.writer.submit(lambda tx: [tx.run(name) for name in names]) == [
            [("wal",)],
            [(2,)],
            [(1,)],
            [(5000,)],
        ]
        ask = "PRAGMA cache_size"
        assert await store.writer.submit(lambda tx: tx.db.execute(ask).fetchone()) == (-1024,)
        assert await store.read(lambda reader: reader.db.execute(ask).fetchone()) == (-256,)
        with pytest.raises(StoreError, match="cannot be opened for writing"):
            await store.read(lambda reader: reader.run("probe"))


# --- migrations -----------------------------------------------------------------------------


async def test_kill_at_any_migration_statement_leaves_a_usable_file(tmp_path: Path) -> None:
    with child("migrate", str(tmp_path)) as driver:
        said, _ = driver.communicate(timeout=50)
    deaths = [line.split() for line in said.splitlines()]
    assert len(deaths) > 30
    assert {signal for _, signal in deaths} == {"9"}
    ends = list(accumulate(len(one.statements) + 1 for one in load_migrations()))
    for number, _ in deaths[:: times(1, 1, small=4)]:
        path = str(tmp_path / f"{number}.db")
        # What was committed before stays; of what was under way nothing does.
        version = sum(int(number) >= end for end in ends)
        assert query(path, "PRAGMA user_version") == [(version,)]
        assert query(path, "SELECT count(*) > 0 FROM sqlite_schema") == [(version > 0,)]
        async with opened(path) as store:
            await say(store)
            assert (await store.counts()).queued_turns == 1


# --- crashes --------------------------------------------------------------------------------


async def test_a_kill_under_load_loses_nothing_that_was_acknowledged(path: str) -> None:
    acknowledged: set[str] = set()
    lives = times(3, 3, small=2)
    for _ in range(lives):
        with child("accept", path) as writer:
            assert writer.stdout is not None
            acknowledged |= {writer.stdout.readline().strip() for _ in range(200)}
            writer.kill()
            # What it still wrote into the pipe was acknowledged too; the last line may be half.
            rest = writer.stdout.read()
        acknowledged |= set(rest[: rest.rfind("\n") + 1].split())
    assert len(acknowledged) >= 200 * lives
    stored = {str(key) for (key,) in query(path, "SELECT event_key FROM messages")}
    assert acknowledged <= stored
    async with opened(path) as store:
        assert (await say(store, key=acknowledged.pop())).duplicate
        revs = [rev for (rev,) in query(path, "SELECT rev FROM messages UNION ALL SELECT rev FROM turns")]
        await say(store)
        newest = (await store.changes(route().session, max(int(str(rev)) for rev in revs), 10)).rows
        assert len(newest) == 2, "revisions grow over a crash"


def test_a_damaged_file_is_found_after_a_crash(path: str) -> None:
    with child("accept", path) as writer:
        assert writer.stdout is not None
        for _ in range(300):
            writer.stdout.readline()
        writer.kill()
    query(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    with Path(path).open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xa5" * 4096 * 8)
    before = Path(path).read_bytes()
    with pytest.raises(StoreError, match="damaged") as found:
        open_sqlite(path, FakeClock())
    assert "backup" in found.value.cure
    assert Path(path).read_bytes() == before


# --- a full disk ----------------------------------------------------------------------------


def test_full_disk_loses_nothing_and_writes_resume_with_room(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    inside = with_mounts(f"mount -t tmpfs -o size=3m none {place}")
    command = [*inside, sys.executable, "-m", "tests.unit.gateway.store.children", "fill", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr


# --- commits --------------------------------------------------------------------------------


async def test_queued_writes_are_committed_together(path: str) -> None:
    async with opened(path) as store:
        await say(store)
        commits = store.writer.commits
        await asyncio.gather(*(say(store) for _ in range(300)))
        assert store.writer.commits - commits <= 30
        assert (await store.counts()).queued_turns == 301


@pytest.mark.parametrize(("commits", "moved"), [(LONG_WAL - 1, False), (LONG_WAL, True)])
async def test_long_log_is_checkpointed_when_idle(path: str, commits: int, moved: bool) -> None:
    """The next write does not wait for that; a short log is not worth it."""
    async with opened(path) as store:
        before = written_at(path)
        while store.writer.commits < commits:
            await store.probe()
        await asyncio.sleep(IDLE_S + 0.3)
        if moved and written_at(path) == before:
            await asyncio.sleep(SLOW_DISK_S)
        assert (written_at(path) > before) is moved


async def test_a_transition_that_is_refused_takes_nothing_else_with_it(path: str) -> None:
    async with opened(path) as store:
        stale = Lease(turn=TurnId("t0"), session=route().session, node=NODE, fence=1)
        both = await asyncio.gather(*(say(store) for _ in range(5)), store.renew(stale), return_exceptions=True)
        assert [type(one) for one in both] == [Accepted] * 5 + [LeaseLost]
        assert (await store.counts()).queued_turns == 5


async def test_a_transition_that_fails_half_way_is_undone_alone(path: str) -> None:
    async with opened(path) as store:

        def half(tx: Tx) -> None:
            tx.run("probe")
            raise ZeroDivisionError

        came = await asyncio.gather(say(store), store.writer.submit(half), say(store), return_exceptions=True)
        assert isinstance(came[1], ZeroDivisionError)
        rows = (await store.changes(route().session, 0, 100)).rows
        assert [row.rev for row in rows] == [2, 3, 5, 6], "the revisions are those of the other two"
        assert query(path, "SELECT probes FROM meta") == [(0,)]


async def test_without_memory_the_whole_commit_fails_and_says_so(path: str) -> None:
    """SQLite may have rolled back the others of the commit too, and Python tells it by an error of its own."""
    async with opened(path) as store:

        def half(tx: Tx) -> None:
            tx.run("probe")
            raise MemoryError

        with locked(path):
            busy = asyncio.create_task(store.probe())
            await asyncio.sleep(0.1)
            three = asyncio.gather(say(store), store.writer.submit(half), say(store), return_exceptions=True)
            await asyncio.sleep(0.1)
        await busy
        came = await three
        assert [type(one) for one in came] == [StoreError] * 3
        assert {str(one) for one in came} == {str(store_error(MemoryError(), path))}
        assert "No memory was left" in str(came[1])
        assert isinstance(await say(store), Accepted), "the thread that writes goes on"
        assert query(path, "SELECT probes FROM meta") == [(1,)]


async def test_damage_is_logged_once(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not every caller logs, and none of them alone sees it first."""
    damage = sqlite3.DatabaseError("database disk image is malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    async with opened(path) as store:

        def meets_it(_: ReadTx) -> None:
            raise damage

        for _ in range(3):
            with pytest.raises(StoreDamaged):
                await store.read(meets_it)
    said = capsys.readouterr()
    assert (said.out + said.err).count("the store is damaged") == 1


async def test_a_read_without_memory_says_so_and_the_next_one_is_read(path: str) -> None:
    async with opened(path) as store:

        def half(_: ReadTx) -> None:
            raise MemoryError

        for _ in range(8):
            with pytest.raises(StoreError, match="No memory was left"):
                await store.read(half)
        assert (await store.counts()).queued_turns == 0


async def test_the_first_of_several_fails_alone_too(path: str) -> None:
    async with opened(path) as store:

        def half(tx: Tx) -> None:
            tx.run("probe")
            raise ZeroDivisionError

        with locked(path):
            busy = asyncio.create_task(store.probe())
            await asyncio.sleep(0.1)
            both = asyncio.gather(store.writer.submit(half), say(store), return_exceptions=True)
            await asyncio.sleep(0.1)
        await busy
        came = await both
        assert isinstance(came[0], ZeroDivisionError)
        assert isinstance(came[1], Accepted)
        assert query(path, "SELECT probes FROM meta") == [(1,)]


async def test_failed_sign_ins_are_counted(path: str) -> None:
    async with opened(path) as store:
        for _ in range(10):
            assert await store.redeem_code("wrong", "cookie", seconds(60), "somebody") is None
    async with opened(path) as store:
        with pytest.raises(Forbidden):
            await store.redeem_code("wrong", "cookie", seconds(60), "somebody")


async def test_wake_ups_come_after_the_commit_and_before_the_answer(path: str) -> None:
    async with opened(path) as store, store.event_bus.subscribe(TURNS) as events:
        with locked(path):
            saying = asyncio.create_task(say(store))
            waking = asyncio.create_task(first(events))
            await asyncio.sleep(0.2)
            assert not waking.done()
            assert turns_outside(path) == 0
        assert await waking == TurnsDue()
        assert turns_outside(path) == 1
        await saying


async def test_a_refused_transition_wakes_nobody(path: str) -> None:
    async with opened(path) as store, store.event_bus.subscribe(TURNS) as events:

        def fail(tx: Tx) -> None:
            tx.touched.turns_due = True
            raise NotFound

        with pytest.raises(NotFound):
            await store.writer.submit(fail)
        waking = asyncio.create_task(first(events))
        await asyncio.sleep(0.05)
        assert not waking.done()
        await say(store)
        assert await waking == TurnsDue()


async def test_cancelled_caller_leaves_a_whole_transition_or_none(path: str) -> None:
    async with opened(path) as store:
        with locked(path):
            begun, queued = [asyncio.create_task(say(store)) for _ in range(2)]
            await asyncio.sleep(0.1)
            begun.cancel()
            queued.cancel()
        await store.probe()
        rows = (await store.changes(route().session, 0, 10)).rows
        assert len(rows) in (0, 2, 4)
        await say(store)
        assert len((await store.changes(route().session, 0, 10)).rows) == len(rows) + 2


async def test_unstorable_text_is_stored_with_a_replacement_mark(path: str) -> None:
    async with opened(path) as store:
        accepted = await say(store, text="half an emoji: \ud83d, nothing: \x00.")
        lease = (await store.claim(NODE))[0].lease
        inputs = (await store.turn(lease.turn)).inputs
        spoken = replace(answer("half: \udc00"), opaque={"provider": "\ud83d"})
        await store.plan(lease, spoken, given=inputs, slots=[said("half: \udc00")])
        view = await store.turn(accepted.turn)
        assert view.inputs[0].message.text == "half an emoji: \ufffd, nothing: \x00."
        assert view.steps[0].answer == replace(spoken, text="half: \ufffd", opaque={"provider": "\ufffd"})


async def test_a_turn_that_makes_no_sense_is_handed_out_all_the_same(path: str) -> None:
    """So that it can be ended; and what waits behind it runs."""
    async with opened(path) as store:
        bad = await say(store)
        other = route(SessionId("chat:other"))
        good = await store.accept(other, inbound(), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    query(path, f"UPDATE messages SET conversation = 'nonsense' WHERE turn = '{bad.turn}'")
    async with opened(path) as store:
        claimed = await store.claim(NODE, 5)
        assert [one.lease.turn for one in claimed] == [bad.turn, good.turn]
        assert [one.view is None for one in claimed] == [True, False]
        with pytest.raises(ValueError, match="Expecting value"):
            await store.turn(bad.turn)


# --- closing --------------------------------------------------------------------------------


async def test_close_finishes_queued_work_and_refuses_later_work(path: str) -> None:
    store = open_sqlite(path, FakeClock())
    many = [asyncio.create_task(say(store)) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert len({(await one).turn for one in many}) == 50
    for late in (store.probe(), store.counts()):
        with pytest.raises(StoreError, match="closed"):
            await late
    assert query(path, "SELECT clean FROM meta") == [(1,)]
    assert files_beside(path) == {"dragoman.db", "dragoman.db.lock"}


def test_close_ends_although_the_loop_of_what_is_queued_is_gone(path: str) -> None:
    async def leave() -> SqliteStore:
        store = open_sqlite(path, FakeClock())
        with locked(path):
            left = asyncio.create_task(say(store))
            await asyncio.sleep(0.05)
            left.cancel()
            return store

    store = asyncio.run(leave())
    asyncio.run(asyncio.wait_for(store.close(), 10))
    assert query(path, "SELECT clean FROM meta") == [(1,)]


async def test_revisions_go_on_where_they_were_after_a_clean_close(path: str) -> None:
    async with opened(path) as store:
        await say(store)
        before = (await store.changes(route().session, 0, 10)).rev
    async with opened(path) as store:
        await say(store)
        assert (await store.changes(route().session, before, 10)).rev == before + 3


# --- helpers --------------------------------------------------------------------------------


@contextmanager
def locked(path: str) -> Generator[None]:
    """Keep the store from committing, as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def files_beside(path: str) -> set[str]:
    return {one.name for one in Path(path).parent.iterdir()}


def turns_outside(path: str) -> int:
    """Return how many turns an outside reader sees."""
    ((count,),) = query(path, "SELECT count(*) FROM turns")
    return int(str(count))
