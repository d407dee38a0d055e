"""Outcome of the hooks before a call: stored with its step, once, and as it was."""

from __future__ import annotations

import pytest

from gateway.domain.hooks import HookOutcome
from gateway.domain.ids import TurnId
from gateway.domain.steps import Step, StepState
from gateway.errors import LeaseLost, NotFound
from tests.contract.scene import Scene

CHANGED = HookOutcome(by="hooks[0] (check)", arguments='{"command": "ls"}')
REFUSED = HookOutcome(by="hooks[1] (check 😀)", refused="no\n")


async def step_of(scene: Scene, turn: TurnId, n: int = 1) -> Step:
    view = await scene.store.turn(turn)
    return next(step for step in view.steps if step.n == n)


@pytest.mark.parametrize("outcome", [HookOutcome(), CHANGED, REFUSED])
async def test_a_stored_outcome_is_read_as_it_was(scene: Scene, outcome: HookOutcome) -> None:
    """An outcome without an effect is one too: the hooks have run."""
    lease = await scene.planned()
    before = await step_of(scene, lease.turn)
    assert before.hook_outcome is None
    await scene.store.store_hook_outcome(lease, 1, outcome)
    step = await step_of(scene, lease.turn)
    assert step.hook_outcome == outcome
    assert step.call == before.call, "the transcript keeps what the model asked for"
    assert step.arguments == (outcome.arguments or (step.call.arguments if step.call else ""))


async def test_the_first_outcome_stays(scene: Scene) -> None:
    """A later holder writes nothing: hooks run once."""
    lease = await scene.planned()
    await scene.store.store_hook_outcome(lease, 1, CHANGED)
    await scene.store.store_hook_outcome(lease, 1, REFUSED)
    assert (await step_of(scene, lease.turn)).hook_outcome == CHANGED


async def test_an_outcome_outlives_the_holder(scene: Scene) -> None:
    """The next holder finds it, and a holder without a lease writes nothing."""
    lease = await scene.planned(2)
    await scene.store.store_hook_outcome(lease, 1, CHANGED)
    await scene.lapse()
    again = await scene.claim()
    with pytest.raises(LeaseLost):
        await scene.store.store_hook_outcome(lease, 2, REFUSED)
    assert (await step_of(scene, again.turn)).hook_outcome == CHANGED
    assert (await step_of(scene, again.turn, 2)).hook_outcome is None


async def test_only_a_planned_call_gets_an_outcome(scene: Scene) -> None:
    """A call that was asked about or started is decided already."""
    asked = await scene.asked()
    await scene.store.store_hook_outcome(asked.lease, 1, CHANGED)
    assert (await step_of(scene, asked.lease.turn)).hook_outcome is None
    await scene.press(asked.wait)
    await scene.start(asked.lease, 1, asked.wait)
    await scene.store.store_hook_outcome(asked.lease, 1, CHANGED)
    step = await step_of(scene, asked.lease.turn)
    assert (step.state, step.hook_outcome) == (StepState.STARTED, None)
    with pytest.raises(NotFound):
        await scene.store.store_hook_outcome(asked.lease, 9, CHANGED)


async def test_an_outcome_stays_through_the_whole_call(scene: Scene) -> None:
    """Until its result, which says what ran."""
    lease = await scene.planned()
    await scene.store.store_hook_outcome(lease, 1, CHANGED)
    await scene.start(lease, 1)
    await scene.finish(lease)
    assert (await step_of(scene, lease.turn)).hook_outcome == CHANGED
