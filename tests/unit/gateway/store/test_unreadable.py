"""A turn of which something cannot be read any more: what became of its call is stored all the same."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gateway.store.sqlite import engine
from tests.contract.scene import Scene
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
async def test_a_result_is_stored_whatever_else_cannot_be_read(tmp_path: Path, breaks: str) -> None:
    path = tmp_path / "s.db"
    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
        with sqlite3.connect(path) as other:
            other.executescript(breaks)
        assert await store.finish_step(lease, 1, result("done")) is None
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)


async def test_a_result_is_stored_when_there_is_no_memory_to_read_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"

    def none_left(*_: object) -> None:
        raise MemoryError

    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
        monkeypatch.setattr(engine, "turn_view", none_left)
        async with asyncio.TaskGroup() as group:
            finished = group.create_task(store.finish_step(lease, 1, result("done")))
            group.create_task(store.note("room", "key", "of another chat"))
        assert finished.result() is None
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)
