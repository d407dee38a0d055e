"""A turn with an unreadable row: the result of its call is stored all the same."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.domain.turns import TurnState
from gateway.store.kernel import turns
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import result
from tests.unit.gateway.store.opened import opened


@pytest.mark.parametrize(
    "breaks",
    [
        "ALTER TABLE messages RENAME TO gone",
        "UPDATE steps SET answer = 'no JSON' WHERE n = 0",
        "UPDATE turns SET created_at = 9000000000000000000",
        "UPDATE turns SET conversation = replace(hex(zeroblob(50000)), '00', '[')",
        "UPDATE messages SET text = cast(x'ff' AS text)",
        "PRAGMA foreign_keys = OFF; DELETE FROM sessions",
    ],
)
async def test_result_is_stored_whatever_breaks_beside_it(tmp_path: Path, breaks: str) -> None:
    """The turn's rows were read before."""
    path = tmp_path / "s.db"
    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
        with closing(sqlite3.connect(path)) as other, other:
            other.executescript(breaks)
        await store.finish_step(lease, 1, result("done"))
        with closing(sqlite3.connect(path)) as other, other:
            assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)


@pytest.mark.parametrize(
    "breaks",
    [
        "UPDATE steps SET answer = 'no JSON' WHERE n = 0",
        "UPDATE steps SET call = 'no JSON' WHERE n = 1",
        "UPDATE messages SET attachments = '{'",
        "UPDATE turns SET created_at = 9000000000000000000",
        "UPDATE turns SET conversation = replace(hex(zeroblob(50000)), '00', '[')",
    ],
)
async def test_result_is_stored_when_the_rest_is_damaged(tmp_path: Path, breaks: str) -> None:
    """After a restart: the damaged row is read for the first time. What was damaged stays as it is."""
    path = tmp_path / "s.db"
    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
    with closing(sqlite3.connect(path)) as other, other:
        other.executescript(breaks)
    async with opened(str(path)) as store:
        assert await store.finish_step(lease, 1, result("done")) is None
        await store.release(lease)
        (claimed,) = await store.claim(lease.node)
        assert claimed.view is None
        assert await store.finish_turn(claimed.lease, TurnState.FAILED, answer=None, given=[], slots=[], timers=[])
    with closing(sqlite3.connect(path)) as other, other:
        assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)
        assert other.execute("SELECT state FROM turns").fetchone() == ("failed",)


@pytest.mark.parametrize("breaks", ["approval = 'no JSON'", "payload = '['"])
async def test_an_unreadable_wait_ends_with_its_turn(tmp_path: Path, breaks: str) -> None:
    """After a restart it expires at its time, and its turn fails. What was damaged stays as it is."""
    path = tmp_path / "s.db"
    async with opened(str(path)) as store:
        asked = await Scene(store, FakeClock()).parked(2, ttl_s=60)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE waits SET {breaks} WHERE id = ?", (asked.wait,))
        was = other.execute("SELECT approval, payload FROM waits ORDER BY ord").fetchall()
    clock = FakeClock()
    clock.advance(60)
    async with opened(str(path), clock) as store:
        assert await store.expire_waits() == 2
        (claimed,) = await store.claim(NODE)
        assert claimed.view is None
        assert await store.finish_turn(claimed.lease, TurnState.FAILED, answer=None, given=[], slots=[], timers=[])
    with closing(sqlite3.connect(path)) as other, other:
        assert other.execute("SELECT state FROM waits").fetchall() == [("expired",)] * 2
        assert other.execute("SELECT approval, payload FROM waits ORDER BY ord").fetchall() == was


async def test_result_is_stored_without_memory_to_read_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"

    def none_left(*_: object) -> None:
        raise MemoryError

    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
        monkeypatch.setattr(turns, "view_of", none_left)
        async with asyncio.TaskGroup() as group:
            finished = group.create_task(store.finish_step(lease, 1, result("done")))
            group.create_task(store.put("namespace", "key", "of another chat"))
        assert finished.result() is None
        with closing(sqlite3.connect(path)) as other, other:
            assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)
