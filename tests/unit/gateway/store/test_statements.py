"""SQL of the SQLite store: every statement is used and can be prepared, and none scans long-ended rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.ids import NodeId, SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import COMMANDS_AT_ONCE, TurnKind, TurnState
from gateway.store import sqlite
from gateway.store.sqlite import SqliteStore, open_sqlite
from gateway.store.sqlite.opening import APPLICATION_ID, connect, migrate
from gateway.store.sqlite.statements import FOLDER, load_migrations, load_statements, split
from gateway.store.sqlite.tx import Tx
from tests.support.clock import FakeClock
from tests.support.makers import answer, inbound, route, said

SQL = load_statements()
NODE = NodeId("here#1")
GROWING = "turns|messages|steps|waits|slots|events|cards|facts|poison|grants"
PARTIAL = (
    "turns_(lane|active|gathering|homed)|waits_(asked|questions|due|timers|approved|open)|"
    "grants_live|slots_(due|unsent|dead)"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(str(tmp_path / "plans.db"))) as connection:
        migrate(connection, SQL, load_migrations())
        yield connection


def test_every_statement_is_used_and_every_name_exists() -> None:
    folder = Path(str(sqlite.__file__)).parent
    code = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    used = set(re.findall(r'"([a-z_]+)"', code)) | {f"read_{name}" for name in re.findall(r'"([a-z_]+)":', code)}
    assert {*SQL, *load_statements(FOLDER / "copying")} <= used
    called = set(re.findall(r'(?:\.run|\.one|\.count)\(\s*"(\w+)"', code)) | set(re.findall(r'sql\["(\w+)"\]', code))
    assert called <= {*SQL, *load_statements(FOLDER / "copying")}


def test_the_migrations_stamp_the_file(db: sqlite3.Connection) -> None:
    migrations = load_migrations()
    assert db.execute(SQL["read_user_version"]).fetchone() == (len(migrations),)
    assert db.execute(SQL["read_application_id"]).fetchone() == (APPLICATION_ID,)
    for migration in migrations:
        assert f"PRAGMA user_version = {migration.number};" in migration.statements


@pytest.mark.parametrize(
    "name", sorted(name for name in SQL if not SQL[name].startswith(("PRAGMA", "ROLLBACK TO", "RELEASE")))
)
def test_a_statement_reads_only_what_it_is_about(db: sqlite3.Connection, name: str) -> None:
    numbered = [int(n) for n in re.findall(r"\?(\d+)", SQL[name])]
    parameters = max(numbered) if numbered else SQL[name].count("?")
    plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", (None,) * parameters)]
    # One letter is a table's alias; a longer name that is no table is a subquery with a plan of its own.
    scans = [line for line in plan if re.match(rf"SCAN ({GROWING}|[a-z])\b", line)]
    assert not [line for line in scans if not re.search(PARTIAL, line)], plan


def test_a_claim_goes_by_the_index_of_the_queue(db: sqlite3.Connection) -> None:
    """It is asked for with every turn: in the order of the queue, without sorting it, whatever is held back."""
    plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {SQL['ready_turns']}", (None,) * 4)]
    assert "SEARCH t USING INDEX turns_active (state=? AND head=?)" in plan
    assert [line for line in plan if "TEMP B-TREE" in line] == ["USE TEMP B-TREE FOR GROUP BY"]  # of held commands


def test_lists_of_sessions_go_by_their_indexes(db: sqlite3.Connection) -> None:
    """Each open page asks for them whenever something changes."""
    plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {SQL['session_lines']}", (200, 50, "main:ann"))]
    assert not [line for line in plan if "TEMP B-TREE" in line]
    scans = sorted(line for line in plan if line.startswith("SCAN sessions"))
    assert scans == [f"SCAN sessions USING INDEX sessions_{name}" for name in ("past", "roots")]


def test_a_script_is_split_into_its_statements() -> None:
    script = (
        "-- first; not yet\nCREATE TABLE a (\n b -- ;\n);\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n SELECT 1;\nEND;\n"
    )
    assert [one.split()[-1] for one in split(script)] == [");", "END;"]
    with pytest.raises(ValueError, match="no end"):
        list(split("SELECT 1;\nSELECT 2\n"))


# --- a full store ---------------------------------------------------------------------------

ENDED, PARKED = 20_000, 2_000
FILL = """
CREATE TEMP TABLE numbers AS
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 22000)
SELECT i, i * 10 + 1000000 AS ord, i > 20000 AS parked, iif(i > 20000, 'p' || i, 's' || (i % 1000)) AS session,
    't' || i AS turn
FROM n;

INSERT INTO sessions (
    id, kind, origin, title, epoch, root_kind, created_at, active_at, preset, preset_before, presets_above, tools_off,
    summary, context, summary_rev, live, homes
)
SELECT DISTINCT session, 'dm', 'direct', '', 0, 'dm', 0, 0, '', '', '[]', '[]', '', '[]', 0, 0, '[]' FROM numbers;

INSERT INTO turns (
    ord, rev, id, session, epoch, kind, state, conversation, principal, created_at, head, queued_at, queued_rev,
    ended_rev, active_ms, fence, given_n, hops, home
)
SELECT ord, ord + 7, turn, session, 0, 'model', iif(parked, 'parked', 'done'), '["","","",""]', '', 0, parked, 0, ord,
    iif(parked, NULL, ord + 7), 0, 1, 0, 0, ''
FROM numbers;

-- Behind every parked turn one waits that may not run yet.
INSERT INTO turns (
    ord, rev, id, session, epoch, kind, state, conversation, principal, created_at, head, queued_at, queued_rev,
    active_ms, fence, given_n, hops, home
)
SELECT ord + 9, ord + 9, 'q' || i, session, 0, 'model', 'queued', '["","","",""]', '', 0, 0, 0, ord + 8, 0, 0, 0, 0, ''
FROM numbers WHERE parked;

INSERT INTO messages (
    ord, rev, id, session, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text,
    sent_at, quoted, reply_to, unread, cut, context, continues
)
SELECT ord + 1, ord + 2, 'i' || (ord + 1), session, turn, 0, 0, i, '["","","",""]', '', '', 1, 1, 'hello', 0, '', '',
    '', 0, 0, 0
FROM numbers;

INSERT INTO events (channel, account, event_key, outcome) SELECT 'x', 'x', i, 'i' || i FROM numbers;

INSERT INTO steps (ord, rev, turn, n, session, kind, state, answer_n, asked_anew, fence)
SELECT ord + 3, ord + 4, turn, 0, session, 'tool', iif(parked, 'asked', 'finished'), 0, 0, 0 FROM numbers;

INSERT INTO waits (ord, rev, id, kind, session, turn, n, state, payload, opened_at, expires_at, reason)
SELECT ord + 5, ord + 5, 'w' || i, 'approval', session, turn, 0, 'open', '{}', 0, 1 << 60, '' FROM numbers WHERE parked;

INSERT INTO slots (
    seq, ord, rev, id, conversation, channel, kept, session, turn, kind, text, waits, version, sent_version,
    platform_id, state, attempts, uncertain, due_at, created_at, once_more, fence, early, why_dead
)
SELECT ord + 6, ord + 6, ord + 7, 'o' || i, '[' || i || ']', 'telegram', 0, session, turn, 'answer', '', '[]', 1, 1,
    '7', 'sent', 0, 0, 0, 0, 0, 0, 0, ''
FROM numbers;

UPDATE meta SET rev = 2000000;
"""


class Counted:
    """A store whose virtual machine's steps are counted: the same on every computer, unlike time."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.steps: dict[str, int] = {}
        self.ticks = 0

    def tick(self) -> int:
        self.ticks += 1
        return 0

    async def life(self, key: str) -> dict[str, int]:
        """The leanest turn and the sweeps, and the steps of each."""
        store, steps = self.store, dict[str, int]()

        def count(name: str) -> None:
            steps[name], self.ticks = self.ticks, 0

        session = SessionId(f"dm:{key}")
        self.ticks = 0
        await store.accept(
            route(session), inbound(key=key), TurnKind.MODEL, running=WhileRunning.STEER, say_if_waiting=None
        )
        count("accept")
        (claimed,) = await store.claim(NODE)
        count("claim")
        lease = claimed.lease
        await store.renew(lease)
        count("renew")
        given, slots = () if claimed.view is None else claimed.view.inputs, [said()]
        await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=given, slots=slots, timers=[])
        count("finish")
        (slot,) = await store.claim_slots(NODE, ["telegram"], 10)
        count("claim_slots")
        await store.slot_sent(slot, ("1",))
        count("sent")
        await store.claim(NODE)
        count("claim nothing")
        await store.expire_waits()
        count("expire")
        await store.reclaim()
        count("reclaim")
        await store.fire_timers()
        count("timers")
        return steps


async def test_ten_times_the_rows_are_no_more_work(tmp_path: Path) -> None:
    store = open_sqlite(str(tmp_path / "full.db"), FakeClock())
    counted = Counted(store)

    def count(tx: Tx) -> None:
        tx.db.set_progress_handler(counted.tick, 1)

    def fill(tx: Tx) -> None:
        tx.db.set_progress_handler(None, 1)
        for statement in split(FILL):
            tx.db.execute(statement)

    await store.writer.submit(count)
    await counted.life("first")
    empty = await counted.life("second")
    await store.writer.submit(fill)
    await store.close()
    store = counted.store = open_sqlite(str(tmp_path / "full.db"), FakeClock())
    await store.writer.submit(count)
    await counted.life("third")
    full = await counted.life("fourth")
    counts = await store.counts()
    await store.close()
    assert (counts.parked_turns, counts.open_approvals) == (PARKED, PARKED)
    assert all(steps > 5 for steps in empty.values()), empty
    assert {name: full[name] for name in empty if full[name] > empty[name] * 1.2 + 20} == {}, (empty, full)


async def test_queued_commands_of_one_session_are_looked_at_once_each(tmp_path: Path) -> None:
    """Four of them run at once. Whoever writes hundreds holds up nobody's claim with the others."""
    store = open_sqlite(str(tmp_path / "commands.db"), FakeClock())
    counted, steps, queued = Counted(store), dict[int, int](), 0
    await store.writer.submit(lambda tx: tx.db.set_progress_handler(counted.tick, 1))
    for queue in (100, 400):
        while queued < queue + COMMANDS_AT_ONCE:
            queued += 1
            message = inbound(key=str(queued))
            await store.accept(route(), message, TurnKind.COMMAND, running=WhileRunning.QUEUE, say_if_waiting=None)
        await store.claim(NODE, COMMANDS_AT_ONCE)
        before = counted.ticks
        assert await store.claim(NODE) == []
        steps[queue] = counted.ticks - before
    await store.close()
    assert steps[400] < 4.5 * steps[100]
    assert steps[400] < 30 * 400
