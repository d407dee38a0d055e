"""`Queries` over a store with a damaged row: it hides no other. On each backend that can hold one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from gateway.domain.ids import SessionId, TurnId, mint
from gateway.domain.steps import Step
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.waits import Wait
from gateway.errors import RowDamaged
from gateway.ports import ControlEffect, Store
from gateway.store import open_store
from gateway.store.redis.connection import address_of
from gateway.store.redis.rows import KINDS
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import BOB, route

GROUP = SessionId("group:1")
_KEYS = {"session": "id", "wait": "id", "step": "turn || '/' || n", "turn": "id", "message": "'i' || ord"}


@dataclass(slots=True, kw_only=True)
class Shelf:
    """A store whose rows can be damaged while it is closed."""

    url: str
    clock: FakeClock
    store: Store

    async def damage(self, kind: str, key: str, column: str, value: str) -> None:
        """Write a value that no column of this name has. The store is opened again: it may keep rows."""
        await self.store.close()
        write = self._in_sqlite if self.url.startswith("sqlite") else self._in_redis
        write(kind, key, column, value)
        self.store = open_store(self.url, self.clock)

    async def columns(self, kind: str, key: str) -> str:
        """Everything that is stored of a row, as text. The store is opened again."""
        await self.store.close()
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite://"))) as other:
                found = str(other.execute(f"SELECT * FROM {kind}s WHERE {_KEYS[kind]} = ?", (key,)).fetchone())
        else:
            address, prefix = address_of(self.url)
            client: Any = cast("Any", redis.Redis).from_url(address)
            with client:
                found = str(client.get(f"{prefix}{kind}:{key}"))
        self.store = open_store(self.url, self.clock)
        return found

    def _in_sqlite(self, kind: str, key: str, column: str, value: str) -> None:
        statement = f"UPDATE {kind}s SET {column} = ? WHERE {_KEYS[kind]} = ?"
        with closing(sqlite3.connect(self.url.removeprefix("sqlite://"))) as other, other:
            assert other.execute(statement, (value, key)).rowcount == 1

    def _in_redis(self, kind: str, key: str, column: str, value: str) -> None:
        address, prefix = address_of(self.url)
        other: Any = cast("Any", redis.Redis).from_url(address)
        with other:
            stamp, _, text = other.get(f"{prefix}{kind}:{key}").decode().partition(" ")
            columns = json.loads(text)
            columns[KINDS[kind].columns.index(column)] = value
            other.set(f"{prefix}{kind}:{key}", f"{stamp} {json.dumps(columns)}")


@pytest.fixture(params=["sqlite", "redis"])
async def shelf(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Shelf]:
    url = f"sqlite://{tmp_path}/dragoman.db"
    if request.param == "redis":
        url = f"{request.getfixturevalue('redis_server').url}?prefix={mint('damage')}"
    found = Shelf(url=url, clock=clock, store=open_store(url, clock))
    yield found
    await found.store.close()


async def lists(store: Store) -> dict[str, list[str]]:
    """The keys of everything that is listed, by kind of row."""
    items = [row.item for row in (await store.older(MAIN, None, 100)).rows]
    return {
        "session": sorted(line.session.id for line in await store.sessions()),
        "wait": [wait.id for wait in await store.open_approvals()],
        "wait of a session": [item.id for item in items if isinstance(item, Wait)],
        "step": [f"{item.turn}/{item.n}" for item in items if isinstance(item, Step)],
    }


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("session", "kind", "none of ours"),
        ("session", "tools", "{"),
        ("wait", "approval", "no JSON"),
        ("wait", "approval", '{"risk": 7}'),
        ("wait", "payload", "["),
        ("step", "call", "no JSON"),
    ],
)
async def test_one_damaged_row_hides_no_list(
    shelf: Shelf, clock: FakeClock, kind: str, column: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(shelf.store, clock)
    await scene.asked(2)
    await scene.say(to=route(GROUP), who=BOB)
    before, counts = await lists(shelf.store), await shelf.store.counts()
    assert all(before.values())
    bad = GROUP if kind == "session" else before[kind][0]
    await shelf.damage(kind, bad, column, value)
    after = await lists(shelf.store)
    assert after == {name: [one for one in keys if one != bad] for name, keys in before.items()}
    assert await shelf.store.counts() == counts
    assert (await shelf.store.changes(MAIN, 0, 100)).more is False
    said = capsys.readouterr()
    assert "a row cannot be read" in said.out + said.err
    assert kind in said.out + said.err


async def test_damaged_approval_takes_no_place_of_a_limit(shelf: Shelf, clock: FakeClock) -> None:
    """The oldest one that can be read is the first: figures and pages ask for few."""
    asked = await Scene(shelf.store, clock).parked(3)
    await shelf.damage("wait", asked.waits[0], "approval", "no JSON")
    await shelf.damage("wait", asked.waits[1], "payload", "[")
    for limit in (1, 2, 200):
        assert [wait.id for wait in await shelf.store.open_approvals(limit)] == [asked.waits[2]], limit
    assert await shelf.store.open_approvals(0) == []


async def test_damaged_row_fails_no_request_beside_its_own(shelf: Shelf, clock: FakeClock) -> None:
    scene = Scene(shelf.store, clock)
    lease = await scene.planned()
    other = await scene.say(to=route(GROUP), who=BOB)
    await shelf.damage("step", f"{lease.turn}/0", "answer", "no JSON")
    with pytest.raises((RowDamaged, ValueError)):  # no `StoreError`, on which everybody tries again for ever
        await shelf.store.turn(lease.turn)
    await shelf.store.release(lease)
    claimed = {one.lease.turn: one.view for one in await shelf.store.claim(NODE, 2)}
    assert claimed.keys() == {lease.turn, other.turn}
    assert claimed[lease.turn] is None
    assert claimed[other.turn] is not None


@pytest.mark.parametrize(
    ("kind", "column"),
    [("step", "answer"), ("step", "call"), ("turn", "conversation"), ("message", "attachments"), ("wait", "payload")],
)
async def test_turn_with_a_damaged_row_can_fail(shelf: Shelf, clock: FakeClock, kind: str, column: str) -> None:
    """What was damaged stays as it is, and the session goes on."""
    scene = Scene(shelf.store, clock)
    asked = await scene.asked()
    view = await scene.view(asked.turn)
    keys = {"step": f"{asked.turn}/{0 if column == 'answer' else 1}", "turn": asked.turn}
    keys |= {"message": view.inputs[0].id, "wait": asked.wait}
    await shelf.damage(kind, keys[kind], column, "[none of ours")
    with pytest.raises((RowDamaged, ValueError)):
        await shelf.store.turn(asked.turn)
    assert await shelf.store.finish_turn(asked.lease, TurnState.FAILED, answer=None, given=[], slots=[], timers=[])
    assert "[none of ours" in await shelf.columns(kind, keys[kind])
    after = await Scene(shelf.store, clock).say("and now?")
    assert [one.lease.turn for one in await shelf.store.claim(NODE, 2, history=9)] == [after.turn]


@pytest.mark.parametrize(
    ("kind", "column"), [("step", "answer"), ("step", "call"), ("turn", "conversation"), ("message", "attachments")]
)
async def test_history_leaves_out_a_damaged_turn(shelf: Shelf, clock: FakeClock, kind: str, column: str) -> None:
    """The session goes on with what can be read, and the log names the other."""
    scene = Scene(shelf.store, clock)
    ended: list[TurnId] = []
    for _ in range(3):
        lease = await scene.started()
        await scene.came(lease, 1, ToolResult(status=ResultStatus.OK, text="done"))
        await scene.finish(lease)
        ended.append(lease.turn)
    keys = {"step": f"{ended[1]}/{0 if column == 'answer' else 1}", "turn": ended[1]}
    keys["message"] = (await scene.view(ended[1])).inputs[0].id
    await shelf.damage(kind, keys[kind], column, "[none of ours")
    kept = [ended[0], ended[2]]
    for oldest in (False, True):
        assert [view.turn.id for view in await shelf.store.history(MAIN, 0, 9, oldest=oldest)] == kept
    after = await Scene(shelf.store, clock).say("and now?")
    (claimed,) = await shelf.store.claim(NODE, 2, history=9)
    assert claimed.view is not None
    assert claimed.view.turn.id == after.turn
    assert [view.turn.id for view in claimed.history or ()] == kept


@pytest.mark.parametrize("how", ["stop", "new", "lapse"])
async def test_turn_with_a_damaged_row_is_stopped(shelf: Shelf, clock: FakeClock, how: str) -> None:
    lease = await Scene(shelf.store, clock).planned()
    await shelf.damage("step", f"{lease.turn}/0", "answer", "no JSON")
    scene = Scene(shelf.store, clock)
    if how == "lapse":
        await scene.lapse()
        (again,) = await shelf.store.claim(NODE, 2)
        assert (again.lease.turn, again.view) == (lease.turn, None)
    assert await scene.stop(ControlEffect.RESET if how == "new" else ControlEffect.STOP) == 1
    clock.advance(600)
    await shelf.store.reclaim()
    counts = await shelf.store.counts()
    assert (counts.queued_turns, counts.running_turns, counts.parked_turns) == (0, 0, 0)
