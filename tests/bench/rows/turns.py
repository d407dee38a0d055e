"""Rows: one user's turns, one after the other, each next to the same exchange with the floor."""

from __future__ import annotations

import asyncio
import time

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import ANSWER, SETTLE_S, Bench, Counts, Life, interleaved

MS = 1000
BARE = ("/bin/bash", "--noprofile", "--norc", "-c", "true")
QUIET_S = 0.03
"""Seconds after which a turn has written all that it writes."""


async def operator(bench: Bench) -> list[Figure]:
    """A turn without a model, and how many commits it is."""
    async with bench.run_daemon() as daemon, bench.run_floor() as floor:
        figures = await compared("operator turn", bench.counts, daemon, floor)
        figures.append(await _commits(daemon, max(bench.counts.turns // 5, 3)))
        return figures


async def model(bench: Bench) -> list[Figure]:
    """A turn with a model of 0 ms that answers in 8 chunks."""
    async with bench.run_daemon(model=True) as daemon, bench.run_floor(model=True) as floor:
        return await compared("model turn", bench.counts, daemon, floor, times=6)


async def compared(name: str, counts: Counts, daemon: Life, floor: Life, times: float | None = None) -> list[Figure]:
    """One person's turns with both, in the same moments: how long they take, and what they cost."""
    await interleaved([daemon, floor], counts.warm)
    before = measure.cpu_s(daemon.pid), measure.cpu_s(floor.pid)
    ours, bare = await interleaved([daemon, floor], counts.turns)
    await asyncio.sleep(QUIET_S)
    cpu, bare_cpu = measure.cpu_s(daemon.pid) - before[0], measure.cpu_s(floor.pid) - before[1]
    each_ms = MS / counts.turns
    return [
        Figure(
            what=f"{name}, p50",
            value=measure.p50(ours) * MS,
            unit="ms",
            floor=measure.p50(bare) * MS,
            budget=10,
            times=times,
        ),
        Figure(
            what=f"{name}, p95",
            value=measure.p95(ours) * MS,
            unit="ms",
            floor=measure.p95(bare) * MS,
            budget=20,
            times=times,
        ),
        Figure(
            what=f"{name}, CPU of the process",
            value=cpu * each_ms,
            unit="ms",
            floor=bare_cpu * each_ms,
            budget=4.5,
        ),
    ]


async def _commits(daemon: Life, count: int) -> Figure:
    """Count what the leanest turn commits: each alone, so that nothing is committed together with another one."""
    found: list[float] = []
    for _ in range(count):
        before = measure.commits(daemon.database)
        await daemon.exchange()
        await asyncio.sleep(QUIET_S)
        found.append(measure.commits(daemon.database) - before)
    return Figure(what="commits of the leanest turn", value=measure.p50(found), budget=5)


async def long_chat(bench: Bench) -> list[Figure]:
    """The last turns of a long chat against the first turns of new ones, in the same moments."""
    ends = max(bench.counts.long_chat // 10, 3)
    async with bench.run_daemon(model=True) as daemon:
        await daemon.exchanges(bench.counts.warm, user="7000")
        await daemon.exchanges(bench.counts.long_chat - ends, ANSWER)
        first: list[float] = []
        last: list[float] = []
        for number in range(ends):
            first.append(await daemon.exchange(ANSWER, f"{8000 + number}"))
            await asyncio.sleep(SETTLE_S)
            last.append(await daemon.exchange(ANSWER))
            await asyncio.sleep(SETTLE_S)
    return [
        Figure(
            what=f"turn {bench.counts.long_chat} of a chat against turn 1, p50",
            value=measure.p50(last) * MS,
            unit="ms",
            floor=measure.p50(first) * MS,
            budget=measure.p50(first) * MS * 1.5,
        )
    ]


async def shell(bench: Bench) -> list[Figure]:
    """A turn with one allowed call of the shell, less the turn without it; beside the bare command."""
    figures: list[Figure] = []
    for sandbox in ("off", "basic"):
        config = f'[tools.shell]\napproval = "allow"\nsandbox = "{sandbox}"\n'
        async with bench.run_daemon(config) as daemon:
            await daemon.exchanges(bench.counts.warm, "/shell true")
            with_it: list[float] = []
            without: list[float] = []
            bare: list[float] = []
            for _ in range(bench.counts.turns // 2):
                with_it += await daemon.exchanges(1, "/shell true")
                without += await daemon.exchanges(1)
                bare.append(await _bare())
        command = measure.p50(bare) * MS
        beyond = (measure.p50(with_it) - measure.p50(without)) * MS
        what = f"shell step beyond the turn, sandbox {sandbox}, p50"
        figures.append(Figure(what=what, value=beyond, unit="ms", floor=command, budget=10 + command))
    return figures


async def _bare() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*BARE)
    await process.wait()
    return time.perf_counter() - began
