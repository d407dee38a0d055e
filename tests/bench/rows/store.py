"""Row: transitions of the store per second, beside bare commits of one row on the same disk."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.domain.ids import NodeId, SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind, TurnState
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.bench.figures import Figure
from tests.bench.world import Bench
from tests.support.makers import answer, inbound, route, said

NODE = NodeId("bench#store")
SLICES = 4
"""Store and floor take turns this often, so that both meet the same disk."""
A_TURN = 3
"""Transitions: accept, claim, finish."""


async def commits(bench: Bench) -> list[Figure]:
    """Accept, claim and finish, durable: by one caller, and by 32 at once."""
    folder = bench.new_folder()
    store = open_store(f"sqlite://{folder}/dragoman.db", SystemClock())
    numbers = iter(range(1_000_000))
    few, many = max(bench.counts.commits // SLICES // A_TURN, 1), max(bench.counts.commits // A_TURN, 1)
    alone_s = together_s = bare_s = 0.0
    try:
        for _ in range(SLICES):
            bare_s += _bare(folder / "bare.db", few * A_TURN)
            alone_s += await take_turns(store, numbers, few, 1)
            together_s += await take_turns(store, numbers, many, 32)
    finally:
        await store.close()
    bare = few * A_TURN * SLICES / bare_s
    return [
        _figure("transitions in a second, one caller", few * A_TURN * SLICES / alone_s, bare),
        _figure("transitions in a second, 32 callers", many * A_TURN * SLICES / together_s, bare),
    ]


def _figure(what: str, value: float, bare: float) -> Figure:
    return Figure(what=what, value=value, unit="/s", floor=bare)


async def take_turns(store: Store, numbers: Iterator[int], count: int, callers: int) -> float:
    """Accept, claim and finish so many turns; return the seconds."""
    began = time.perf_counter()
    left = iter(range(count))
    async with asyncio.TaskGroup() as group:
        for caller in range(callers):
            group.create_task(_caller(store, numbers, left), name=f"caller {caller}")
    return time.perf_counter() - began


async def _caller(store: Store, numbers: Iterator[int], left: Iterator[int]) -> None:
    for _ in left:
        way = route(SessionId(f"chat:bench-{next(numbers)}"))
        accepted = await store.accept(
            way, inbound(direct=False), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
        )
        claimed = (await store.claim(NODE))[0]
        lease = claimed.lease
        # The turn that waits longest is claimed, which may be another caller's.
        given = claimed.view.inputs if claimed.view is not None and lease.turn == accepted.turn else ()
        state = TurnState.DONE if given else TurnState.STOPPED
        assert await store.finish_turn(lease, state, answer=answer(), given=given, slots=[said()], timers=[])


def _bare(path: Path, count: int) -> float:
    """Seconds for so many commits of one row of 600 bytes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = wal").fetchall()
        db.execute("PRAGMA synchronous = full").fetchall()
        db.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT)")
        began = time.perf_counter()
        for _ in range(count):
            db.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 600,))
        return time.perf_counter() - began
