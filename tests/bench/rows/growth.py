"""Rows: what a turn costs when there is much already: many sessions, a long history, a long queue.

Each size beside the smallest, in the same moments. The stores are filled through their own protocol; the turns that
are measured come over the wire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.clock import SystemClock
from gateway.model.ids import NodeId, OwnerName, SessionId, main_session, principal
from gateway.model.messages import Conversation, Inbound
from gateway.model.sessions import Origin, Route, SessionKind, TurnKind, TurnState, WhileRunning
from gateway.ports import Store
from gateway.store import open_store
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.turns import MS, QUIET_S
from tests.bench.world import ANSWER, OWNER, Bench, Counts, Life
from tests.support.makers import answer, inbound, said

NODE = NodeId("bench#growth")
SEEDERS = 64
CALM_S = 1.5
TIMES = 1.5
"""By so much the largest may be dearer than the smallest."""
NOISE_MB = 2.0
"""By so much the memory of two daemons differs that did the same, measured in the same moment."""
FIRST_USER = 100_000
DRAINED_WITHIN_S = 600.0
ROUNDS = 5
"""How often the smallest queue is filled and drained, whose time is the most uncertain."""


# --- many sessions --------------------------------------------------------------------------------


async def sessions(bench: Bench) -> list[Figure]:
    """A person's turn, and memory, where so many others have talked before."""
    sizes = bench.counts.grown
    folders = [bench.new_folder() for _ in sizes]
    for folder, count in zip(folders, sizes, strict=True):
        await _seed(folder, _many(count))
    async with _side_by_side(bench, folders) as lives:
        took = await _alternating(lives, bench.counts)
        await asyncio.sleep(CALM_S)
        memory = [measure.pss_mb(life.pid) for life in lives]
    return [
        *_turns([f"turn with {count:,} sessions" for count in sizes], took),
        *_memory([f"memory with {count:,} sessions" for count in sizes], memory),
    ]


# --- a long history -------------------------------------------------------------------------------


async def history(bench: Bench) -> list[Figure]:
    """A turn of one session, and memory, after so many messages of it."""
    sizes = bench.counts.long
    folders = [bench.new_folder() for _ in sizes]
    for folder, count in zip(folders, sizes, strict=True):
        await _seed(folder, _one(count), callers=1)
    async with _side_by_side(bench, folders) as lives:
        took = await _alternating(lives, bench.counts)
        await asyncio.sleep(CALM_S)
        memory = [measure.pss_mb(life.pid) for life in lives]
    return [
        *_turns([f"message {count:,} of a session" for count in sizes], took),
        *_memory([f"memory at message {count:,} of a session" for count in sizes], memory),
    ]


# --- a long queue ---------------------------------------------------------------------------------


async def queue(bench: Bench) -> list[Figure]:
    """One more message accepted where so many turns are queued, and what it costs to come to the end of them."""
    sizes = bench.counts.grown
    accepts: list[float] = []
    drained: list[float] = []
    memory: list[float] = []
    for count in sizes:
        accepts.append(await _one_more(bench.new_folder(), count, bench.counts.turns))
        rounds = ROUNDS if count == sizes[0] else 1
        async with bench.run_daemon(model=True) as life:
            await life.exchanges(bench.counts.warm)
            each = [await _drained(life, count, number) for number in range(rounds)]
            drained.append(measure.p50([seconds for seconds, _ in each]) / count)
            memory.append(max(most for _, most in each))
    names = [f"{count:,} queued turns" for count in sizes]
    return [
        *_against_first([f"{name}, one more is accepted, p50" for name in names], accepts),
        *_against_first([f"{name}, each answered in" for name in names], drained),
        *_memory([f"{name}, memory at most" for name in names], memory),
    ]


async def _one_more(folder: Path, count: int, often: int) -> float:
    """Seconds in which the store accepts a message, the median, where so many turns are queued."""
    await _seed(folder, _many(count), answered=False)
    store = _open(folder)
    took: list[float] = []
    try:
        for number in range(often):
            way, message = _said(FIRST_USER + count + number)
            began = time.perf_counter()
            await _accept(store, way, message)
            took.append(time.perf_counter() - began)
    finally:
        await store.close()
    return measure.p50(took)


async def _drained(life: Life, count: int, number: int) -> tuple[float, float]:
    """All write at once: seconds until the last one is answered, and the most memory meanwhile, in MB."""
    users = [f"{FIRST_USER + number * count + user}" for user in range(count)]
    answers = [life.watcher.expect(user) for user in users]
    most = 0.0
    began = time.perf_counter()
    for user in users:
        await life.platform.say(user, "hello")
    async with asyncio.timeout(DRAINED_WITHIN_S):
        while not all(one.done() for one in answers):
            most = max(most, measure.pss_mb(life.pid))
            await asyncio.wait([one for one in answers if not one.done()], timeout=0.2)
    return max([one.result() for one in answers]) - began, most


# --- stores that are full -------------------------------------------------------------------------


def _said(user: int) -> tuple[Route, Inbound]:
    """A message of a person who may write, in the session of that direct chat."""
    where = Conversation(channel="test", account="bot", chat=f"d{user}")
    way = Route(
        session=SessionId(f"dm:{where.key}"), kind=SessionKind.DM, origin=Origin.DIRECT, owner=None, title=str(user)
    )
    return way, inbound(ANSWER, who=principal("test", f"{user}"), where=where)


def _many(count: int) -> Iterator[tuple[Route, Inbound]]:
    """One message in each of so many sessions."""
    return (_said(FIRST_USER + user) for user in range(count))


def _one(count: int) -> Iterator[tuple[Route, Inbound]]:
    """So many messages of the owner's one session."""
    owner = OwnerName("ann")
    way = Route(session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner))
    where = Conversation(channel="test", account="bot", chat=f"d{OWNER}")
    return ((way, inbound(ANSWER, who=principal("test", OWNER), where=where)) for _ in range(count))


async def _seed(
    folder: Path, messages: Iterator[tuple[Route, Inbound]], *, callers: int = SEEDERS, answered: bool = True
) -> None:
    """Fill a store. What is answered stands on the page, so that no life has anything to deliver."""
    store = _open(folder)
    try:
        async with asyncio.TaskGroup() as group:
            for caller in range(callers):
                group.create_task(_fill(store, messages, answered=answered), name=f"seeder {caller}")
    finally:
        await store.close()


async def _fill(store: Store, messages: Iterator[tuple[Route, Inbound]], *, answered: bool) -> None:
    page = Conversation(channel="web", account="page", chat="ann")
    for way, message in messages:
        await _accept(store, way, message)
        if not answered:
            continue
        lease = (await store.claim(NODE))[0].lease
        given = [one.id for one in (await store.turn(lease.turn)).inputs]
        slots = [said(ANSWER, where=page)]
        assert await store.finish_turn(
            lease, TurnState.DONE, answer=answer(ANSWER), given=given, slots=slots, timers=[]
        )


async def _accept(store: Store, way: Route, message: Inbound) -> None:
    await store.accept(way, message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)


def _open(folder: Path) -> Store:
    (folder / "state").mkdir(exist_ok=True)
    return open_store(f"sqlite://{folder}/state/dragoman.db", SystemClock())


# --- turns and figures ----------------------------------------------------------------------------


@asynccontextmanager
async def _side_by_side(bench: Bench, folders: Sequence[Path]) -> AsyncGenerator[list[Life]]:
    """A daemon on each of these stores."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(bench.run_daemon(model=True, folder=folder)) for folder in folders]


@dataclass(frozen=True, slots=True)
class Took:
    """Medians of one daemon's turns: seconds, and seconds of CPU."""

    seconds: float
    cpu_s: float


async def _alternating(lives: Sequence[Life], counts: Counts) -> list[Took]:
    """The owner's turns with each daemon in turn, so that all meet the same machine."""
    found: list[list[tuple[float, float]]] = [[] for _ in lives]
    for number in range(counts.warm + counts.turns):
        for life, each in zip(lives, found, strict=True):
            before = measure.cpu_s(life.pid)
            seconds = await life.exchange(ANSWER)
            await asyncio.sleep(QUIET_S)
            if number >= counts.warm:
                each.append((seconds, measure.cpu_s(life.pid) - before))
    return [Took(measure.p50([one for one, _ in each]), measure.p50([cpu for _, cpu in each])) for each in found]


def _turns(names: Sequence[str], took: Sequence[Took]) -> list[Figure]:
    return [
        *_against_first([f"{name}, p50" for name in names], [one.seconds for one in took]),
        *_against_first([f"{name}, CPU of the process" for name in names], [one.cpu_s for one in took]),
    ]


def _against_first(names: Sequence[str], seconds: Sequence[float]) -> list[Figure]:
    """Each beside the smallest size; the largest has a budget."""
    first, last = seconds[0] * MS, len(seconds) - 1
    return [
        Figure(
            what=name,
            value=one * MS,
            unit="ms",
            floor=first if number else None,
            budget=first * TIMES if number == last else None,
        )
        for number, (name, one) in enumerate(zip(names, seconds, strict=True))
    ]


def _memory(names: Sequence[str], memory: Sequence[float]) -> list[Figure]:
    first, last = memory[0], len(memory) - 1
    return [
        Figure(
            what=name,
            value=one,
            unit="MB",
            floor=first if number else None,
            budget=first + NOISE_MB if number == last else None,
        )
        for number, (name, one) in enumerate(zip(names, memory, strict=True))
    ]
