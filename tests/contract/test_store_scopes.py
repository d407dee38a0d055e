"""Scopes allowed for longer than one call: which used approvals cover later calls, and for how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId
from gateway.domain.routes import Route
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import ApprovalRequest, NewWait, StartOutcome
from gateway.ports import ControlEffect, Store
from gateway.store import open_store
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import approval, beginning, deny, new_wait, route, seconds

HERE, ELSEWHERE = "example.org", "example.net:8080"
OTHER = SessionId("chat:g")
SHELL_HERE = frozenset([("shell", HERE)])
NONE = frozenset[tuple[str, str]]()


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


def scoped(n: int, scope: str, tool: str = "shell") -> ApprovalRequest:
    """Return the wait for step `n`, with its scope."""
    request = approval(n)
    return replace(request, scope=scope, action=replace(request.action, tool=tool))


def wait_for(scene: Scene, request: ApprovalRequest, n: int = 1) -> NewWait:
    ttl = seconds(3600)
    return replace(new_wait(n, expires_in=ttl), approval=request)


async def asked(scene: Scene, *scopes: str, to: Route | None = None) -> Asked:
    """A running turn that asks about a call for each of these scopes."""
    lease = await scene.planned(len(scopes), to=to)
    return await scene.ask(lease, [wait_for(scene, scoped(n, scope), n) for n, scope in enumerate(scopes, 1)])


async def allow(scene: Scene, found: Asked, n: int = 1) -> None:
    """Somebody allows the call, and it begins."""
    await scene.press(found.waits[n - 1])
    assert await scene.start(found.lease, n, found.waits[n - 1]) is StartOutcome.STARTED


async def allowed(scene: Scene, *scopes: str, to: Route | None = None) -> Lease:
    """A running turn whose calls of these scopes were allowed."""
    found = await asked(scene, *scopes, to=to)
    for n in range(1, len(scopes) + 1):
        await allow(scene, found, n)
    return found.lease


@pytest.mark.conformance
async def test_what_was_allowed_and_begun_is_there_and_stays(scene: FamilyScene) -> None:
    found = await asked(scene, HERE, ELSEWHERE, HERE)
    assert await scene.store.allowed_scopes(MAIN) == NONE
    await scene.press(found.wait)
    assert await scene.store.allowed_scopes(MAIN) == NONE  # it is good once its one execution was started
    assert await scene.start(found.lease, 1, found.wait) is StartOutcome.STARTED
    assert await scene.store.allowed_scopes(MAIN) == SHELL_HERE
    await allow(scene, found, 2)
    await allow(scene, found, 3)
    assert await scene.store.allowed_scopes(MAIN) == {("shell", HERE), ("shell", ELSEWHERE)}
    assert await scene.finish(found.lease, TurnState.FAILED)
    assert await scene.store.allowed_scopes(MAIN) == {("shell", HERE), ("shell", ELSEWHERE)}


async def test_each_tool_has_its_own(scene: FamilyScene) -> None:
    lease = await scene.planned(1)
    await allow(scene, await scene.ask(lease, [wait_for(scene, scoped(1, HERE, "browser"))]))

    assert await scene.store.allowed_scopes(MAIN) == {("browser", HERE)}


async def test_an_approval_of_one_call_covers_no_other(scene: FamilyScene) -> None:
    await allowed(scene, "")

    assert await scene.store.allowed_scopes(MAIN) == NONE


@pytest.mark.parametrize("how", ["denied", "expired", "cancelled", "grown old"])
async def test_what_was_not_run_covers_nothing(scene: FamilyScene, clock: FakeClock, how: str) -> None:
    found = await asked(scene, HERE)
    if how == "denied":
        await scene.press(found.wait, deny())
    elif how == "expired":
        clock.advance(3600)
        await scene.sweep(scene.store.expire_waits)
    elif how == "cancelled":
        await scene.stop()
    else:
        await scene.press(found.wait)
        clock.advance(301)
        assert await scene.start(found.lease, 1, found.wait) is StartOutcome.TOO_OLD

    assert await scene.store.allowed_scopes(MAIN) == NONE


@pytest.mark.conformance
async def test_a_new_history_begins_with_nothing_allowed(scene: FamilyScene) -> None:
    lease = await allowed(scene, HERE)
    assert await scene.finish(lease, TurnState.FAILED)
    await scene.stop(ControlEffect.RESET)
    assert await scene.store.allowed_scopes(MAIN) == NONE
    await allowed(scene, ELSEWHERE)
    assert await scene.store.allowed_scopes(MAIN) == {("shell", ELSEWHERE)}


async def test_scope_of_an_old_epoch_allows_nothing_in_the_new_one(scene: FamilyScene) -> None:
    """It was being stopped when the call that was allowed had begun already."""
    await allowed(scene, HERE)
    await scene.stop(ControlEffect.RESET)

    assert await scene.store.allowed_scopes(MAIN) == NONE


async def test_another_session_has_its_own(scene: FamilyScene) -> None:
    await allowed(scene, HERE)
    await allowed(scene, ELSEWHERE, to=route(OTHER))

    assert await scene.store.allowed_scopes(MAIN) == SHELL_HERE
    assert await scene.store.allowed_scopes(OTHER) == {("shell", ELSEWHERE)}
    assert await scene.store.allowed_scopes(SessionId("chat:nobody")) == NONE


@pytest.mark.conformance
async def test_child_has_scopes_from_above_and_gives_none_upwards(scene: FamilyScene) -> None:
    lease = await allowed(scene, HERE)
    await scene.begin_calls(lease)
    child = await scene.born(lease, len((await scene.view(lease.turn)).steps) - 1)
    at_work = await scene.work(child)
    await scene.plan(at_work, 2)
    assert await scene.store.allowed_scopes(child.session) == SHELL_HERE
    await allow(scene, await scene.ask(at_work, [wait_for(scene, scoped(1, ELSEWHERE))]))
    assert await scene.store.start_step(at_work, 2, None, beginning()) is StartOutcome.STARTED
    grandchild = await scene.born(at_work, 2)

    assert await scene.store.allowed_scopes(MAIN) == SHELL_HERE
    assert await scene.store.allowed_scopes(child.session) == {("shell", HERE), ("shell", ELSEWHERE)}
    assert await scene.store.allowed_scopes(grandchild.session) == {("shell", HERE), ("shell", ELSEWHERE)}
    await scene.stop(ControlEffect.RESET)
    assert await scene.store.allowed_scopes(child.session) == {("shell", ELSEWHERE)}


async def test_brothers_and_sisters_have_their_own(scene: FamilyScene) -> None:
    lease = await scene.at_work(2)
    one, other = await scene.born(lease, 1), await scene.born(lease, 2)
    at_work = await scene.work(one)
    await scene.plan(at_work)
    await allow(scene, await scene.ask(at_work, [wait_for(scene, scoped(1, HERE))]))

    assert await scene.store.allowed_scopes(one.session) == SHELL_HERE
    assert await scene.store.allowed_scopes(other.session) == NONE


async def test_it_survives_the_end_of_the_daemon(tmp_path: Path, clock: FakeClock) -> None:
    url = f"sqlite://{tmp_path / 'kept.db'}"
    before = open_store(url, clock)
    await allowed(Scene(before, clock), HERE)
    await before.close()
    after = open_store(url, clock)

    assert await after.allowed_scopes(MAIN) == SHELL_HERE
    await after.close()
