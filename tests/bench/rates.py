"""Shared parts of the rate rows of two channels: a full outbox, messages sent per core, and the figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from gateway.domain.ids import NodeId, SessionId
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind, TurnState
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import ANSWER, WITHIN_S, Watcher
from tests.support.makers import answer, inbound, route, said

CHATTER = "Something that people say to each other in a group."
NODE = NodeId("bench#sends")
FILLERS = 64
MS = 1000


class Fake(Protocol):
    """Interface of a fake platform for a rate row."""

    async def until(self, condition: Callable[[], bool], within_s: float = ...) -> None:
        """Wait until a condition holds; it is looked at after each call."""
        ...


def rate(what: str, value: float, bare: float) -> Figure:
    """So many in a second of CPU, beside the bare SDK's."""
    return Figure(what=what, value=value, unit="/s", floor=bare)


# --- sending ------------------------------------------------------------------------------------


async def fill_outbox(folder: Path, places: Sequence[Conversation], count: int) -> None:
    """Make the store with so many answers that are due, in each place in turn."""
    store = open_store(f"sqlite://{folder}/state/dragoman.db", SystemClock())
    numbers = iter(range(count))
    try:
        async with asyncio.TaskGroup() as group:
            for one in range(FILLERS):
                group.create_task(fill(store, numbers, places), name=f"filler {one}")
    finally:
        await store.close()


async def fill(store: Store, numbers: Iterator[int], places: Sequence[Conversation]) -> None:
    for number in numbers:
        way = route(SessionId(f"chat:bench-{number}"))
        await store.accept(way, inbound(direct=False), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        (claimed,) = await store.claim(NODE)
        lease = claimed.lease
        given = (await store.turn(lease.turn)).inputs
        slots = [said(ANSWER, where=places[number % len(places)])]
        assert await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=given, slots=slots, timers=[])


async def sent_a_s(fake: Fake, watcher: Watcher, pid: int, count: int) -> float:
    """Messages in a second of CPU, of the last nine tenths: what a start costs is not part of it."""
    await fake.until(lambda: len(watcher.seen) > count // 10, WITHIN_S)
    before, first = measure.cpu_s(pid), len(watcher.seen)
    await fake.until(lambda: len(watcher.seen) >= count, WITHIN_S)
    return (count - first) / (measure.cpu_s(pid) - before)


# --- a growing answer ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """Timings of the edits of one growing answer."""

    calls_a_s: float
    """Calls a second after the first one, counted from the first request."""
    gap_s: float
    """The shortest time between two showings. The last words need not wait."""
    cpu_s: float

    @classmethod
    def of(cls, began: float, shows: Sequence[float], cpu_s: float) -> Grown:
        """`began`: when it was asked for; `shows`: the moments of the calls that show words of it, in order."""
        gap = min((after - one for one, after in pairwise(shows[:-1])), default=0.0)
        return cls(calls_a_s=(len(shows) - 1) / (shows[-1] - began), gap_s=gap, cpu_s=cpu_s)


def grown(where: str, seconds: float, ours: Grown, bare: Grown) -> list[Figure]:
    """The figures of an answer that takes so many seconds."""
    what = f"{where}, answer of {seconds:g} s"
    return [
        Figure(what=f"{what}, edits in a second", value=ours.calls_a_s, budget=1, unit="/s"),
        Figure(what=f"{what}, time between two edits at least, but the last", value=ours.gap_s, unit="s"),
        Figure(what=f"{what}, CPU of the process", value=ours.cpu_s * MS, floor=bare.cpu_s * MS, unit="ms"),
    ]
