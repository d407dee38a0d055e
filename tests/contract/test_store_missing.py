"""Transitions over rows that are loaded one by one: each run of one has no effect but its rows."""

from __future__ import annotations

from gateway.domain.turns import TurnState
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, Scene
from tests.support.clock import FakeClock
from tests.support.lazy_store import LazyStore


async def test_transition_that_misses_rows_is_run_again(clock: FakeClock) -> None:
    """A run for each row, and the result of one."""
    store = LazyStore(clock)
    accepted = await Scene(store, clock).say()
    assert store.runs > 3
    assert (await store.turn(accepted.turn)).turn.state is TurnState.QUEUED
    assert len(store.turns) == len(store.messages) == 1
    assert (await store.older(MAIN, None, 10)).rev == store.rev


async def test_transition_that_runs_again_names_new_rows_alike(clock: FakeClock) -> None:
    """It may ask for rows by a new id: with another one each time it would never end."""
    store = LazyStore(clock)
    scene = FamilyScene(store, clock)
    wait = await scene.spawn(await scene.at_work())
    assert list(store.waits) == [wait]
