"""A turn of which something cannot be read any more: what became of its call is stored all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.contract.scene import Scene
from tests.support.clock import FakeClock
from tests.support.makers import result
from tests.unit.gateway.store.opened import opened


@pytest.mark.parametrize(
    "breaks", ["ALTER TABLE messages RENAME TO gone", "UPDATE steps SET answer = 'no JSON' WHERE n = 0"]
)
async def test_a_result_is_stored_whatever_else_cannot_be_read(tmp_path: Path, breaks: str) -> None:
    path = tmp_path / "s.db"
    async with opened(str(path)) as store:
        lease = await Scene(store, FakeClock()).planned()
        with sqlite3.connect(path) as other:
            other.execute(breaks)
        assert await store.finish_step(lease, 1, result("done")) is None
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT state FROM steps WHERE n = 1").fetchone() == ("finished",)
