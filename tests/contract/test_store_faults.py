"""Transitions on a store that fails at each load, each write and each commit: wholly there, or wholly absent."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import PressResult, StartOutcome
from gateway.errors import StoreError
from gateway.store.sqlite import open_sqlite
from gateway.store.sqlite.opening import open_writer
from tests.contract.scene import MAIN, NODE, Scene
from tests.contract.world import World
from tests.support.clock import FakeClock
from tests.support.faulty_store import Faults, FaultyMemoryStore, faulty_connection
from tests.support.makers import (
    answer,
    approve,
    beginning,
    card,
    inbound,
    new_wait,
    press,
    result,
    route,
    said,
    seconds,
)
from tests.support.ram import ram

T = TypeVar("T")


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[World]:
    faults = Faults()
    with TemporaryDirectory(dir=ram()) as folder:
        if request.param == "memory":
            memory = FaultyMemoryStore(clock)
            memory.faults = faults
            found = World(lambda: memory, memory, faults)
        else:
            path = f"{folder}/dragoman.db"
            found = World(lambda: found.store, open_sqlite(path, clock, faulty_connection(faults)), faults)
        yield found
        await found.store.close()


async def _at_every_place(world: World, doing: Callable[[], Awaitable[T]], *, whole: bool) -> T:
    """Let it fail at its first load or statement, then at its second, and so on, until it ends before it fails."""
    before = (await world.snapshot()).text
    for at in count(1):
        world.faults.arm(at, whole=whole)
        try:
            outcome = await doing()
        except StoreError:
            assert world.faults.struck
            world.faults.disarm()
            assert (await world.snapshot()).text == before
        else:
            assert at > 2, "it has at least a load and a write"
            assert not world.faults.struck
            world.faults.disarm()
            return outcome
    raise AssertionError


@pytest.mark.conformance
@pytest.mark.parametrize("whole", [False, True], ids=["statement", "file or conflict"])
async def test_transition_that_failed_anywhere_can_be_repeated(world: World, whole: bool) -> None:
    """The life of a turn with an approval, each transition repeated until no fault strikes it."""
    store, wait, message, pressed = world.store, new_wait(1, expires_in=seconds(60)), inbound(), press()

    async def done(doing: Callable[[], Awaitable[T]]) -> T:
        return await _at_every_place(world, doing, whole=whole)

    accepted = await done(
        lambda: store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.STEER, say_if_waiting=None)
    )
    assert not accepted.duplicate
    (claimed,) = await done(lambda: store.claim(NODE))
    assert claimed.lease.turn == accepted.turn
    lease = claimed.lease
    given = (await store.turn(lease.turn)).inputs
    await done(lambda: store.plan(lease, answer(calls=1), given=given, slots=[said()]))
    assert await done(lambda: store.open_waits(lease, [wait], [card(wait.id)])) == 1
    assert await done(lambda: store.park(lease))
    assert (await done(lambda: store.press(pressed, wait.id, approve()))).result is PressResult.APPROVED
    (claimed,) = await done(lambda: store.claim(NODE))
    lease = claimed.lease
    assert await done(lambda: store.start_step(lease, 1, wait.id, beginning(1))) is StartOutcome.STARTED
    assert await done(lambda: store.finish_step(lease, 1, result(), [said("Look.")]))
    (slot,) = await done(lambda: store.claim_slots(NODE, ["telegram"], 5))
    await done(lambda: store.slot_sent(slot, ("m",)))
    assert await done(
        lambda: store.finish_turn(lease, TurnState.DONE, answer=answer(), given=[], slots=[said("Done.")], timers=[])
    )
    assert (await store.older(MAIN, None, 1)).rows


def test_store_whose_revision_cannot_be_read_does_not_open(clock: FakeClock) -> None:
    """And lets go of its lock."""
    with TemporaryDirectory(dir=ram()) as folder:
        path = f"{folder}/dragoman.db"

        def broken(*given: Any) -> sqlite3.Connection:
            connection = open_writer(*given)
            connection.execute("DROP TABLE meta")
            return connection

        for _ in range(2):
            with pytest.raises(StoreError, match="no such table: meta"):
                open_sqlite(path, clock, broken)
            os.unlink(path)


@pytest.mark.conformance
@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
@pytest.mark.parametrize("whole", [False, True], ids=["statement", "file"])
async def test_claim_of_several_turns_fails_as_a_whole(world: World, clock: FakeClock, whole: bool) -> None:
    """Rows that it read and changed before its failure are not what is stored."""
    scene = Scene(world.store, clock)
    for to in (route(), route(SessionId("chat:g"))):
        await scene.say(to=to)
    claimed = await _at_every_place(world, lambda: world.store.claim(NODE, 2), whole=whole)
    assert len(claimed) == 2
