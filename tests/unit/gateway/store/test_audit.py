"""Audit in a SQLite file: changes of the file are found, and a row that cannot be written lets nothing start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.steps import StepState
from gateway.domain.turns import TurnState
from gateway.domain.waits import StartOutcome, WaitState
from gateway.errors import StoreError
from gateway.policy.audit import Why, verify
from gateway.store.codec import EPOCH
from gateway.store.sqlite import open_sqlite
from tests.contract.scene import Scene
from tests.support.clock import FakeClock

CALLS = 5


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "dragoman.db")


def change(path: str, *statements: str) -> None:
    """Change rows as a person with write access to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


async def ran(path: str) -> None:
    """A store in which five calls were started, closed again."""
    scene = Scene(open_sqlite(path, FakeClock()), FakeClock())
    lease = await scene.planned(CALLS)
    for n in range(1, CALLS + 1):
        assert await scene.start(lease, n) is StartOutcome.STARTED
    await scene.finish(lease)
    await scene.store.close()


@pytest.mark.parametrize(
    ("statements", "why", "says"),
    [
        (["UPDATE audit SET tool = 'file_read' WHERE seq = 2"], Why.CHANGED, "row 2"),
        (["UPDATE audit SET at = at + 1 WHERE seq = 2"], Why.CHANGED, "row 2"),
        (["UPDATE audit SET decided_by = 'telegram:1001' WHERE seq = 5"], Why.CHANGED, "row 5"),
        (["DELETE FROM audit WHERE seq = 3"], Why.REMOVED, "row 3 is missing"),
        (["DELETE FROM audit WHERE seq > 3"], Why.NOT_WRITTEN, "step 4"),
        (["DELETE FROM audit WHERE seq = 5"], Why.NOT_WRITTEN, "step 5"),
        (["DELETE FROM audit"], Why.NOT_WRITTEN, "step 1"),
        (["UPDATE steps SET audit = NULL WHERE n = 4"], Why.NOT_WRITTEN, "step 4"),
        (["UPDATE steps SET audit = 1 WHERE n = 4"], Why.ANOTHER_CALL, "row 1"),
        (
            [
                "UPDATE audit SET seq = 9 WHERE seq = 2",
                "UPDATE audit SET seq = 2 WHERE seq = 3",
                "UPDATE audit SET seq = 3 WHERE seq = 9",
            ],
            Why.CHANGED,
            "row 2",
        ),
        (["UPDATE meta SET audit_since = audit_since + 1"], Why.MOVED, "row 1"),
    ],
    ids=str,
)
async def test_tampering_with_the_audit_is_found(path: str, statements: list[str], why: Why, says: str) -> None:
    await ran(path)
    change(path, *statements)
    store = open_sqlite(path, FakeClock())
    found = (await verify(store)).broken
    assert found is not None
    assert found.why is why
    assert says in found.says
    await store.close()


@pytest.mark.parametrize("harm", ["because = 'somebody said so'", "lane = ''", "at = 'noon'", "at = 1 << 62"])
async def test_a_row_that_cannot_be_read_is_named(path: str, harm: str) -> None:
    await ran(path)
    change(path, f"UPDATE audit SET {harm} WHERE seq = 4")
    store = open_sqlite(path, FakeClock())
    with pytest.raises(StoreError, match=r"Row 4 of the audit cannot be read: it is not what was written. .*RUNBOOK"):
        await verify(store)
    await store.close()


async def test_call_without_its_audit_row_does_not_start(path: str) -> None:
    """Neither the step nor the use of its approval is stored: the same call can start later, once."""
    clock = FakeClock()
    scene = Scene(open_sqlite(path, clock), clock)
    asked = await scene.asked()
    await scene.press(asked.wait)
    change(path, "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'no room for it'); END")
    with pytest.raises(StoreError):
        await scene.start(asked.lease, 1, asked.wait)
    assert (await scene.step(asked.turn, 1)).state is StepState.ASKED
    assert await scene.wait_state(asked.wait) is WaitState.APPROVED
    assert await scene.state(asked.turn) is TurnState.RUNNING
    change(path, "DROP TRIGGER full")
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED
    assert await scene.wait_state(asked.wait) is WaitState.CONSUMED
    found = await verify(scene.store)
    assert (found.rows, found.calls, found.broken) == (1, 1, None)
    await scene.store.close()


async def test_audit_continues_after_the_store_was_closed(path: str) -> None:
    for _ in range(2):
        await ran(path)
    store = open_sqlite(path, FakeClock())
    found = await verify(store)
    assert (found.rows, found.calls, found.broken) == (2 * CALLS, 2 * CALLS, None)
    assert (await store.audit_head()).since == EPOCH
    await store.close()
