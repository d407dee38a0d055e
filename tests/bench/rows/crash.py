"""Row: restart after a `kill -9` with messages in flight."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.bench.figures import Figure
from tests.bench.rows.crowd import people
from tests.bench.world import SLOW, SLOW_S, WITHIN_S, Bench, Counts, Life, start

CALM_S = 1.5


async def kill(bench: Bench) -> list[Figure]:
    """Measure the messages answered after the restart, their delay, and those shown twice without a mark."""
    async with bench.run_daemon(model=True) as life:
        return await killed("test channel", bench.counts, life)


async def killed(where: str, counts: Counts, life: Life) -> list[Figure]:
    """Kill it while the model thinks about what everybody said."""
    users = people(counts.in_flight)
    await life.exchanges(counts.warm)
    life.watcher.seen.clear()
    for user in users:
        await life.platform.say(user, SLOW)
    await asyncio.sleep(SLOW_S / 2)
    waiting, first, last = await _restarted(life, users)
    return [
        *_answered(f"{where}, killed with {waiting} in flight", life, users),
        Figure(what=f"{where}, moving again after", value=first, unit="s", budget=3),
        Figure(what=f"{where}, all answered after", value=last, unit="s"),
    ]


async def killed_answering(where: str, counts: Counts, life: Life) -> list[Figure]:
    """Kill it while it answers everybody: what it had sent and not recorded may come again, marked."""
    users = people(counts.in_flight, 5100)
    life.watcher.seen.clear()
    half = [life.watcher.expect(user) for user in users[: len(users) // 2]]
    for user in users:
        await life.platform.say(user, "hello")
    await asyncio.wait(half, timeout=WITHIN_S)
    waiting, _, _ = await _restarted(life, users)
    marked = sum(repeated for _, _, repeated in life.watcher.seen)
    what = f"{where}, killed while answering, {waiting} to go"
    return [*_answered(what, life, users), Figure(what=f"{what}, marked as re-sent", value=marked)]


async def _restarted(life: Life, users: list[str]) -> tuple[int, float, float]:
    """Kill and start it; return how many waited for an answer, and the seconds until the first and the last had one."""
    assert life.daemon is not None
    await life.daemon.kill()
    early = {user for user, _, _ in life.watcher.seen}
    answers = [life.watcher.expect(user) for user in users if user not in early]
    began = time.perf_counter()
    await start(life.daemon)
    first, last = await _moments(answers)
    await asyncio.sleep(CALM_S)
    return len(answers), first - began, last - began


def _answered(what: str, life: Life, users: list[str]) -> list[Figure]:
    answered, unmarked = _counts(life)
    return [
        Figure(what=f"{what}, answered", value=answered, budget=len(users), at_least=True),
        Figure(what=f"{what}, shown twice unmarked", value=unmarked, budget=0),
    ]


async def _moments(answers: list[asyncio.Future[float]]) -> tuple[float, float]:
    """When the first and the last one came; what does not come in time is counted as lost by the caller."""
    done = (await asyncio.wait(answers, timeout=WITHIN_S))[0] if answers else ()
    moments = [answer.result() for answer in done] or [float("inf")]
    return min(moments), max(moments)


def _counts(life: Life) -> tuple[int, int]:
    plain = Counter(user for user, _, repeated in life.watcher.seen if not repeated)
    return len({user for user, _, _ in life.watcher.seen}), sum(1 for count in plain.values() if count > 1)
