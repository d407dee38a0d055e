"""Row: killed as by `kill -9` with messages in flight, and started again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.bench.figures import Figure
from tests.bench.world import SLOW, SLOW_S, WITHIN_S, Bench, Life, start

CALM_S = 1.5


async def kill(bench: Bench) -> list[Figure]:
    """How many are answered after the restart, how soon, and how many are shown twice without a mark."""
    users = [str(5000 + number) for number in range(bench.counts.in_flight)]
    async with bench.run_daemon(model=True) as life:
        assert life.daemon is not None
        await life.exchanges(bench.counts.warm)
        life.watcher.seen.clear()
        for user in users:
            await life.platform.say(user, SLOW)
        await asyncio.sleep(SLOW_S / 2)
        await life.daemon.kill()
        early = len(life.watcher.seen)
        answers = [life.watcher.expect(f"d{user}") for user in users]
        began = time.perf_counter()
        await start(life.daemon)
        first, last = await _moments(answers)
        await asyncio.sleep(CALM_S)
        answered, unmarked = _counts(life)
    return [
        Figure(
            what=f"killed with {len(users) - early} in flight, answered",
            value=answered,
            budget=len(users),
            at_least=True,
        ),
        Figure(what="of these shown twice, unmarked", value=unmarked, budget=0),
        Figure(what="moving again after", value=first - began, unit="s", budget=3),
        Figure(what="all answered after", value=last - began, unit="s"),
    ]


async def _moments(answers: list[asyncio.Future[float]]) -> tuple[float, float]:
    """When the first and the last one came; what does not come in time is counted as lost by the caller."""
    done, _ = await asyncio.wait(answers, timeout=WITHIN_S)
    moments = [answer.result() for answer in done] or [float("inf")]
    return min(moments), max(moments)


def _counts(life: Life) -> tuple[int, int]:
    plain = Counter(chat for chat, _, repeated in life.watcher.seen if not repeated)
    return len({chat for chat, _, _ in life.watcher.seen}), sum(1 for count in plain.values() if count > 1)
