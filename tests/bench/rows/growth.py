"""Rows: cost of a turn beside many sessions, a long history, many sub-sessions, a long queue.

Each size beside the smallest, in the same moments. The stores are filled through their own protocol; the turns that
are measured come over the wire.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from gateway.agent.window import HISTORY_TURNS
from gateway.domain.children import NewChild, SpawnMode
from gateway.domain.ids import NodeId, OwnerName, SessionId, child_session, main_session, principal
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.routes import Route, WhileRunning
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.turns import MS, QUIET_S
from tests.bench.world import ANSWER, CHILDREN, OWNER, SLOW, SPAWN, Bench, Life
from tests.support.makers import answer, beginning, inbound, result, said

End: TypeAlias = Callable[[Store, Lease], Awaitable[None]]
"""Ending of a claimed turn by a seeder."""

NODE = NodeId("bench#growth")
OWNER_NAME = OwnerName("ann")
SEEDERS = 64
CALM_S = 1.5
TIMES = 1.5
"""By so much the largest may be dearer than the smallest."""
CACHES_MB = 6.0
"""SQLite keeps up to 2 MB of pages in each of three connections, which a small store does not fill. Two daemons that
did the same differ by 0.5 MB. What grows beyond both is kept by us."""
FULL = 256
"""Turns that a daemon works on at once: what fewer of them take in memory is no measure of a queue."""
FIRST_USER = 100_000
DRAINED_WITHIN_S = 600.0
LOOK_S = 0.1


# --- many sessions --------------------------------------------------------------------------------


async def sessions(bench: Bench) -> list[Figure]:
    """A person's turn, and memory, where so many others have talked before."""
    sizes = bench.counts.grown
    folders = [bench.new_folder() for _ in sizes]
    for folder, count in zip(folders, sizes, strict=True):
        await _seed(folder, _many(count))
    async with _side_by_side(bench, folders) as lives:
        took = await _alternating(lives, bench.counts.warm, bench.counts.turns)
        await asyncio.sleep(CALM_S)
        memory = [measure.pss_mb(life.pid) for life in lives]
    return [
        *_turns([f"turn with {count:,} sessions" for count in sizes], took),
        *_memory([f"memory with {count:,} sessions" for count in sizes], memory),
    ]


# --- a long history -------------------------------------------------------------------------------


async def history(bench: Bench) -> list[Figure]:
    """A turn of one session, and memory, after so many messages of it; the older ones have their summary."""
    sizes = bench.counts.long
    folders, untold = [bench.new_folder() for _ in sizes], bench.new_folder()
    for folder, count in zip(folders, sizes, strict=True):
        await _seed(folder, _one(count), callers=1)
        if count == sizes[-1]:
            shutil.copytree(folder, untold, dirs_exist_ok=True)
        await _sum_up(folder)
    async with _side_by_side(bench, [*folders, untold]) as lives:
        took = await _alternating(lives, bench.counts.warm, bench.counts.turns)
        await asyncio.sleep(CALM_S)
        *memory, without = [measure.pss_mb(life.pid) for life in lives]
    what = f"the same at message {sizes[-1]:,} when none of it had a summary yet"
    return [
        *_turns([f"message {count:,} of a session" for count in sizes], took[:-1]),
        *_memory([f"memory at message {count:,} of a session" for count in sizes], memory),
        Figure(what=what, value=without, unit="MB", floor=memory[0]),
    ]


async def _sum_up(folder: Path) -> None:
    """Put a summary in the place of the older turns, as the daemon does while a session grows."""
    store, session = _open(folder), main_session(OWNER_NAME)
    try:
        ended = await store.history(session, 0, HISTORY_TURNS)
        if len(ended) == HISTORY_TURNS:
            through = ended[HISTORY_TURNS // 2].turn.id
            assert await store.compact(session, 0, through, ANSWER * 10, None)
    finally:
        await store.close()


# --- many sub-sessions ----------------------------------------------------------------------------


async def children(bench: Bench) -> list[Figure]:
    """A turn that spawns sub-sessions, where its session has had so many; what its model reads of it is the same."""
    sizes = bench.counts.spawned
    folders = [bench.new_folder() for _ in sizes]
    for folder, count in zip(folders, sizes, strict=True):
        await _seed(folder, _one(count), callers=1, end=after_a_child)
        await _seed(folder, _one(HISTORY_TURNS), callers=1)
    async with _side_by_side(bench, folders) as lives:
        took = await _alternating(lives, bench.counts.warm, bench.counts.agent_turns, SPAWN)
    return _turns([f"turn with {CHILDREN} sub-sessions after {count:,} of them" for count in sizes], took)


async def after_a_child(store: Store, lease: Lease) -> None:
    """The turn spawns one, waits for its end, and answers."""
    await store.plan(lease, answer(calls=1), given=[], slots=[])
    await store.start_step(lease, 1, None, beginning())
    child = NewChild(
        session=child_session(lease.turn, 1),
        title="hello",
        task=ANSWER,
        tools=(),
        mode=SpawnMode.RUN,
        active_s=60.0,
        tokens=0,
        expires_in=timedelta(hours=1),
    )
    assert await store.spawn(lease, 1, child)
    assert await store.park(lease)
    await _answer(store, (await store.claim(NODE))[0].lease)
    again = (await store.claim(NODE))[0].lease
    assert again.turn == lease.turn
    assert await store.finish_step(again, 1, result(ANSWER))
    await _answer(store, again)


# --- a long queue ---------------------------------------------------------------------------------


async def queue(bench: Bench) -> list[Figure]:
    """One more message accepted where so many turns are queued, and what it costs to come to the end of them."""
    sizes = bench.counts.grown
    accepts = await _one_more(bench, sizes)
    seconds: list[float] = []
    for count in sizes:
        each = [await _drained(bench, count) for _ in range(bench.counts.starts if count < FULL else 1)]
        seconds.append(measure.p50([took for took, _ in each]))
    names = [f"{count:,} queued turns" for count in sizes]
    return [
        *_turns([f"{name}, one more is accepted" for name in names], accepts),
        *_against_first([f"{name}, each answered in" for name in names], seconds),
        *await _at_most(bench, [count for count in sizes if count >= FULL] or sizes),
    ]


async def _at_most(bench: Bench, sizes: Sequence[int]) -> list[Figure]:
    """The most memory until so many queued turns are answered, of which as many as may be are worked on at once.

    The model thinks about each for half a second: to one that answers at once, a thousand are over before so many of
    them were under way, in one run 53 MB and in the next 59.
    """
    most = [(await _drained(bench, count, SLOW))[1] for count in sizes]
    return _memory([f"{count:,} queued turns, memory at most" for count in sizes], most)


async def _one_more(bench: Bench, sizes: Sequence[int]) -> list[Took]:
    """Return the time to accept a message where so many turns are queued: each in turn, on the same disk."""
    folders = [bench.new_folder() for _ in sizes]
    found: list[list[tuple[float, float]]] = [[] for _ in sizes]
    async with AsyncExitStack() as stack:
        stores: list[Store] = []
        for folder, count in zip(folders, sizes, strict=True):
            await _seed(folder, _many(count), end=None)
            stores.append(_open(folder))
            stack.push_async_callback(stores[-1].close)
        for number in range(bench.counts.warm + bench.counts.turns):
            way, message = _said(FIRST_USER + max(sizes) + number)
            pairs = list(zip(stores, found, strict=True))
            for store, each in [*pairs[number % len(pairs) :], *pairs[: number % len(pairs)]]:
                began, cpu_s = time.perf_counter(), time.process_time()
                await _accept(store, way, message)
                took = time.perf_counter() - began, time.process_time() - cpu_s
                each += [took] if number >= bench.counts.warm else []
    return [_medians(each) for each in found]


async def _drained(bench: Bench, count: int, text: str = ANSWER) -> tuple[float, float]:
    """A daemon starts with so many queued turns: seconds for each, from the first question to the model until the last
    answer is shown, and the most memory meanwhile.
    """
    folder, most, asked = bench.new_folder(), 0.0, len(bench.model.requests)
    await _seed(folder, _many(count, text), end=None)
    async with bench.run_daemon(model=True, folder=folder) as life, asyncio.timeout(DRAINED_WITHIN_S):
        while len(life.watcher.seen) < count:
            most = max(most, measure.pss_mb(life.pid))
            await asyncio.sleep(LOOK_S)
        most = max(most, measure.pss_mb(life.pid))
    began = bench.model.requests[asked].at_s + time.perf_counter() - time.monotonic()
    return (life.watcher.seen[-1][1] - began) / count, most


# --- stores that are full -------------------------------------------------------------------------


def _said(user: int, text: str = ANSWER) -> tuple[Route, Inbound]:
    """A message of a person who may write, in the session of that direct chat."""
    where = Conversation(channel="test", account="bot", chat=f"d{user}")
    way = Route(
        session=SessionId(f"dm:{where.key}"), kind=SessionKind.DM, origin=Origin.DIRECT, owner=None, title=str(user)
    )
    return way, inbound(text, who=principal("test", f"{user}"), where=where)


def _many(count: int, text: str = ANSWER) -> Iterator[tuple[Route, Inbound]]:
    """One message in each of so many sessions."""
    return (_said(FIRST_USER + user, text) for user in range(count))


def _one(count: int) -> Iterator[tuple[Route, Inbound]]:
    """So many messages of the owner's one session."""
    owner = OwnerName("ann")
    way = Route(session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner))
    where = Conversation(channel="test", account="bot", chat=f"d{OWNER}")
    return ((way, inbound(ANSWER, who=principal("test", OWNER), where=where)) for _ in range(count))


async def _answer(store: Store, lease: Lease) -> None:
    """The turn ends with an answer. It stands on the page, so that no life has anything to deliver."""
    given = (await store.turn(lease.turn)).inputs
    slots = [said(ANSWER, where=Conversation(channel="web", account="page", chat="ann"))]
    assert await store.finish_turn(lease, TurnState.DONE, answer=answer(ANSWER), given=given, slots=slots, timers=[])


async def _seed(
    folder: Path, messages: Iterator[tuple[Route, Inbound]], *, callers: int = SEEDERS, end: End | None = _answer
) -> None:
    """Fill a store. `end`: what becomes of each turn; None: it stays queued."""
    store = _open(folder)
    try:
        async with asyncio.TaskGroup() as group:
            for caller in range(callers):
                group.create_task(_fill(store, messages, end), name=f"seeder {caller}")
    finally:
        await store.close()


async def _fill(store: Store, messages: Iterator[tuple[Route, Inbound]], end: End | None) -> None:
    for way, message in messages:
        await _accept(store, way, message)
        if end is not None:
            await end(store, (await store.claim(NODE))[0].lease)


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


async def _alternating(lives: Sequence[Life], warm: int, turns: int, text: str = ANSWER) -> list[Took]:
    """The owner's turns with each daemon in turn, so that all meet the same machine."""
    found: list[list[tuple[float, float]]] = [[] for _ in lives]
    for number in range(warm + turns):
        for life, each in zip(lives, found, strict=True):
            before = measure.cpu_s(life.pid)
            seconds = await life.exchange(text)
            await asyncio.sleep(QUIET_S)
            if number >= warm:
                each.append((seconds, measure.cpu_s(life.pid) - before))
    return [_medians(each) for each in found]


def _medians(each: Sequence[tuple[float, float]]) -> Took:
    return Took(measure.p50([seconds for seconds, _ in each]), measure.p50([cpu_s for _, cpu_s in each]))


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
            budget=first + CACHES_MB if number == last else None,
        )
        for number, (name, one) in enumerate(zip(names, memory, strict=True))
    ]
