"""A store that no daemon holds: read for `dragoman explain`, and left as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from gateway.store.sqlite.resting import resting_session
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN
from tests.contract.test_store_grants import granted
from tests.support.clock import FakeClock
from tests.unit.gateway.store.opened import opened

NOBODY = SessionId("main:nobody")


@pytest.fixture
async def path(tmp_path: Path, clock: FakeClock) -> Path:
    """A closed store with a session and a grant, under a name that a URL would take apart."""
    path = tmp_path / "a?b#c%20d.db"
    async with opened(str(path)) as store:
        await granted(FamilyScene(store, clock), days=1)
    return path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement)


def test_a_session_is_read_with_live_grants(path: Path, clock: FakeClock) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    before = path.read_bytes()
    found = resting_session(str(link), MAIN, clock)

    assert found is not None
    session, grants = found
    assert (session.id, [grant.tool for grant in grants]) == (MAIN, ["shell"])
    assert resting_session(str(path), NOBODY, clock) is None
    clock.advance(86_400)
    assert resting_session(str(path), MAIN, clock) == (session, [])
    assert path.read_bytes() == before
    assert {one.name for one in path.parent.iterdir()} == {path.name, f"{path.name}.lock", link.name}


def test_log_left_by_a_crash_is_read(path: Path, clock: FakeClock) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("UPDATE sessions SET title = 'in the log'")
        assert Path(f"{path}-wal").stat().st_size > 0
        found = resting_session(str(path), MAIN, clock)

    assert found is not None
    assert found[0].title == "in the log"


async def test_a_store_in_use_is_left_alone(tmp_path: Path, clock: FakeClock) -> None:
    path = str(tmp_path / "s.db")
    async with opened(path):
        with pytest.raises(StoreInUse):
            resting_session(path, MAIN, clock)
    assert resting_session(path, MAIN, clock) is None


def test_a_store_that_is_not_there_is_told_how_to_begin(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(StoreError) as refused:
        resting_session(str(path), MAIN, clock)

    assert (refused.value.message, refused.value.cure) == (
        f"There is no store at {path}.",
        "Start the daemon once: dragoman run.",
    )
    assert list(tmp_path.iterdir()) == []


def test_each_reason_is_reported_and_the_lock_let_go(path: Path, clock: FakeClock) -> None:
    for statement, kind, told in (
        ("PRAGMA user_version = 99", StoreTooNew, "has schema 99"),
        ("PRAGMA user_version = 1", StoreError, "has schema 1; this version reads "),
        ("UPDATE sessions SET kind = 'none of ours'", StoreError, "The session main:ann cannot be read: ValueError."),
        ("ALTER TABLE sessions RENAME TO gone", StoreError, "failed: no such table: sessions"),
    ):
        kept = path.read_bytes()
        change(path, statement)
        for _ in range(2):
            with pytest.raises(kind, match=told):
                resting_session(str(path), MAIN, clock)
        path.write_bytes(kept)
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 90_000)
    with pytest.raises(StoreDamaged, match=r"is damaged or is no SQLite database"):
        resting_session(str(path), MAIN, clock)
