"""Stores of an earlier version: they open with all their rows and go on, and so do copies of them.

`older_store.json` has the rows of a turn that waits for an approval, as the version with schema 1 wrote them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.domain.ids import SessionId, TurnId, WaitId, mint
from gateway.domain.nodes import NodeEntry
from gateway.domain.turns import TurnState
from gateway.domain.waits import PressResult, StartOutcome
from gateway.errors import StoreError
from gateway.store import open_store
from gateway.store.copying import migrate as copy
from gateway.store.redis.checks import SCHEMA
from gateway.store.sqlite.opening import connect, migrate
from gateway.store.sqlite.resting import resting_session
from gateway.store.sqlite.statements import load_migrations, load_statements
from gateway.system.clock import SystemClock
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import route
from tests.support.redis_server import RedisServer

OLDER: dict[str, Any] = json.loads(Path(__file__).with_name("older_store.json").read_text(encoding="utf-8"))
TURN, WAIT = TurnId("t0000000000000001"), WaitId("w0000000000000001")


def on_redis(server: RedisServer) -> str:
    """Write the older rows to a prefix of their own; return the URL."""
    name = mint("older")
    client: Any = redis.Redis(port=server.port)
    with client:
        client.hset(f"{{{name}}}:meta", mapping=OLDER["redis"]["meta"])
        for key, value in OLDER["redis"]["rows"].items():
            if isinstance(value, str):
                client.set(f"{{{name}}}:{key}", value)
            else:
                client.zadd(f"{{{name}}}:{key}", value)
    return f"{server.url}?prefix={name}"


def on_disk(path: Path) -> str:
    """Write the older rows to a file of the first schema; return the URL."""
    with closing(connect(str(path))) as db:
        migrate(db, load_statements(), load_migrations()[:1])
        for table, rows in OLDER["sqlite"].items():
            places = ", ".join("?" * len(rows[0]))
            db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)
    return f"sqlite://{path}"


@pytest.fixture(params=["sqlite", "redis"])
def older(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> str:
    return on_redis(redis_server) if request.param == "redis" else on_disk(tmp_path / "older.db")


async def goes_on(url: str, clock: FakeClock) -> None:
    """Press the button that was shown before, run the call where nobody was before, and begin another session."""
    store = open_store(url, clock)
    scene = Scene(store, clock)
    assert (await scene.press(WAIT)).result is PressResult.APPROVED
    (lease,) = [one.lease for one in await store.claim(NODE, home="elsewhere")]
    assert lease.turn == TURN
    assert await scene.start(lease, 1, WAIT) is StartOutcome.STARTED
    assert await scene.finish(lease)
    assert await scene.state(TURN) is TurnState.DONE
    await scene.say("another", to=route(SessionId("chat:later")))
    assert (await store.counts()).queued_turns == 1
    await store.close()


async def test_an_older_store_goes_on(older: str, clock: FakeClock) -> None:
    await goes_on(older, clock)


async def test_a_copy_of_an_older_store_goes_on(
    older: str, clock: FakeClock, redis_server: RedisServer, tmp_path: Path
) -> None:
    moved = f"sqlite://{tmp_path}/moved.db" if older.startswith("redis") else f"{redis_server.url}?prefix={mint('to')}"
    await asyncio.to_thread(copy, older, moved, clock.now())
    await goes_on(moved, clock)


async def test_a_file_between_two_schemas_is_refused(clock: FakeClock, tmp_path: Path) -> None:
    """A version between two releases had written the new columns under the old number."""
    path = tmp_path / "between.db"
    on_disk(path)
    with closing(connect(str(path))) as db:
        db.execute("ALTER TABLE turns ADD COLUMN home TEXT NOT NULL DEFAULT ''")
    with pytest.raises(StoreError, match="cannot be brought to this version") as refused:
        open_store(f"sqlite://{path}", clock)
    assert "dragoman migrate" in refused.value.cure


async def test_an_older_file_at_rest_is_refused(clock: FakeClock, tmp_path: Path) -> None:
    on_disk(tmp_path / "older.db")
    with pytest.raises(StoreError, match="has schema 1") as refused:
        resting_session(str(tmp_path / "older.db"), SessionId("main:ann"), clock)
    assert "Start the daemon" in refused.value.cure


async def test_older_nodes_are_stopped_first(redis_server: RedisServer) -> None:
    """They could not read what a newer one writes."""
    url = on_redis(redis_server)
    client: Any = redis.Redis(port=redis_server.port, decode_responses=True)
    meta = f"{{{url.rpartition('=')[2]}}}:meta"
    with client:
        running = open_store(url, SystemClock())
        await running.join(NodeEntry(node=NODE, key=None))
        client.hset(meta, "schema", 1)
        with pytest.raises(StoreError, match="The node here uses") as refused:
            open_store(url, SystemClock())
        assert "Stop all daemons" in refused.value.cure
        await running.resign(NODE)
        await running.close()
        await open_store(url, SystemClock()).close()
        assert client.hget(meta, "schema") == str(SCHEMA)
