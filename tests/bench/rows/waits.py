"""Row on Telegram's wire: a store full of waiting approvals against an empty one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from gateway.domain.ids import NodeId, SessionId, WaitId, mint
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.telegram import run_telegram_daemon
from tests.bench.world import Bench, interleaved
from tests.support.makers import PAGE, answer, card, inbound, new_wait, route

SEEDERS = 64
SWEEPS = 20
CALM_S = 1.5
NODE = NodeId("bench#seed")
MS = 1000


async def waits(bench: Bench) -> list[Figure]:
    """Memory, sweeps and a person's turn, with and without them; two daemons side by side."""
    counts = bench.counts
    full, empty = bench.new_folder(), bench.new_folder()
    full_sweep, empty_sweep = await _seed(full, counts.waits), await _seed(empty, 0)
    async with run_telegram_daemon(bench, folder=full) as crowded, run_telegram_daemon(bench, folder=empty) as alone:
        await interleaved([crowded, alone], counts.warm)
        with_them, without = await interleaved([crowded, alone], counts.turns // 2)
        await asyncio.sleep(CALM_S)
        memory, bare_memory = measure.pss_mb(crowded.pid), measure.pss_mb(alone.pid)
    what = f"{counts.waits:,} waiting approvals"
    turn, bare_turn = measure.p50(with_them) * MS, measure.p50(without) * MS
    return [
        Figure(what=f"{what}, memory", value=memory, unit="MB", floor=bare_memory, budget=bare_memory + 2),
        Figure(
            what=f"{what}, a round of sweeps, p50",
            value=full_sweep,
            unit="ms",
            floor=empty_sweep,
            budget=empty_sweep * 1.5 + 0.5,
        ),
        Figure(what=f"{what}, operator turn, p50", value=turn, unit="ms", floor=bare_turn, budget=bare_turn * 1.5),
    ]


async def _seed(folder: Path, count: int) -> float:
    """Make the store with so many parked turns; return the milliseconds of one round of sweeps."""
    store = open_store(f"sqlite://{folder}/state/dragoman.db", SystemClock())
    numbers = iter(range(count))
    try:
        async with asyncio.TaskGroup() as group:
            for one in range(SEEDERS):
                group.create_task(_ask_and_park(store, numbers), name=f"seeder {one}")
        return measure.p50([await _sweep(store) for _ in range(SWEEPS)]) * MS
    finally:
        await store.close()


async def _ask_and_park(store: Store, numbers: Iterator[int]) -> None:
    ttl = timedelta(hours=1)
    for number in numbers:
        way = route(SessionId(f"chat:bench-{number}"))
        await store.accept(way, inbound(direct=False), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        lease = (await store.claim(NODE))[0].lease
        view = await store.turn(lease.turn)
        given = view.inputs
        await store.plan(lease, answer(calls=1), given=given, slots=[])
        wait = new_wait(1, expires_in=ttl, id=WaitId(mint("w")))
        # The page shows what is open without a send, so that the first life has nothing to deliver.
        assert await store.open_waits(lease, [wait], [card(wait.id, where=PAGE)])
        assert await store.park(lease)


async def _sweep(store: Store) -> float:
    began = time.perf_counter()
    for sweep in (store.expire_waits, store.reclaim, store.fire_timers):
        await sweep()
    return time.perf_counter() - began
