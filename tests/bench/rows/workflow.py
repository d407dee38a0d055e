"""Row of a workflow: ten sub-sessions in four layers, beside what its longest path takes by itself."""

from __future__ import annotations

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.turns import MS
from tests.bench.world import GRAPH, GRAPH_LAYERS, SLOW, Bench

TIMES = 1.2
ALLOWED = '[[rules]]\ntool = "workflow"\npattern = "*"\ndecision = "allow"\n'


async def workflow(bench: Bench) -> list[Figure]:
    """By turns: the graph, and as many slow questions one after the other as its longest path has steps."""
    path = len(GRAPH_LAYERS)
    async with bench.run_daemon(ALLOWED, model=True) as daemon:
        await daemon.exchanges(bench.counts.warm)
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(max(bench.counts.agent_turns // 5, 2)):
            ours.append(await daemon.exchange(GRAPH))
            bare.append(sum(await daemon.exchanges(path, SLOW)))
    seconds, floor = measure.p50(ours), measure.p50(bare)
    what = f"workflow of {sum(GRAPH_LAYERS)} steps, its longest path {path}"
    return [Figure(what=what, value=seconds * MS, unit="ms", floor=floor * MS, budget=floor * MS * TIMES)]
