"""Rows: cost of an idle daemon: memory, CPU time of its start and of `--help`."""

from __future__ import annotations

import asyncio
import sys

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import Bench, pid_of, start
from tests.support.daemon import ROOT, Daemon

CALM_S = 1.5
IDLE_S = 3.0


async def ready(bench: Bench) -> list[Figure]:
    """CPU seconds from exec to /readyz, with children; memory and CPU when nothing happens; `--help`."""
    spent: list[float] = []
    bare: list[float] = []
    at_rest = 0.0, 0.0
    for life in range(bench.counts.starts):
        daemon = Daemon(folder=bench.new_folder())
        try:
            await start(daemon)
            spent.append(measure.cpu_with_children_s(pid_of(daemon)))
            if life == bench.counts.starts - 1:
                at_rest = await _at_rest(pid_of(daemon))
        finally:
            await daemon.kill()
        bare.append(measure.child_cpu_s([sys.executable, "-c", "import asyncio, aiohttp"], ROOT))
    memory, idle = at_rest
    async with bench.run_floor() as floor:
        bare_memory, bare_idle = await _at_rest(floor.pid)
    return [
        Figure(
            what="ready, operator and web",
            value=measure.p50(spent),
            unit="s of CPU",
            floor=measure.p50(bare),
            budget=0.6,
        ),
        Figure(
            what="--help",
            value=_cpu(bench, "-m", "gateway", "--help"),
            unit="s of CPU",
            floor=_cpu(bench, "-c", "import click"),
            budget=0.15,
        ),
        Figure(what="idle memory, operator and web", value=memory, unit="MB", floor=bare_memory, budget=80),
        Figure(what="idle CPU in a second", value=idle * 1000, unit="ms", floor=bare_idle * 1000),
    ]


async def _at_rest(pid: int) -> tuple[float, float]:
    """Memory in MB, and CPU seconds a second, of a process that does nothing."""
    await asyncio.sleep(CALM_S)
    before = measure.cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    return measure.pss_mb(pid), (measure.cpu_s(pid) - before) / IDLE_S


def _cpu(bench: Bench, *words: str) -> float:
    command = [sys.executable, *words]
    return measure.p50([measure.child_cpu_s(command, ROOT) for _ in range(bench.counts.starts)])
