"""Rows: one user's turns, one after the other, each next to the same exchange with the floor."""

from __future__ import annotations

import asyncio
import time

from tests.bench import measure
from tests.bench.figures import Decision, Figure
from tests.bench.world import ANSWER, OWNER, Bench, Counts, Life, interleaved

MS = 1000
TURN_BUDGET_MS = 10.0
CPU_BUDGET_MS = 4.5
CPU_TIMES = 3.75
"""The budget of CPU as a multiple of the floor's, which was 1.2 ms when it was set."""
CPU_DECIDED = Decision(number="0026", times=4.65, of="floor")
"""With a model, on Telegram and on the test channel: missed by 0.4 to 0.9 of the floor."""
OPERATOR_DECIDED = Decision(number="0034", times=5.75, of="floor")
"""On Telegram without a model, where the floor asks none either: missed by 1.6 of the floor."""
SHELL_DECIDED = Decision(number="0027", times=4 / 3, of="budget")
"""In the sandbox `basic`: missed by a sixth, and by a third on a machine that others use."""
LONG_CHAT_TIMES = 1.5
SANDBOXES = ("off", "basic")
PEOPLE_FROM = 5200
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
        return await compared("model turn", bench.counts, daemon, floor, times=6, decided=CPU_DECIDED)


async def compared(
    name: str,
    counts: Counts,
    daemon: Life,
    floor: Life,
    times: float | None = None,
    decided: Decision | None = None,
) -> list[Figure]:
    """One person's turns with both, in the same moments: how long they take, and what they cost.

    `decided`: about the cost.
    """
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
            budget=TURN_BUDGET_MS,
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
            budget=CPU_BUDGET_MS,
            times=CPU_TIMES if times else None,
            decided=decided,
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


def beyond(what: str, seconds: float, floor: float, times: float | None = None) -> Figure:
    """Seconds beside a floor that is no bare loop but a like thing; `times` of it are the budget."""
    budget = floor * MS * times if times else None
    return Figure(what=what, value=seconds * MS, unit="ms", floor=floor * MS, budget=budget)


async def long_chat(bench: Bench) -> list[Figure]:
    """The last turns of a long chat against the first turns of new ones."""
    async with bench.run_daemon(model=True) as daemon:
        return await lengthened("test channel", bench.counts, daemon)


async def lengthened(where: str, counts: Counts, daemon: Life) -> list[Figure]:
    """Last turns and first turns in the same moments: how long they take, and their CPU."""
    ends = max(counts.long_chat // 10, 3)
    await daemon.exchanges(counts.warm, user="7000")
    await daemon.exchanges(counts.long_chat - ends, ANSWER)
    first: list[tuple[float, float]] = []
    last: list[tuple[float, float]] = []
    for number in range(ends):
        first.append(await _alone(daemon, f"{PEOPLE_FROM + number}"))
        last.append(await _alone(daemon, OWNER))
    what = f"{where}, turn {counts.long_chat} of a chat against turn 1"
    old, new = (measure.p50([took for took, _ in each]) for each in (last, first))
    old_cpu, new_cpu = (measure.p50([cpu for _, cpu in each]) for each in (last, first))
    return [
        beyond(f"{what}, p50", old, new, times=LONG_CHAT_TIMES),
        beyond(f"{what}, CPU of the process", old_cpu, new_cpu),
    ]


async def _alone(daemon: Life, user: str) -> tuple[float, float]:
    """Seconds and CPU seconds of one exchange, and of what is written down after it."""
    before = measure.cpu_s(daemon.pid)
    took = await daemon.exchange(ANSWER, user)
    await asyncio.sleep(QUIET_S)
    return took, measure.cpu_s(daemon.pid) - before


async def shell(bench: Bench) -> list[Figure]:
    """A turn with one allowed call of the shell, less the turn without it, in each sandbox."""
    figures: list[Figure] = []
    for sandbox in SANDBOXES:
        async with bench.run_daemon(allowed_shell(sandbox)) as daemon:
            figures.append(await shelled("test channel", bench.counts, daemon, sandbox))
    return figures


def allowed_shell(sandbox: str) -> str:
    """The configuration that asks nobody."""
    return f'[tools.shell]\napproval = "allow"\nsandbox = "{sandbox}"\n'


async def shelled(where: str, counts: Counts, daemon: Life, sandbox: str) -> Figure:
    """The step of a command that does nothing; beside the bare command."""
    await daemon.exchanges(counts.warm, "/shell true")
    with_it: list[float] = []
    without: list[float] = []
    bare: list[float] = []
    for _ in range(counts.turns // 2):
        with_it += await daemon.exchanges(1, "/shell true")
        without += await daemon.exchanges(1)
        bare.append(await _bare())
    command = measure.p50(bare) * MS
    step = (measure.p50(with_it) - measure.p50(without)) * MS
    what = f"{where}, shell step beyond the turn, sandbox {sandbox}, p50"
    decided = SHELL_DECIDED if sandbox == "basic" else None
    return Figure(what=what, value=step, unit="ms", floor=command, budget=10 + command, decided=decided)


async def _bare() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*BARE)
    await process.wait()
    return time.perf_counter() - began
