"""Row: a program that does nothing, in the sandbox `full` beside `basic`. In this process."""

from __future__ import annotations

import time
from pathlib import Path

from gateway.domain.tools import SandboxMode
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.toolcalls.processes import Beginning
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import Bench

ROUNDS, FILES = 40, 200
BEYOND_MS = 3.0
"""Time that `full` may take beyond `basic`: it first searches the workspace for secret files."""


async def spawns(bench: Bench) -> list[Figure]:
    """Median milliseconds of a program in `full`, and of what it takes beyond `basic`. They take turns."""
    containment, workspace = await probe(), bench.new_folder()
    for n in range(FILES):
        (workspace / f"{n:03}.txt").write_text("text\n")
    (workspace / ".env").write_text("KEY=value\n")
    basic, full = list[float](), list[float]()
    for _ in range(ROUNDS):
        basic.append(await _ms(SandboxMode.BASIC, workspace, containment))
        full.append(await _ms(SandboxMode.FULL, workspace, containment))
    beyond = [one - other for one, other in zip(full[1:], basic[1:], strict=True)]
    return [
        Figure(
            what=f"program in the sandbox full, {FILES} files, p50", value=measure.p50(full[1:]), unit="ms",
            floor=measure.p50(basic[1:]),
        ),
        Figure(what="sandbox full beyond basic, p50", value=measure.p50(beyond), unit="ms", budget=BEYOND_MS),
    ]  # fmt: skip


async def _ms(mode: SandboxMode, workspace: Path, containment: Containment) -> float:
    began = time.perf_counter()
    await run_contained(
        ["/bin/true"], within=Confinement(mode=mode), workspace=workspace, cwd=workspace, output=Beginning(1_000),
        containment=containment, limits=ProcessLimits(),
    )  # fmt: skip
    return (time.perf_counter() - began) * 1000
