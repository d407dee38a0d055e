"""Thousands of approvals that wait: whatever else happens costs what it costs with none. Ratios within one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.domain.ids import NodeId, SessionId, SlotId, WaitId, mint
from gateway.domain.routes import Route, WhileRunning
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitState
from gateway.ports import Store
from gateway.store import open_store
from tests.support.clock import FakeClock
from tests.support.makers import answer, approve, beginning, card, chat, inbound, new_wait, press, result, route
from tests.support.proof import times

WAITING = 10_000
AT_ONCE = 200
ROUNDS = 15
TIMES = 4.0
"""Limit of a round, as a multiple of one in an empty store. Measured: 1; with a scan of ten thousand waits, over 20."""
NODE = NodeId("here#1")
HOUR = timedelta(hours=1)


@pytest_asyncio.fixture
async def store(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    """The store that people use. The one in memory looks at every wait in a sweep: 10 ms for as many."""
    opened = open_store(f"sqlite://{tmp_path / 'dragoman.db'}", clock)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


def room(number: int) -> Route:
    """A session of its own for every approval."""
    return route(SessionId(f"chat:telegram/default/{number}"))


async def ask(store: Store, clock: FakeClock, number: int) -> WaitId:
    """A message whose turn parks on an approval; its card was shown."""
    accepted = await store.accept(
        room(number),
        inbound(where=chat(number), direct=False),
        TurnKind.MODEL,
        running=WhileRunning.QUEUE,
        say_if_waiting=None,
    )
    lease = (await store.claim(NODE))[0].lease
    view = await store.turn(lease.turn)
    await store.plan(lease, answer(calls=1), given=view.inputs, slots=[])
    wait = WaitId(mint("w"))
    slot = SlotId(mint("o"))
    new = new_wait(1, expires_in=HOUR, id=wait)
    assert await store.open_waits(lease, [new], [card(wait, where=chat(number), slot=slot)])
    assert await store.park(lease)
    for due in await store.claim_slots(NODE, ["telegram"], 50):
        await store.slot_sent(due, ("m",))
    assert accepted.turn
    return wait


async def decide(store: Store, wait: WaitId) -> None:
    """Press Once, and run the turn to its end."""
    await store.press(press(), wait, approve())
    lease = (await store.claim(NODE))[0].lease
    assert await store.start_step(lease, 1, wait, beginning(1)) is StartOutcome.STARTED
    assert await store.finish_step(lease, 1, result())
    assert await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=[], slots=[], timers=[])


async def sweep(store: Store) -> None:
    """Run the sweeps of a second, which find nothing."""
    for one in (store.expire_waits, store.reclaim, store.fire_timers):
        assert await one() == 0
    assert not await store.claim(NODE)
    await store.counts()


async def costs(store: Store, clock: FakeClock, numbers: range) -> dict[str, float]:
    """The median seconds of CPU, the writer's included, of asking, deciding and sweeping."""
    spent: dict[str, list[float]] = {"ask": [], "decide": [], "sweep": []}
    for number in numbers:
        began = time.process_time()
        wait = await ask(store, clock, number)
        asked = time.process_time()
        await decide(store, wait)
        decided = time.process_time()
        await sweep(store)
        swept = time.process_time()
        for name, seconds in (("ask", asked - began), ("decide", decided - asked), ("sweep", swept - decided)):
            spent[name].append(seconds)
        for due in await store.claim_slots(NODE, ["telegram"], 50):
            await store.slot_sent(due, ("m",))
    return {name: statistics.median(times) for name, times in spent.items()}


async def fill(store: Store, clock: FakeClock) -> list[WaitId]:
    """So many of them, a part of them at once."""
    waits: list[WaitId] = []
    for first in range(0, WAITING, AT_ONCE):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(store, clock, first + n)) for n in range(AT_ONCE)]
        waits += [task.result() for task in tasks]
    return waits


@pytest.mark.by_the_clock
@pytest.mark.timeout(times(600, 900))
@pytest.mark.whole("compares costs; what thousands of waits do stays")
async def test_everything_else_costs_what_it_costs_with_none(store: Store, clock: FakeClock) -> None:
    """A new message, a press and the sweeps beside thousands of parked turns; and all of them expire in one go."""
    empty = await costs(store, clock, range(20_000, 20_000 + ROUNDS))
    waits = await fill(store, clock)
    assert (await store.counts()).open_approvals == WAITING
    full = await costs(store, clock, range(30_000, 30_000 + ROUNDS))
    for name, seconds in full.items():
        assert seconds <= TIMES * empty[name] + 0.002, (name, empty, full)
    clock.advance(HOUR.total_seconds() + 1)
    found, longest = 0, 0.0
    while True:
        began = time.perf_counter()
        count = await store.expire_waits()
        longest = max(longest, time.perf_counter() - began)
        if count == 0:
            break
        assert count <= 500
        found += count
    assert found == WAITING
    assert longest < 1.0
    last = await store.wait(waits[-1])
    assert last is not None
    assert last.state is WaitState.EXPIRED
    assert (await store.counts()).queued_turns == WAITING
