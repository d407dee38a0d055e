"""Rows on Telegram's wire: turns with calls, sub-sessions and streaming, beside a plain turn.

What the model takes by itself is 0 ms but for the streamed answer, where the floor takes it too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tests.bench import measure
from tests.bench.doze import DOZE_S
from tests.bench.figures import Decision, Figure
from tests.bench.rows.crowd import people
from tests.bench.rows.turns import CPU_BUDGET_MS, MS, QUIET_S, TURN_BUDGET_MS, allowed_shell, beyond
from tests.bench.telegram import TelegramLife, run_telegram_daemon, run_telegram_floor
from tests.bench.world import (
    CALLS,
    CHILDREN,
    GLANCE,
    LOOK,
    OWNER,
    SPAWN,
    THE_END,
    TYPED,
    TYPED_S,
    WITHIN_S,
    Bench,
    Counts,
    interleaved,
)

WITH_DOZE = '[tools.doze]\nmodule = "tests.bench.doze"\n'
WITH_FALLBACKS = """
context_tokens = 100000
[model.prices."openai:scripted"]
input = 1.0
output = 2.0
[[model.fallback]]
name = "openai:other"
base_url = "{url}"
[[model.fallback]]
name = "openai:third"
base_url = "{url}"
"""
SEVERAL = 10
NOISE = 1.1
"""Two daemons that do the same differ by less than this."""
CHILDREN_DECIDED = Decision(number="0032", times=5.25, of="floor")
"""About the CPU of a turn with sub-sessions; the floor is a plain turn."""
STEP_BUDGET_MS = 10.0


# --- a streamed answer --------------------------------------------------------------------------


async def typed(bench: Bench) -> list[Figure]:
    """An answer that is shown while it comes: when all of it stands, and what that costs."""
    async with run_telegram_daemon(bench, model=True) as daemon, run_telegram_floor(bench, model=True) as floor:
        await interleaved([daemon, floor], bench.counts.warm)
        ours: list[tuple[float, float]] = []
        bare: list[tuple[float, float]] = []
        for _ in range(max(bench.counts.agent_turns // 5, 2)):
            ours.append(await _typed(daemon))
            bare.append(await _typed(floor))
    seconds, bare_s = measure.p50([took for took, _ in ours]), measure.p50([took for took, _ in bare])
    cpu, bare_cpu = measure.p50([spent for _, spent in ours]), measure.p50([spent for _, spent in bare])
    what = f"telegram, answer streamed for {TYPED_S:g} s"
    return [
        Figure(
            what=f"{what}, whole after, p50",
            value=seconds * MS,
            unit="ms",
            floor=bare_s * MS,
            budget=bare_s * MS + TURN_BUDGET_MS,
        ),
        Figure(what=f"{what}, CPU of the process", value=cpu * MS, unit="ms", floor=bare_cpu * MS),
    ]


async def _typed(life: TelegramLife) -> tuple[float, float]:
    """Seconds until the whole answer stands, and CPU seconds."""
    telegram, chat = life.telegram, int(OWNER)
    before, already = measure.cpu_s(life.pid), len(telegram.shown(chat))
    began = time.perf_counter()
    telegram.say(chat, TYPED)
    await telegram.until(lambda: any(one.text.endswith(THE_END) for one in telegram.shown(chat)[already:]), WITHIN_S)
    took = time.perf_counter() - began
    await asyncio.sleep(QUIET_S)
    return took, measure.cpu_s(life.pid) - before


# --- calls and children -------------------------------------------------------------------------


async def calls(bench: Bench) -> list[Figure]:
    """Calls of one answer that run side by side, less the turn without them and what one takes alone.

    A turn with calls asks the model once more, as the floor does for a turn of its own.
    """
    async with (
        run_telegram_daemon(bench, WITH_DOZE, model=True) as daemon,
        run_telegram_floor(bench, model=True) as floor,
    ):
        await daemon.exchanges(bench.counts.warm // 2, LOOK)
        await floor.exchanges(bench.counts.warm // 2)
        plain, one, several, bare = await _alternating(daemon, ["hello", GLANCE, LOOK], bench.counts.agent_turns, floor)
        alone = [await _doze() for _ in range(bench.counts.agent_turns)]
    without = measure.p50(plain.seconds) + measure.p50(alone)
    steps = [
        Figure(
            what=f"telegram, {name}, beyond itself and the turn without, p50",
            value=(measure.p50(took.seconds) - without) * MS,
            unit="ms",
            floor=measure.p50(bare.seconds) * MS,
            budget=STEP_BUDGET_MS,
        )
        for name, took in (("1 call", one), (f"{CALLS} calls at once", several))
    ]
    return [*steps, *_costs(f"telegram, turn with {CALLS} calls", several, plain, turns=None)]


async def _doze() -> float:
    """Do the work of the tool without a gateway; return its seconds, a timer's lateness among them."""
    began = time.perf_counter()
    await asyncio.sleep(DOZE_S)
    return time.perf_counter() - began


async def children(bench: Bench) -> list[Figure]:
    """A turn that waits for sub-sessions side by side; the floor is a turn without, the budget one turn's for each."""
    async with run_telegram_daemon(bench, model=True) as daemon:
        await daemon.exchanges(max(bench.counts.warm // 2, 1), SPAWN)
        plain, family = await _alternating(daemon, ["hello", SPAWN], bench.counts.agent_turns)
    turns, what = CHILDREN + 1, f"telegram, turn with {CHILDREN} sub-sessions"
    return [
        Figure(
            what=f"{what}, p50",
            value=measure.p50(family.seconds) * MS,
            unit="ms",
            floor=measure.p50(plain.seconds) * MS,
            budget=turns * TURN_BUDGET_MS,
            times=turns,
        ),
        *_costs(what, family, plain, turns=turns),
    ]


class _Took:
    """Durations and CPU times of turns of one kind, each run alone."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu_s: list[float] = []
        self.commits: list[float] = []


async def _alternating(
    life: TelegramLife, texts: Sequence[str], count: int, floor: TelegramLife | None = None
) -> list[_Took]:
    """Say each in turn, so that all meet the same machine. `floor`: the first is said to it too, and comes last."""
    found, bare = [_Took() for _ in texts], _Took()
    for _ in range(count):
        for text, took in zip(texts, found, strict=True):
            cpu, commits = measure.cpu_s(life.pid), measure.commits(life.database)
            took.seconds.append(await life.exchange(text))
            await _quiet(life)
            took.cpu_s.append(measure.cpu_s(life.pid) - cpu)
            took.commits.append(measure.commits(life.database) - commits)
        if floor is not None:
            bare.seconds.append(await floor.exchange(texts[0]))
            await asyncio.sleep(QUIET_S)
    return found if floor is None else [*found, bare]


async def _quiet(life: TelegramLife) -> None:
    """Wait until nothing more is written: on a busy machine the end of a turn comes late, and is not the next one's."""
    while True:
        before = measure.commits(life.database)
        await asyncio.sleep(QUIET_S)
        if measure.commits(life.database) == before:
            return


def _costs(what: str, ours: _Took, plain: _Took, turns: int | None) -> list[Figure]:
    """CPU and commits beside a plain turn's; `turns`: those of which it may cost as much."""
    return [
        Figure(
            what=f"{what}, CPU of the process",
            value=measure.p50(ours.cpu_s) * MS,
            unit="ms",
            floor=measure.p50(plain.cpu_s) * MS,
            budget=turns * CPU_BUDGET_MS if turns else None,
            times=turns,
            decided=CHILDREN_DECIDED if turns else None,
        ),
        Figure(what=f"{what}, commits", value=measure.p50(ours.commits), floor=measure.p50(plain.commits)),
    ]


# --- what is not used ---------------------------------------------------------------------------


async def fallbacks(bench: Bench) -> list[Figure]:
    """Models that could step in, and prices: what a turn costs that needs none of them, beside one without."""
    more = WITH_FALLBACKS.format(url=bench.model.base_url)
    async with (
        run_telegram_daemon(bench, more, model=True) as chained,
        run_telegram_daemon(bench, model=True) as single,
    ):
        cpu, took = await _side_by_side([chained, single], bench.counts)
    what = "telegram, model turn with two fallbacks and a price"
    return [
        beyond(f"{what}, p50", took[0], took[1], times=NOISE),
        beyond(f"{what}, CPU of the process", cpu[0], cpu[1], times=NOISE),
    ]


async def against(bench: Bench) -> list[Figure]:
    """This checkout's daemon, with the other checkout's as its floor: turns without and with a model, and a call."""
    figures: list[Figure] = []
    for name, model, text, sandbox in (
        ("operator turn", False, "hello", "off"),
        ("shell turn, sandbox off", False, "/shell true", "off"),
        ("shell turn, sandbox basic", False, "/shell true", "basic"),
        ("model turn", True, "hello", "off"),
    ):
        async with AsyncExitStack() as stack:
            lives = [
                await stack.enter_async_context(
                    run_telegram_daemon(bench, allowed_shell(sandbox), model=model, checkout=checkout)
                )
                for checkout in (None, bench.against)
            ]
            cpu, took = await _side_by_side(lives, bench.counts, text)
            commits = [measure.p50((await _alternating(life, [text], 3))[0].commits) for life in lives]
        figures += [
            beyond(f"against: {name}, p50", took[0], took[1]),
            beyond(f"against: {name}, CPU of the process", cpu[0], cpu[1]),
            Figure(what=f"against: {name}, commits", value=commits[0], floor=commits[1]),
        ]
    return figures


async def _side_by_side(
    lives: Sequence[TelegramLife], counts: Counts, text: str = "hello"
) -> tuple[list[float], list[float]]:
    """CPU seconds a turn, and seconds a turn (the median), of each daemon.

    Several people write, so that no history grows as long as to be put into a summary.
    """
    users = [OWNER] if text.startswith("/") else people(SEVERAL)  # nobody else may run a shell unasked
    await interleaved(lives, max(counts.warm, SEVERAL), text, users)
    before = [measure.cpu_s(life.pid) for life in lives]
    took = await interleaved(lives, counts.turns, text, users)
    await asyncio.sleep(QUIET_S)
    spent = [(measure.cpu_s(life.pid) - was) / counts.turns for life, was in zip(lives, before, strict=True)]
    return spent, [measure.p50(each) for each in took]
