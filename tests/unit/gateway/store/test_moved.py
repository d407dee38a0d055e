"""A store whose files are moved or replaced while open: it acknowledges nothing that would be lost."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.errors import NotFound, StoreError
from gateway.store.sqlite.writer import IDLE_S, LONG_WAL
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.store.opened import opened, say


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "dragoman.db"


def without_its_file(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def without_its_log(path: Path) -> None:
    log_of(path).rename(path.with_name("elsewhere"))


def without_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replaced(path: Path) -> None:
    without_its_file(path)
    shutil.copy(path.with_name("elsewhere"), path)


def with_another_log(path: Path) -> None:
    without_its_log(path)
    log_of(path).touch()


def log_of(path: Path) -> Path:
    return path.with_name("dragoman.db-wal")


def put_back(path: Path) -> None:
    place = path.with_name("elsewhere")
    if place.exists():
        place.rename(log_of(path) if place.read_bytes()[:4] == b"\x37\x7f\x06\x82" else path)
    else:
        path.parent.with_name("elsewhere").rename(path.parent)


@pytest.mark.parametrize("take", [without_its_file, without_its_log, without_its_folder, replaced, with_another_log])
async def test_store_refuses_writes_until_its_files_are_back(path: Path, take: Callable[[Path], None]) -> None:
    async with opened(str(path)) as store:
        before = await say(store, text="before")
        take(path)
        for refused in (store.probe(), say(store, text="meanwhile")):
            with pytest.raises(StoreError, match="was moved, removed or replaced while the daemon runs") as error:
                await refused
            assert "Put the files back as they were" in error.value.cure
        assert (await store.turn(before.turn)).turn.id == before.turn  # reading goes on
        put_back(path)
        await store.probe()
        after = await say(store, text="meanwhile")
    async with opened(str(path)) as store:
        for one in (before, after):
            assert (await store.turn(one.turn)).turn.id == one.turn


def taken_away(path: Path) -> Path:
    """Move the file and its log, not the log's index, into another folder; return where the file is."""
    away = path.parent.with_name("elsewhere") / path.name
    away.parent.mkdir()
    for file in (path, log_of(path)):
        file.rename(away.with_name(file.name))
    return away


WRITING = ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "CREATE TABLE t (a)"]
A_LONGER_LOG = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint(0); CREATE TABLE t (a); " + "; ".join(
    ["INSERT INTO t SELECT randomblob(3000) FROM (VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9),(10))"] * 60
)
"""Than the one that the daemon knows."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("statement", [*WRITING, A_LONGER_LOG])
@pytest.mark.parametrize("before", [5, 300])
async def test_files_changed_while_moved_are_not_written_on(path: Path, before: int, statement: str) -> None:
    """The daemon's index of the log tells of pages that are not there any more: what it wrote was lost, and damage."""
    async with opened(str(path)) as store:
        kept = [await say(store, text=f"before {n}") for n in range(before)]
        away = taken_away(path)
        with pytest.raises(StoreError):
            await store.probe()
        elsewhere(away, statement)
        for name in away.parent.glob("dragoman.db*"):
            if not name.name.endswith("-shm"):
                name.rename(path.with_name(name.name))
        for _ in range(2):
            with pytest.raises(StoreError, match="was moved, removed or replaced"):
                await say(store, text="meanwhile")
        killed = Path(shutil.copytree(path.parent, path.parent.with_name("killed"))) / path.name
    for place in (path, killed):
        async with opened(str(place)) as store:
            for one in kept:
                assert (await store.turn(one.turn)).turn.id == one.turn
            await say(store, text="afterwards")
    assert elsewhere(path, "PRAGMA integrity_check") == "[('ok',)]"


async def test_moved_files_are_not_touched_when_idle(path: Path) -> None:
    """A long log is moved into the file then, by an index that may not be of it any more."""
    async with opened(str(path)) as store:
        for n in range(LONG_WAL + 20):
            await say(store, text=f"before {n}")
        away = taken_away(path)
        with pytest.raises(StoreError):
            await store.probe()
        elsewhere(away, A_LONGER_LOG)
        await asyncio.sleep(IDLE_S + 0.5)
        assert elsewhere(away, "PRAGMA integrity_check") == "[('ok',)]"
        assert elsewhere(away, "SELECT count(*) FROM t") == "[(600,)]"
    assert elsewhere(away, "PRAGMA integrity_check") == "[('ok',)]"


async def test_files_moved_and_returned_unchanged_are_written_on(path: Path) -> None:
    """Also after a moment with nothing else to do, and after a commit that failed half way."""
    async with opened(str(path)) as store:
        for n in range(LONG_WAL + 20):
            await say(store, text=f"before {n}")
        for _ in range(2):
            without_its_folder(path)
            with pytest.raises(StoreError):
                await store.probe()
            await asyncio.sleep(IDLE_S + 0.5)
            put_back(path)
            await say(store, text="after")
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (log_of(path).stat().st_size + 5_000, hard))
            with pytest.raises(StoreError):
                await say(store, text="x" * 60_000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert elsewhere(path, "PRAGMA integrity_check") == "[('ok',)]"


async def test_files_moved_in_the_middle_of_a_commit_are_written(path: Path) -> None:
    """That commit is in the files, wherever they are."""
    async with opened(str(path)) as store:
        await say(store, text="before")
        await store.writer.submit(lambda tx: (tx.run("probe"), without_its_folder(path)))
        with pytest.raises(StoreError):
            await store.probe()
        put_back(path)
        await say(store, text="after")


@pytest.mark.parametrize("statement", [*WRITING, "SELECT count(*) FROM sessions"])
async def test_without_the_index_of_its_log_nothing_is_written(path: Path, statement: str) -> None:
    """The next process to open the store would make another index, and neither knows of the other."""
    async with opened(str(path)) as store:
        kept = [await say(store, text=f"before {n}") for n in range(50)]
        path.with_name("dragoman.db-shm").unlink()
        elsewhere(path, statement)
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            await say(store, text="meanwhile")
    async with opened(str(path)) as store:
        for one in kept:
            assert (await store.turn(one.turn)).turn.id == one.turn
    assert elsewhere(path, "PRAGMA integrity_check") == "[('ok',)]"


async def test_everybody_who_waits_for_the_same_commit_is_told(path: Path) -> None:
    async def probe() -> bool:
        try:
            await store.probe()
        except StoreError:
            return False
        return True

    async with opened(str(path)) as store:
        assert await probe()
        without_its_file(path)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            probes = [group.create_task(probe()) for _ in range(20)]
    assert [one.result() for one in probes] == [False] * 20


async def test_a_stop_and_a_start_go_on_with_what_stands_there_then(path: Path) -> None:
    """As after a backup that was put there without a stop: the log of the old file does not get into it."""
    async with opened(str(path)) as store:
        kept = await say(store, text="in the backup")
        elsewhere(path, f"VACUUM INTO '{path.parent}/backup'")
        lost = await say(store, text="behind the backup")
        restored(path)
        with pytest.raises(StoreError):
            await store.probe()
    async with opened(str(path)) as store:
        assert (await store.turn(kept.turn)).turn.id == kept.turn
        with pytest.raises(NotFound):
            await store.turn(lost.turn)
    assert elsewhere(path, "PRAGMA integrity_check") == "[('ok',)]"


def restored(path: Path) -> None:
    path.with_name("backup").replace(path)


# --- what others may do ---------------------------------------------------------------------


def elsewhere(path: Path, statement: str) -> str:
    """Return the output of another process that opens the store and closes it again."""
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "print([db.execute(one).fetchall() for one in sys.argv[2].split(';')][-1])"
    )
    return subprocess.run(
        [sys.executable, "-c", code, path, statement], check=True, capture_output=True, text=True
    ).stdout.strip()


def backed_up(path: Path) -> None:
    """As deploy/RUNBOOK.md says."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, path, f"{path}.copy"], check=True)


def touched(path: Path) -> None:
    for file in (path, log_of(path)):
        os.utime(file, (1, 1))
        file.chmod(0o640)


HARMLESS: dict[str, Callable[[Path], object]] = {
    "read": lambda path: elsewhere(path, "SELECT count(*) FROM sessions"),
    "VACUUM": lambda path: elsewhere(path, "VACUUM"),
    "VACUUM INTO": lambda path: elsewhere(path, f"VACUUM INTO '{path}.copy'"),
    "TRUNCATE": lambda path: elsewhere(path, "PRAGMA wal_checkpoint(TRUNCATE)"),
    "RESTART": lambda path: elsewhere(path, "PRAGMA wal_checkpoint(RESTART)"),
    "backup": backed_up,
    "touched": touched,
}


@pytest.mark.parametrize("do", HARMLESS.values(), ids=HARMLESS)
async def test_access_that_leaves_the_files_in_place_is_allowed(path: Path, do: Callable[[Path], object]) -> None:
    async with opened(str(path)) as store:
        await say(store, text="before")
        await asyncio.to_thread(do, path)
        await say(store, text="after")
        assert log_of(path).exists()


async def test_the_stores_own_checkpoints_refuse_nothing(path: Path) -> None:
    async with opened(str(path)) as store:
        for _ in range(2):
            for _ in range(LONG_WAL):
                await store.probe()
            await asyncio.sleep(IDLE_S + 0.2)
        await store.probe()
