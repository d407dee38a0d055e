"""Migrations: a store of an earlier version opens with all its rows; a kill on the way leaves the earlier version."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.ids import NodeId
from gateway.domain.messages import Refused, RefusedReason
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind
from gateway.errors import StoreTooNew
from gateway.store.sqlite import open_sqlite
from gateway.store.sqlite.opening import connect, migrate
from gateway.store.sqlite.statements import SchemaMigration, load_migrations, load_statements
from tests.support.clock import FakeClock
from tests.support.makers import EPOCH, inbound, route, seconds
from tests.support.proof import figure

SQL = load_statements()
NODE = NodeId("here#1")
LAST = len(load_migrations())
NEXT = SchemaMigration(
    number=LAST + 1,
    name="made_up",
    statements=(
        "ALTER TABLE messages ADD COLUMN mood TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE moods (mood TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE INDEX messages_mood ON messages (mood) WHERE mood <> ''",
        "INSERT INTO moods (mood) SELECT DISTINCT mood FROM messages",
        f"PRAGMA user_version = {LAST + 1}",
    ),
)
"""A made-up next version."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "dragoman.db")


@pytest.fixture
async def old(path: str) -> AsyncIterator[sqlite3.Connection]:
    """A file of the present version with a message that waits."""
    store = open_sqlite(path, FakeClock())
    await store.accept(route(), inbound(), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    await store.close()
    with closing(connect(path)) as db:
        yield db


async def test_failure_at_any_statement_keeps_the_version(path: str, old: sqlite3.Connection) -> None:
    schema = old.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    migrations, statements = (*load_migrations(), NEXT), [*NEXT.statements, SQL["commit"]]
    for last in range(len(statements)):
        left = iter(range(last))

        def before(_: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            migrate(old, SQL, migrations, before)
        assert old.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall() == schema
        assert old.execute(SQL["read_user_version"]).fetchone() == (LAST,)
    migrate(old, SQL, migrations)
    assert old.execute(SQL["read_user_version"]).fetchone() == (LAST + 1,)
    assert old.execute("SELECT text, mood FROM messages").fetchone() == ("hello", "")
    figure("F28", "stores left between two versions", 0, 0, of=len(statements))


def test_an_older_daemon_refuses_it(path: str, old: sqlite3.Connection) -> None:
    old.execute(f"PRAGMA user_version = {len(load_migrations()) + 1}")
    old.close()
    with pytest.raises(StoreTooNew):
        open_sqlite(path, FakeClock())


async def test_unreadable_events_are_kept_raw_up_to_64_kib(path: str) -> None:
    store = open_sqlite(path, FakeClock())
    for key, reason, raw in [
        ("1", RefusedReason.POISON, "é" * 40_000),
        ("2", RefusedReason.POISON, "\ud83d"),
        ("3", RefusedReason.UNKNOWN, "not kept"),
    ]:
        refused = Refused(channel="telegram", account="main", event_key=key, reason=reason, detail="no chat", raw=raw)
        assert await store.refuse(refused)
    await store.close()
    with closing(connect(path)) as db:
        kept = db.execute("SELECT event_key, raw, why, at FROM poison ORDER BY event_key").fetchall()
        outcomes = db.execute("SELECT outcome FROM events ORDER BY event_key").fetchall()
    at = int(EPOCH.timestamp()) * 1_000_000
    assert kept == [("1", "é" * 32_768, "no chat", at), ("2", "\ufffd", "no chat", at)]
    assert outcomes == [("drop:poison",), ("drop:poison",), ("drop:unknown",)]


async def test_expired_facts_leave_the_file(path: str) -> None:
    """With the next heartbeat of a node."""
    clock = FakeClock()
    store = open_sqlite(path, clock)
    await store.put("bans", "a", "1", seconds(60))
    await store.put("bans", "b", "2")
    clock.advance(61)
    await store.alive(NODE)
    await store.close()
    with closing(connect(path)) as db:
        assert db.execute("SELECT key FROM facts WHERE namespace = 'note/bans'").fetchall() == [("b",)]
