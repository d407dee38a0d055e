"""Migrations: a store of an earlier version opens with all its rows; a kill on the way leaves the earlier version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.ids import InboundId, NodeId, TurnId
from gateway.domain.messages import FetchedFile, Received, Refused, RefusedReason
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import Slot
from gateway.domain.steps import Usage
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome
from gateway.errors import StoreTooNew
from gateway.policy.audit import verify
from gateway.store.sqlite import open_sqlite
from gateway.store.sqlite.opening import connect, migrate
from gateway.store.sqlite.statements import load_migrations, load_statements, split
from tests.support.clock import FakeClock
from tests.support.makers import EPOCH, answer, beginning, inbound, route, said
from tests.support.proof import figure

SQL = load_statements()
NODE = NodeId("here#1")
VERSION_1 = """
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES ('main:ann', 'main', 'direct', 'ann', 'Ann', 0, 'main', 0, 0);

INSERT INTO events (channel, account, event_key, outcome) VALUES ('telegram', 'default', 'e1', 'i1 t1');

INSERT INTO turns (
    ord, rev, id, session, epoch, kind, state, conversation, principal, created_at, head, queued_at, queued_rev
) VALUES (2, 2, 't1', 'main:ann', 0, 'model', 'queued', '["telegram","default","1001",""]', 'telegram:1001', 0, 1, 0,
    1);

INSERT INTO messages (
    ord, rev, id, session, turn, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at
) VALUES (3, 3, 'i1', 'main:ann', 't1', 0, 'e1', '["telegram","default","1001",""]', 'telegram:1001', 'Ann', 1, 1,
    'hello', 0);

INSERT INTO slots (
    ord, rev, id, conversation, channel, kept, session, turn, n, kind, text, waits, version, sent_version, platform_id,
    state, attempts, uncertain, due_at, created_at
) VALUES (4, 4, 'o1', '["telegram","default","1001",""]', 'telegram', 0, 'main:ann', NULL, NULL, 'reply', 'Wait.', '[]',
    1, 0, '', 'due', 0, 0, 0, 0);

UPDATE meta SET rev = 4;
"""
VERSION_2 = """
INSERT INTO turns (
    ord, rev, id, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, head,
    queued_at, queued_rev, ended_rev
) VALUES (6, 9, 't0', 'main:ann', 0, 'model', 'done', '["telegram","default","1001",""]', 'telegram:1001', 0, 0, 0, 0,
    0, 5, 9);

INSERT INTO steps (ord, rev, turn, n, session, kind, state, answer, ended_at) VALUES (7, 7, 't0', 0, 'main:ann',
    'model', 'finished', '{"text":"Once.","calls":[{"id":"c","tool":"shell","arguments":"{}"}],"model":"m",'
    || '"usage":{"input_tokens":5,"output_tokens":1,"cached_tokens":0},"opaque":{}}', 0);

INSERT INTO steps (ord, rev, turn, n, session, kind, state, call, result, ended_at) VALUES (8, 8, 't0', 1, 'main:ann',
    'tool', 'finished', '{"id":"c","tool":"shell","arguments":"{}"}',
    '{"status":"ok","text":"done","code":"","hint":"","exit_code":0,"duration_ms":1,"dropped_bytes":0,"full_output":""}',
    0);

INSERT INTO slots (
    ord, rev, id, conversation, channel, kept, session, turn, n, kind, text, waits, version, sent_version, platform_id,
    state, attempts, uncertain, due_at, created_at, early
) VALUES (10, 10, 'early', '["telegram","default","1001",""]', 'telegram', 0, 'main:ann', 't1', 0, 'answer', 'Onc',
    '[]', 1, 1, '7', 'sent', 0, 0, 0, 0, 1);

UPDATE meta SET rev = 10;
"""
VERSION_3 = """
UPDATE sessions SET summary = 'They said hello.', summary_rev = 3 WHERE id = 'main:ann';

INSERT INTO messages (
    ord, rev, id, session, turn, received_at, event_key, conversation, principal, name, direct, addressed, text,
    sent_at, unread
) VALUES (11, 11, 'i2', 'main:ann', 't1', 0, 'e2', '["telegram","default","1001",""]', 'telegram:1001', 'Ann', 1, 1,
    'look', 0, 'a photo');

UPDATE meta SET rev = 11;
"""

VERSION_4 = """
UPDATE steps SET started_at = 5000000 WHERE turn = 't0' AND n = 1;

UPDATE meta SET rev = 12;
"""

VERSION_5 = """
UPDATE meta SET rev = 13;
"""

LEFT = (VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "dragoman.db")


@pytest.fixture
def old(path: str) -> Iterator[sqlite3.Connection]:
    """A file of the first version with a message that waits."""
    with closing(connect(path)) as db:
        _fill(db, 1)
        yield db


def _fill(db: sqlite3.Connection, version: int) -> None:
    """Bring an empty file to this version, as that one left it."""
    for migration, left in zip(load_migrations()[:version], LEFT, strict=False):
        migrate(db, SQL, load_migrations()[: migration.number])
        for statement in split(left):
            db.execute(statement)


async def test_a_store_of_version_1_goes_on(path: str, old: sqlite3.Connection) -> None:
    old.close()
    store = open_sqlite(path, FakeClock())
    rows = (await store.older(route().session, None, 10)).rows
    slot = next(row.item for row in rows if isinstance(row.item, Slot))
    received = next(row.item for row in rows if isinstance(row.item, Received))
    assert (slot.text, slot.version) == ("Wait.", 1)
    message = received.message
    assert (message.text, message.quoted, message.reply_to, message.unread, message.cut) == ("hello", "", "", "", False)
    assert (received.context, received.continues, received.given) == (False, False, None)
    known = await store.accept(
        route(), inbound(key="e1"), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
    )
    assert (known.duplicate, known.turn) == (True, TurnId("t1"))
    lease = (await store.claim(NODE))[0].lease
    given = [InboundId("i1")]
    assert await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=given, slots=[], timers=[])
    await store.close()
    with closing(connect(path)) as db:
        assert db.execute(SQL["read_user_version"]).fetchone() == (len(load_migrations()),)


async def test_a_store_of_version_2_goes_on(path: str) -> None:
    """With its history, which had no prices and no pictures, and the beginning of an answer that is shown."""
    with closing(connect(path)) as db:
        _fill(db, 2)
    store = open_sqlite(path, FakeClock())
    session = await store.session(route().session)
    assert session is not None
    assert (session.lineage, session.summary, session.epoch) == (None, "", 0)
    (view,) = await store.history(route().session, 0, 10)
    first, second = view.steps
    assert first.answer is not None
    assert second.result is not None
    assert (first.answer.text, first.answer.note, first.answer.usage) == (
        "Once.",
        "",
        Usage(input_tokens=5, output_tokens=1),
    )
    assert (second.result.text, second.result.pictures) == ("done", ())
    assert await store.spent(EPOCH.date()) == []
    lease = (await store.claim(NODE))[0].lease
    given, slots = [InboundId("i1")], [said("Once upon a time.")]
    assert await store.finish_turn(lease, TurnState.DONE, answer=None, given=given, slots=slots, timers=[])
    rows = (await store.older(route().session, None, 10)).rows
    assert [row.item.text for row in rows if isinstance(row.item, Slot)] == ["Wait.", "Once upon a time."]
    assert await store.compact(route().session, 0, TurnId("t0"), "They said hello.", None)
    assert [one.turn.id for one in await store.history(route().session, 0, 10)] == ["t1"]
    await store.close()


async def test_a_store_of_version_3_goes_on(path: str) -> None:
    """Its messages came with nothing that could be read, and its slots show no files; from now on both can."""
    with closing(connect(path)) as db:
        _fill(db, 3)
    store = open_sqlite(path, FakeClock())
    (claimed,) = await store.claim(NODE)
    assert claimed.view is not None
    assert [(one.message.unread, one.message.attachments, one.files) for one in claimed.view.inputs] == [
        ("", (), None),
        ("a photo", (), None),
    ]
    rows = (await store.older(route().session, None, 10)).rows
    assert [row.item.file for row in rows if isinstance(row.item, Slot)] == [None, None]
    found = FetchedFile(path="inbox/i2-1.png", size=3, media_type="image/png")
    await store.brought(claimed.lease, InboundId("i2"), [found])
    assert [one.files for one in (await store.turn(claimed.lease.turn)).inputs] == [None, (found,)]
    await store.close()


async def test_a_store_of_version_4_goes_on(path: str) -> None:
    """Its calls started before there was an audit, and need no row; whatever starts from now on does."""
    with closing(connect(path)) as db:
        _fill(db, 4)
    store = open_sqlite(path, FakeClock())
    (call,) = await store.started_calls(0, 10)
    assert (call.turn, call.n, call.row) == ("t0", 1, None)
    assert (await store.audit_head()).since == call.started_at
    found = await verify(store)
    assert (found.rows, found.calls, found.broken) == (0, 0, None)
    lease = (await store.claim(NODE))[0].lease
    await store.plan(lease, answer(calls=1), given=[], slots=[])
    assert await store.start_step(lease, 1, None, beginning(1)) is StartOutcome.STARTED
    found = await verify(store)
    assert (found.rows, found.calls, found.broken) == (1, 1, None)
    await store.close()


async def test_a_store_of_version_5_goes_on(path: str) -> None:
    """An edit of the beginning that it shows may still be made: what comes over it is shown twice."""
    with closing(connect(path)) as db:
        _fill(db, 5)
    clock = FakeClock()
    store = open_sqlite(path, clock)
    lease = (await store.claim(NODE))[0].lease
    assert await store.finish_turn(lease, TurnState.FAILED, answer=None, given=[], slots=[], timers=[])
    while due := await store.claim_slots(NODE, ["telegram"], 10):
        for slot in due:
            await store.slot_sent(slot.id, slot.version, slot.platform_id or "m")
    clock.advance(61)
    assert await store.fire_timers() == 1
    (again,) = await store.claim_slots(NODE, ["telegram"], 10)
    assert (again.id, again.version, again.stands) == ("early", 3, True)
    await store.close()


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_failure_at_any_statement_leaves_the_earlier_version(path: str, version: int) -> None:
    with closing(connect(path)) as old:
        _fill(old, version)
        _fail_everywhere(old, version)


def _fail_everywhere(old: sqlite3.Connection, version: int) -> None:
    schema = old.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    statements = [*load_migrations()[version].statements, SQL["commit"]]
    assert len(statements) > 4
    for last in range(len(statements)):
        left = iter(range(last))

        def before(_: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            migrate(old, SQL, load_migrations(), before)
        assert old.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall() == schema
        assert old.execute(SQL["read_user_version"]).fetchone() == (version,)
    migrate(old, SQL, load_migrations())
    assert old.execute(SQL["read_user_version"]).fetchone() == (len(load_migrations()),)
    assert old.execute("SELECT text FROM messages ORDER BY ord").fetchone() == ("hello",)
    figure("F28", "stores left between two versions", 0, 0, of=len(statements))


def test_an_older_daemon_refuses_it(path: str, old: sqlite3.Connection) -> None:
    old.execute(f"PRAGMA user_version = {len(load_migrations()) + 1}")
    old.close()
    with pytest.raises(StoreTooNew):
        open_sqlite(path, FakeClock())


async def test_what_could_not_be_read_is_kept_as_it_came_up_to_64_kib(path: str) -> None:
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


async def test_notes_that_expired_leave_the_file(path: str) -> None:
    clock = FakeClock()
    store = open_sqlite(path, clock)
    await store.put("bans", "a", "1", EPOCH - EPOCH)
    await store.put("bans", "b", "2")
    await store.close()
    with closing(connect(path)) as db:
        assert db.execute("SELECT key FROM notes").fetchall() == [("b",)]
