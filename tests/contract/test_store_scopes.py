"""Scopes allowed for longer than one call: the grants that approvals of them become, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.grants import GrantKind, GrantPlace
from gateway.domain.ids import Person, TurnId
from gateway.domain.routes import Route
from gateway.domain.turns import Lease
from gateway.domain.waits import ApprovalRequest, NewWait, PressVerdict, StartOutcome
from gateway.ports import ControlEffect, Store
from tests.contract.family import FamilyScene
from tests.contract.scene import Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import approval, approve, beginning, deny, new_wait, seconds

HERE, ELSEWHERE = "example.org", "example.net:8080"
NONE = frozenset[tuple[str, str]]()
DAY = 86_400.0


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


def scoped(n: int, scope: str, tool: str = "shell") -> ApprovalRequest:
    """Return the wait for step `n`, with its scope."""
    request = approval(n)
    return replace(request, scope=scope, action=replace(request.action, tool=tool))


def wait_for(request: ApprovalRequest, n: int = 1) -> NewWait:
    return replace(new_wait(n, expires_in=seconds(3600)), approval=request)


async def asked_about(scene: Scene, *scopes: str, to: Route | None = None) -> Asked:
    """A running turn that asks about a call for each of these scopes."""
    lease = await scene.planned(len(scopes), to=to)
    return await scene.ask(lease, [wait_for(scoped(n, scope), n) for n, scope in enumerate(scopes, 1)])


async def allow(scene: Scene, found: Asked, n: int = 1) -> None:
    """Somebody allows the call, and it begins."""
    await scene.press(found.waits[n - 1])
    tool = ((await scene.wait(found.waits[n - 1])).approval or approval(n)).action.tool
    record = replace(beginning(n), tool=tool)
    assert await scene.store.start_step(found.lease, n, found.waits[n - 1], record) is StartOutcome.STARTED


async def allowed(scene: Scene, *scopes: str, to: Route | None = None) -> Lease:
    """A running turn whose calls of these scopes were allowed."""
    found = await asked_about(scene, *scopes, to=to)
    for n in range(1, len(scopes) + 1):
        await allow(scene, found, n)
    return found.lease


async def scopes_of(store: Store, turn: TurnId) -> frozenset[tuple[str, str]]:
    """Return tool and scope of the grants that hold for a turn."""
    found = await store.grants_for(turn)
    return frozenset((one.tool, one.matches[0]) for one in found if one.kind is GrantKind.SCOPE)


@pytest.mark.parametrize(
    ("allowed_by", "rules"),
    [
        (approve(), (1, False)),
        (replace(approve(), by_another=True), (1, True)),
        (
            replace(approve(), quorum=2, person=Person("bob"), among=frozenset({Person("bob"), Person("ann")})),
            (2, False),
        ),
    ],
)
async def test_grant_of_a_scope_keeps_who_had_to_allow_it(
    scene: FamilyScene, allowed_by: PressVerdict, rules: tuple[int, bool]
) -> None:
    found = await asked_about(scene, HERE)
    if allowed_by.quorum > 1:
        await scene.press(found.wait, replace(allowed_by, person=Person("ann")))
    await scene.press(found.wait, allowed_by)
    assert await scene.store.start_step(found.lease, 1, found.wait, beginning(1)) is StartOutcome.STARTED
    (grant,) = await scene.store.grants_for(found.turn)
    assert (grant.quorum, grant.by_another) == rules


async def test_an_allowed_scope_becomes_a_grant_when_its_call_begins(scene: FamilyScene) -> None:
    found = await asked_about(scene, HERE, ELSEWHERE, HERE)
    await scene.press(found.wait)
    assert await scopes_of(scene.store, found.turn) == NONE
    assert await scene.start(found.lease, 1, found.wait) is StartOutcome.STARTED
    assert await scopes_of(scene.store, found.turn) == {("shell", HERE)}
    await allow(scene, found, 2)
    await allow(scene, found, 3)
    assert await scopes_of(scene.store, found.turn) == {("shell", HERE), ("shell", ELSEWHERE)}
    grants = await scene.store.live_grants()
    assert sorted((one.place, one.shown) for one in grants) == [
        (GrantPlace.SESSION, f"shell with {ELSEWHERE}"),
        (GrantPlace.SESSION, f"shell with {HERE}"),
    ]
    assert {one.expires_at for one in grants} == {scene.clock.now() + seconds(30 * DAY)}


async def test_each_tool_has_its_own_scopes(scene: FamilyScene) -> None:
    lease = await scene.planned(1)
    await allow(scene, await scene.ask(lease, [wait_for(scoped(1, HERE, "browser"))]))
    assert await scopes_of(scene.store, lease.turn) == {("browser", HERE)}


async def test_an_approval_of_one_call_grants_nothing(scene: FamilyScene) -> None:
    await allowed(scene, "")
    assert await scene.store.live_grants() == []


@pytest.mark.parametrize("how", ["denied", "expired", "cancelled", "grown old"])
async def test_a_scope_that_was_not_run_grants_nothing(scene: FamilyScene, clock: FakeClock, how: str) -> None:
    found = await asked_about(scene, HERE)
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

    assert await scene.store.live_grants() == []


async def test_scope_of_an_old_epoch_allows_nothing_in_the_new_one(scene: FamilyScene) -> None:
    """It was being stopped when the call that was allowed had begun already."""
    await allowed(scene, HERE)
    await scene.stop(ControlEffect.RESET)
    assert await scene.store.live_grants() == []


async def test_child_has_grants_from_above_and_gives_none_upwards(scene: FamilyScene) -> None:
    lease = await allowed(scene, HERE)
    await scene.begin_calls(lease)
    child = await scene.born(lease, len((await scene.view(lease.turn)).steps) - 1)
    at_work = await scene.work(child)
    await scene.plan(at_work, 2)
    assert await scopes_of(scene.store, child.turn) == {("shell", HERE)}
    await allow(scene, await scene.ask(at_work, [wait_for(scoped(1, ELSEWHERE))]))
    (above, _) = await scene.store.grants_for(child.turn)
    by_it = replace(beginning(), grant=above.id)
    assert await scene.store.start_step(at_work, 2, None, by_it) is StartOutcome.STARTED
    grandchild = await scene.born(at_work, 2)

    assert await scopes_of(scene.store, lease.turn) == {("shell", HERE)}
    assert await scopes_of(scene.store, child.turn) == {("shell", HERE), ("shell", ELSEWHERE)}
    assert await scopes_of(scene.store, grandchild.turn) == {("shell", HERE), ("shell", ELSEWHERE)}
    await scene.stop(ControlEffect.RESET)
    assert await scopes_of(scene.store, child.turn) == {("shell", ELSEWHERE)}


async def test_brothers_and_sisters_have_their_own_grants(scene: FamilyScene) -> None:
    lease = await scene.at_work(2)
    one, other = await scene.born(lease, 1), await scene.born(lease, 2)
    at_work = await scene.work(one)
    await scene.plan(at_work)
    await allow(scene, await scene.ask(at_work, [wait_for(scoped(1, HERE))]))

    assert await scopes_of(scene.store, one.turn) == {("shell", HERE)}
    assert await scopes_of(scene.store, other.turn) == NONE
