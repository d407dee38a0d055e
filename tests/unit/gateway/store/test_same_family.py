"""Random run with sub-sessions of the memory and the SQLite store side by side.

For any order of spawns, ends, stops, expiry and crashes: the stores never differ, no orphan stays live, and every end
is reported once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from gateway.domain.children import NewChild, NewMessage, SpawnMode
from gateway.domain.ids import child_session
from gateway.domain.messages import Received
from gateway.domain.steps import StepState
from gateway.domain.turns import ENDED, Lease, TurnState
from gateway.domain.views import ChildLine, TurnView
from gateway.domain.waits import WaitKind, WaitState
from gateway.ports import Store
from gateway.store.memory import MemoryStore
from gateway.store.sqlite import open_sqlite
from tests.support.clock import FakeClock
from tests.support.makers import answer, beginning, result
from tests.support.proof import times
from tests.unit.gateway.store import test_same_as_memory as same

MINTED = re.compile(r"\b([itow])[0-9a-f]{16}\b")


@dataclass
class Life(same.Life):
    """One store; waits on children have ids of the store's making too."""

    def plain(self, value: object) -> str:
        return MINTED.sub(lambda found: self.names.setdefault(found[0], f"<{found[1]}{len(self.names)}>"), repr(value))


async def outcome(life: Life, step: same.Step) -> str:
    """Return the result of a step; ids in an error are replaced too."""
    return life.plain(await same.outcome(life, step))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def lives(tmp_path: Path, clock: FakeClock) -> AsyncIterator[list[Life]]:
    stores: list[Store] = [MemoryStore(clock), open_sqlite(str(tmp_path / "store.db"), clock)]
    yield [Life(store) for store in stores]
    for store in stores:
        await store.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(times(8, 8, small=1)))
async def test_a_random_family_is_the_same_everywhere(lives: list[Life], clock: FakeClock, seed: int) -> None:
    random = Random(seed)
    for number in range(times(260, 260, small=130)):
        name, step = choose(random, number, clock)
        said = [await outcome(life, step) for life in lives]
        assert said[0] == said[1], f"{number}: {name}"
        if number % 20 == 0:
            await compare(lives)
    await compare(lives)


async def compare(lives: list[Life]) -> None:
    everything = [await same.everything(life) for life in lives]
    assert everything[0] == everything[1]
    families = [[life.plain(family) for family in await all_families(life.store)] for life in lives]
    assert families[0] == families[1]
    spawned = [[life.plain(children) for children in await all_spawned(life.store)] for life in lives]
    assert spawned[0] == spawned[1]
    await keeps_its_promises(lives[0].store)


async def all_families(store: Store) -> list[list[ChildLine]]:
    sessions = sorted((line.session for line in await store.sessions()), key=lambda one: (one.created_at, one.title))
    roots = [one.id for one in sessions if one.lineage is None]
    return [list(await store.family(root, limit)) for root in roots for limit in (3, 500)]


async def all_spawned(store: Store) -> list[list[ChildLine]]:
    """The same children, by the turns that spawned them."""
    lines = [line.session.lineage for family in await all_families(store) for line in family]
    return [list(await store.children_of(turn)) for turn in dict.fromkeys(line.turn for line in lines if line)]


async def keeps_its_promises(store: Store) -> None:
    """Every child's end is with its parent once; nothing below a root is live that nobody can be told of."""
    told: Counter[str] = Counter()
    for line in await store.sessions(1000):
        rows = (await store.older(line.session.id, None, 100_000)).rows
        told.update(row.item.message.event_key for row in rows if isinstance(row.item, Received))
    assert all(number == 1 for key, number in told.items() if key.startswith("child/"))
    for family in await all_families(store):
        for child in family:
            await _is_in_order(store, child, told)
        live = [child for child in family if child.turn.state not in ENDED]
        assert len(live) <= 5


async def _is_in_order(store: Store, child: ChildLine, told: Counter[str]) -> None:
    line, ended = child.session.lineage, child.turn.state in ENDED
    assert line is not None
    parent = await store.turn(line.turn)
    if line.mode is SpawnMode.SESSION:
        tells = ended and child.turn.state is not TurnState.STOPPED
        assert told[f"child/{child.session.id}/{child.turn.id}/end"] <= tells
        return
    (wait,) = [one for one in parent.waits if one.kind is WaitKind.CHILD and one.n == line.n]
    if wait.state is WaitState.OPEN:
        assert not ended
        assert parent.turn.state not in ENDED
    elif wait.state is not WaitState.ANSWERED:
        assert ended or child.turn.state is TurnState.STOPPING
    assert (wait.state is WaitState.ANSWERED) == ("text" in wait.payload)


# --- the choices ----------------------------------------------------------------------------


def choose(random: Random, number: int, clock: FakeClock) -> tuple[str, same.Step]:
    """A step of the family, or any other."""
    if random.random() < 0.2:
        return same.choose(random, number, clock)
    clock.advance(random.choice([0, 0, 0.0015, 1]))
    make = random.choice([same.claim] * 6 + [spawn] * 5 + [carry_on] * 5 + [send] * 3 + [lapse, stop_one, same.accept])
    return make.__name__, make(random, number, clock)


async def held(life: same.Life, pick: float) -> tuple[Lease, TurnView] | None:
    """A lease that holds its turn, if there is any."""
    found: list[tuple[Lease, TurnView]] = []
    for lease in {lease.turn: lease for lease in life.leases}.values():
        view = await life.store.turn(lease.turn)
        if view.turn.state in (TurnState.RUNNING, TurnState.STOPPING):
            found.append((lease, view))
    return found[int(pick * len(found))] if found else None


def spawn(random: Random, number: int, clock: FakeClock) -> same.Step:
    """A turn calls for children; sometimes again for those it has, or on a step that was not started."""
    pick, calls, starts = random.random(), answer(calls=random.randrange(1, 4)), random.random() < 0.9
    modes = [random.choice(list(SpawnMode)) for _ in range(3)]
    ttl = timedelta(seconds=random.choice([20, 3600, 3600]))

    async def step(life: same.Life) -> object:
        found = await held(life, pick)
        if found is None:
            return None
        lease, view = found
        store = life.store
        if all(one.state is StepState.FINISHED for one in view.steps):
            view = await store.plan(lease, calls, given=same.ungiven(view), slots=[])
        said: list[object] = []
        for n, mode in zip([one.n for one in view.steps if one.call is not None][-3:], modes, strict=False):
            if starts:
                said.append(await store.start_step(lease, n, None, beginning()))
            child = _child(lease, n, mode, number, ttl=ttl)
            said.append(await same.outcome(life, lambda one, n=n, child=child: one.store.spawn(lease, n, child)))
        return said

    return step


def send(random: Random, number: int, _clock: FakeClock) -> same.Step:
    """A turn writes to one of a family, which may be no child of its own; sometimes once more by the same step."""
    pick, which, twice = random.random(), random.random(), random.random() < 0.3
    waits = random.choice([None, None, timedelta(seconds=20), timedelta(seconds=3600)])
    calls = answer(calls=1)

    async def step(life: same.Life) -> object:
        found = await held(life, pick)
        lines = [child for family in await all_families(life.store) for child in family]
        if found is None or not lines:
            return None
        (lease, view), store = found, life.store
        if all(one.state is StepState.FINISHED for one in view.steps):
            view = await store.plan(lease, calls, given=same.ungiven(view), slots=[])
        n = view.steps[-1].n
        child = lines[int(which * len(lines))].session.id
        new = NewMessage(child=child, text=f"more {number}", waits=waits, tools=("a",), active_s=1.0, tokens=5)
        said: list[object] = [await same.outcome(life, lambda one: one.store.start_step(lease, n, None, beginning()))]
        for _ in range(1 + twice):
            said.append(await same.outcome(life, lambda one: one.store.send(lease, n, new)))
        return said

    return step


def _child(lease: Lease, n: int, mode: SpawnMode, number: int, *, ttl: timedelta) -> NewChild:
    return NewChild(
        session=child_session(lease.turn, n),
        title=f"task {number}",
        task=f"do {number}",
        tools=("a", "ü"),
        mode=mode,
        active_s=1.5,
        tokens=9,
        expires_in=ttl,
    )


def carry_on(random: Random, number: int, clock: FakeClock) -> same.Step:
    """Act as a holder: store results of ended children, then park or end the turn."""
    pick, ends, gives_up = random.random(), random.random() < 0.4, random.random() < 0.1
    end = same.end(random, number, clock)

    async def step(life: same.Life) -> object:
        found = await held(life, pick)
        if found is None:
            return None
        lease, view = found
        is_open = {wait.n for wait in view.waits if wait.state is WaitState.OPEN and not gives_up}
        said: list[object] = []
        for one in view.steps:
            if one.state is not StepState.FINISHED and one.n not in is_open:
                said.append(await life.store.finish_step(lease, one.n, result(f"r{number}")))
        said.append(await life.store.park(lease))
        if said[-1] is False and (ends or not is_open):
            said.append(await end(life.store, lease, view))
        return said

    return step


def lapse(random: Random, _number: int, clock: FakeClock) -> same.Step:
    """Every holder is lost, or every wait grows old."""
    clock.advance(random.choice([16, 16, 61]))
    waits = random.random() < 0.5
    return lambda life: life.store.expire_waits() if waits else life.store.reclaim()


def stop_one(random: Random, number: int, _clock: FakeClock) -> same.Step:
    """Somebody stops one of a family, or what is none of it."""
    pick, wrong = random.random(), random.random() < 0.1

    async def step(life: same.Life) -> object:
        lines = [child for family in await all_families(life.store) for child in family]
        if not lines:
            return None
        child = lines[int(pick * len(lines))].session
        above = child.id if wrong else child.lineage.root if child.lineage else child.id
        return await life.store.stop_child(above, child.id, f"stopped by {number}")

    return step
