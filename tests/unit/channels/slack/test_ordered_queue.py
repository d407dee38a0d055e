"""Order of turns in a queue: the earliest waiting event first, cancelled ones skipped."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from channels.slack.ordered_queue import OrderedQueue


async def test_ordered_queue_takes_events_by_time_not_arrival() -> None:
    lanes = OrderedQueue()
    done: list[float] = []

    async def take(at: float) -> None:
        async with lanes.turn("a", at):
            await asyncio.sleep(0)
            done.append(at)

    async with asyncio.TaskGroup() as group:
        for at in (2.0, 4.0, 6.0, 1.0, 3.0, 5.0):
            group.create_task(take(at), name=f"{at}")
    assert done == [1, 2, 3, 4, 5, 6]
    assert len(lanes) == 0


async def test_cancelled_or_failed_event_blocks_no_other() -> None:
    lanes = OrderedQueue()
    done: list[str] = []
    inside = asyncio.Event()

    async def take(name: str) -> None:
        with suppress(LookupError):
            async with lanes.turn("a"):
                done.append(name)
                inside.set()
                if name == "stays":
                    await asyncio.sleep(60)
                if name == "fails":
                    raise LookupError

    async with asyncio.TaskGroup() as group:
        first, waits, *_ = [group.create_task(take(name), name=name) for name in ("stays", "waits", "fails", "last")]
        await inside.wait()
        waits.cancel()
        first.cancel()
    assert done == ["stays", "fails", "last"]
    assert len(lanes) == 0
