from __future__ import annotations

import asyncio
import secrets
from random import Random

import pytest

from tests.support.schedules import LoopClock, ScheduledLoop, Stuck, drawn_from


def order_of(seed: int) -> str:
    """In which order three tasks of three steps each take them."""
    loop, steps = ScheduledLoop(seed), list[str]()

    async def walk(name: str) -> None:
        for _ in range(3):
            steps.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(walk(name))

    loop.run_until_complete(main())
    return "".join(steps)


def test_a_seed_chooses_the_order() -> None:
    assert order_of(1) == order_of(1)
    assert len({order_of(seed) for seed in range(50)}) > 20


def test_all_orders_come_up() -> None:
    firsts = {"".join(dict.fromkeys(order_of(seed))) for seed in range(100)}
    assert firsts == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_time_passes_only_when_nothing_is_ready() -> None:
    loop = ScheduledLoop(1)
    clock, ticks = LoopClock(loop), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        ticks.append((name, clock.monotonic()))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("long", 86_400))
            group.create_task(sleep("short", 1))

    began = clock.now()
    loop.run_until_complete(main())
    assert ticks == [("short", 1), ("long", 86_400)]
    assert (clock.now() - began).total_seconds() == 86_400


def test_a_timeout_cuts_what_takes_too_long() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(50)
        except TimeoutError:
            return "cut"
        return "whole"

    assert ScheduledLoop(1).run_until_complete(main()) == "cut"


@pytest.mark.parametrize("seed", range(10))
def test_callbacks_of_one_place_come_in_their_order(seed: int) -> None:
    loop, called = ScheduledLoop(seed), list[int]()

    async def main() -> None:
        for n in range(5):
            loop.call_soon(called.append, n)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert called == [0, 1, 2, 3, 4]


def test_nothing_of_a_suspended_place_runs() -> None:
    loop, beats = ScheduledLoop(1), list[float]()

    async def beat() -> None:
        while True:
            beats.append(loop.time())
            await asyncio.sleep(1)

    async def main() -> None:
        heart = loop.begin("here", beat(), "heart")
        await asyncio.sleep(2.5)
        loop.suspend("here")
        await asyncio.sleep(10)
        loop.resume("here")
        await asyncio.sleep(1)
        heart.cancel()

    loop.run_until_complete(main())
    assert beats == [0, 1, 2, 12.5, 13.5][: len(beats)]
    assert len(beats) >= 4


def test_deadlock_is_reported() -> None:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    loop = ScheduledLoop(1)
    with pytest.raises(Stuck, match=r"nothing can happen any more at 0\.000 s; these wait: main"):
        loop.run_until_complete(for_ever())
    loop.bury()
    assert loop.left() == []


@pytest.mark.whole("of a helper of tests; it computes for seconds")
def test_endless_loop_is_reported() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the fault
            await asyncio.sleep(0)

    loop = ScheduledLoop(1)
    with pytest.raises(Stuck, match="steps and no end"):
        loop.run_until_complete(spin())
    loop.bury()


def test_unhandled_exception_is_kept() -> None:
    loop = ScheduledLoop(1)

    def fail() -> None:
        raise RuntimeError("nobody asked")

    async def main() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert [trouble for trouble in loop.troubles if "nobody asked" in trouble] == loop.troubles != []


async def walk(reached: list[int]) -> None:
    for n in range(5):
        reached.append(n)
        await asyncio.sleep(0)


async def cut_after(loop: ScheduledLoop, steps: int, reached: list[int]) -> None:
    task = loop.begin("here", walk(reached), "walk")
    loop.in_steps(steps, task.cancel)
    await asyncio.wait([task])


def test_a_task_can_be_cut_wherever_it_waits() -> None:
    lengths: set[int] = set()
    for steps in range(12):
        loop, reached = ScheduledLoop(1), list[int]()
        loop.run_until_complete(cut_after(loop, steps, reached))
        lengths.add(len(reached))
    assert lengths >= {1, 2, 3, 4, 5}


def test_ids_are_drawn_from_the_seed() -> None:
    def draw() -> tuple[str, int]:
        with drawn_from(Random(1)):
            return secrets.token_hex(8), secrets.randbelow(1_000)

    assert draw() == draw()
    assert len(draw()[0]) == 16
    assert secrets.token_hex(8) != draw()[0]
