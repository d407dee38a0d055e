"""Rows: many chats at once, the memory afterwards, and the longest callback meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import SLOW, Bench, Counts, Life

CALM_S = 1.5


async def chats(bench: Bench) -> list[Figure]:
    """All write at once to a model of 500 ms; then more chats, and what memory grew by."""
    async with bench.run_daemon(model=True) as daemon, bench.run_floor(model=True) as floor:
        return await crowded("test channel", bench.counts, daemon, floor)


async def crowded(where: str, counts: Counts, daemon: Life, floor: Life) -> list[Figure]:
    """Measure the cost of a crowd with both; the daemon has just begun."""
    await asyncio.sleep(CALM_S)
    idle, bare = measure.pss_mb(daemon.pid), measure.pss_mb(floor.pid)
    users = people(counts.chats)
    bare_s = await floor.at_once(users, SLOW)
    took_s = await daemon.at_once(users, SLOW)
    await asyncio.sleep(CALM_S)
    lost, doubled = _lost_and_doubled(daemon, users)
    for user in people(counts.more_chats, 6000):
        await daemon.exchanges(1, user=user)
    await asyncio.sleep(CALM_S)
    grown = measure.pss_mb(daemon.pid) - idle
    every = counts.chats + counts.more_chats
    return [
        Figure(
            what=f"{where}, {counts.chats} chats at once, model of 500 ms",
            value=took_s,
            unit="s",
            floor=bare_s,
            budget=1.6,
            times=3,
        ),
        Figure(what=f"{where}, of these lost", value=lost, budget=0),
        Figure(what=f"{where}, of these answered twice", value=doubled, budget=0),
        Figure(what=f"{where} and openai model, idle memory", value=idle, unit="MB", floor=bare, budget=80),
        Figure(what=f"{where}, its growth after {every} chats", value=grown, unit="MB", budget=10),
    ]


async def loop(bench: Bench) -> list[Figure]:
    """The longest callback of the daemon's event loop, from its start on and while all write at once."""
    longest = bench.new_folder() / "longest.json"
    channel = f'longest = "{longest}"\n'
    async with bench.run_daemon(model=True, module="tests.bench.channel", channel=channel) as daemon:
        await daemon.exchanges(bench.counts.warm)
        await daemon.at_once(people(bench.counts.chats), SLOW)
        await asyncio.sleep(CALM_S)
    found = json.loads(longest.read_text())
    what = f"longest callback of the loop ({found['what']})"
    return [Figure(what=what, value=found["ms"], unit="ms of CPU", budget=100)]


def people(count: int, first: int = 5000) -> list[str]:
    """So many people, by their numbers."""
    return [str(first + number) for number in range(count)]


def _lost_and_doubled(life: Life, users: list[str]) -> tuple[int, int]:
    answers = Counter(user for user, _, _ in life.watcher.seen)
    found = [answers[user] for user in users]
    return found.count(0), sum(1 for count in found if count > 1)
