"""Presets and switched-off tools of a session: changed by commands and steps, inherited by sub-sessions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import SessionId, child_session
from gateway.domain.turns import Lease
from gateway.errors import LeaseLost, NotFound
from gateway.ports import ControlEffect, SessionChange, Store
from tests.contract.family import FamilyScene, new_child
from tests.contract.scene import MAIN
from tests.support.clock import FakeClock
from tests.support.makers import control, inbound, result, route

PLAN = SessionChange(preset="plan")


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


async def change(scene: FamilyScene, wanted: SessionChange, effect: ControlEffect = ControlEffect.NONE) -> None:
    assert await scene.store.control(route(), inbound("/plan"), replace(control(effect), change=wanted)) == 0


async def test_new_session_has_the_default_preset(scene: FamilyScene) -> None:
    await scene.say()

    session = await scene.session(MAIN)

    assert (session.preset, session.presets_above, session.tools_off) == ("", (), ())


async def test_command_changes_preset_and_begins_a_session(scene: FamilyScene) -> None:
    await change(scene, PLAN)

    assert (await scene.session(MAIN)).preset == "plan"


async def test_tools_are_switched_off_and_on(scene: FamilyScene) -> None:
    await change(scene, SessionChange(tools_off=frozenset({"shell", "browser"})))
    assert (await scene.session(MAIN)).tools_off == ("browser", "shell")

    await change(scene, SessionChange(tools_on=frozenset({"shell", "unknown"})))
    session = await scene.session(MAIN)

    assert (session.tools_off, session.preset) == (("browser",), "")


async def test_known_command_changes_nothing(scene: FamilyScene) -> None:
    command = inbound("/plan")
    await scene.store.control(route(), command, replace(control(ControlEffect.NONE), change=PLAN))
    await change(scene, SessionChange(preset="build"))

    again = await scene.store.control(route(), command, replace(control(ControlEffect.NONE), change=PLAN))

    assert again is None
    assert (await scene.session(MAIN)).preset == "build"


async def test_new_history_keeps_preset_and_tools_off(scene: FamilyScene) -> None:
    await change(scene, SessionChange(preset="plan", tools_off=frozenset({"shell"})))

    await scene.store.control(route(), inbound("/new"), control(ControlEffect.RESET))
    session = await scene.session(MAIN)

    assert (session.preset, session.tools_off, session.epoch) == ("plan", ("shell",), 1)


async def test_turn_under_way_reads_the_new_preset(scene: FamilyScene) -> None:
    lease = await scene.running()
    await change(scene, PLAN)

    await scene.plan(lease, 1)
    view = await scene.view(lease.turn)

    assert view.session.preset == "plan"


async def test_child_inherits_the_limits_of_all_above(scene: FamilyScene) -> None:
    await change(scene, SessionChange(preset="plan", tools_off=frozenset({"browser"})))
    lease = await scene.at_work()
    child = await explorer(scene, lease)
    below = await scene.claim()
    await scene.begin_calls(below)
    grandchild = await scene.born(below)

    first, second = await scene.session(child), await scene.session(grandchild.session)

    assert (first.preset, first.presets_above, first.tools_off) == ("explore", ("plan",), ("browser",))
    assert (second.preset, second.presets_above, second.tools_off) == ("", ("plan", "explore"), ("browser",))


async def test_change_reaches_live_children(scene: FamilyScene) -> None:
    lease = await scene.at_work()
    child = await explorer(scene, lease)
    below = await scene.claim()
    await scene.begin_calls(below)
    grandchild = await scene.born(below)

    await change(scene, SessionChange(preset="plan", tools_off=frozenset({"browser"})))
    first, second = await scene.session(child), await scene.session(grandchild.session)

    assert (first.preset, first.presets_above, first.tools_off) == ("explore", ("plan",), ("browser",))
    assert (second.preset, second.presets_above, second.tools_off) == ("", ("plan", "explore"), ("browser",))


async def explorer(scene: FamilyScene, lease: Lease) -> SessionId:
    """Return a child with the preset `explore`, spawned by the first step of the turn."""
    await scene.store.spawn(lease, 1, replace(new_child(lease, scene=scene), preset="explore"))
    return child_session(lease.turn, 1)


# --- as the effect of a step ----------------------------------------------------------------


async def test_step_returns_to_the_preset_before(scene: FamilyScene) -> None:
    await change(scene, SessionChange(preset="careful"))
    await change(scene, PLAN)
    await change(scene, PLAN)
    lease = await scene.at_work()

    await scene.store.leave_plan(lease, 1)
    await scene.store.leave_plan(lease, 1)

    assert (await scene.session(MAIN)).preset == "careful"


async def test_step_begins_a_plan_once_and_remembers_what_was(scene: FamilyScene) -> None:
    await change(scene, SessionChange(preset="careful"))
    lease = await scene.at_work(2)
    await scene.store.enter_plan(lease, 1)
    await scene.store.enter_plan(lease, 1)
    assert (await scene.session(MAIN)).preset == "plan"
    await scene.came(lease, 1, result())
    await scene.store.leave_plan(lease, 2)
    assert (await scene.session(MAIN)).preset == "careful"


async def test_step_that_leaves_the_first_preset(scene: FamilyScene) -> None:
    await change(scene, PLAN)
    lease = await scene.at_work()

    await scene.store.leave_plan(lease, 1)

    assert (await scene.session(MAIN)).preset == "", "the default of its kind, whatever that is"


async def test_step_that_is_not_started_changes_nothing(scene: FamilyScene) -> None:
    lease = await scene.running()
    await scene.plan(lease, 1)

    with pytest.raises(NotFound):
        await scene.store.leave_plan(lease, 1)
    with pytest.raises(NotFound):
        await scene.store.leave_plan(lease, 7)

    assert (await scene.session(MAIN)).preset == ""


async def test_lost_lease_changes_nothing(scene: FamilyScene) -> None:
    lease = await scene.at_work()
    await scene.came(lease, 1, result())

    with pytest.raises(LeaseLost):
        await scene.store.leave_plan(replace(lease, fence=lease.fence - 1), 1)

    assert (await scene.session(MAIN)).preset == ""


async def test_sub_session_cannot_choose_a_preset(scene: FamilyScene) -> None:
    child = await scene.child()
    below = await scene.work(child)
    await scene.begin_calls(below)

    with pytest.raises(NotFound):
        await scene.store.leave_plan(below, 1)

    assert (await scene.session(child.session)).preset == ""
