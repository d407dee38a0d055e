"""`Accounts` and `Node`: sign-ins, last contacts, live daemons."""

from __future__ import annotations

import pytest

from gateway.domain.ids import NodeId, OwnerName
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind
from gateway.errors import Forbidden
from gateway.ports import ControlEffect, Store
from tests.contract.scene import NODE, OTHER_NODE, Scene, control
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    chat,
    drop,
    inbound,
    route,
    seconds,
)

WEEK = seconds(7 * 86400)
HOUR = seconds(3600)


# --- sign-in --------------------------------------------------------------------------------


async def test_a_code_signs_its_owner_in(store: Store) -> None:
    """The cookie is theirs from then on."""
    await store.add_code(ANN, "code", HOUR)
    assert await store.signed_in("cookie") is None
    assert await store.redeem_code("code", "cookie", WEEK, "src") == ANN
    assert await store.signed_in("cookie") == ANN
    assert await store.signed_in("code") is None


async def test_a_code_is_good_once(store: Store) -> None:
    """A second use signs nobody in."""
    await store.add_code(ANN, "code", HOUR)
    await store.redeem_code("code", "one", WEEK, "src")
    assert await store.redeem_code("code", "two", WEEK, "src") is None
    assert await store.signed_in("two") is None
    assert await store.signed_in("one") == ANN


@pytest.mark.parametrize(("after_s", "owner"), [(3599, ANN), (3600, None), (3601, None)])
async def test_a_code_expires(store: Store, clock: FakeClock, after_s: float, owner: OwnerName | None) -> None:
    """At its time it is too late."""
    await store.add_code(ANN, "code", HOUR)
    clock.advance(after_s)
    assert await store.redeem_code("code", "cookie", WEEK, "src") == owner


async def test_an_unknown_code_signs_nobody_in(store: Store) -> None:
    """None, not an error."""
    assert await store.redeem_code("guess", "cookie", WEEK, "src") is None
    assert await store.signed_in("cookie") is None


@pytest.mark.parametrize(("after_s", "owner"), [(3599, ANN), (3600, None)])
async def test_a_cookie_lasts_its_time(store: Store, clock: FakeClock, after_s: float, owner: OwnerName | None) -> None:
    """Then it is nobody's."""
    await store.add_code(ANN, "code", HOUR)
    await store.redeem_code("code", "cookie", HOUR, "src")
    clock.advance(after_s)
    assert await store.signed_in("cookie") == owner


async def test_sign_out_ends_one_cookie(store: Store) -> None:
    """That cookie only; twice is safe."""
    for n in "12":
        await store.add_code(ANN, f"code{n}", HOUR)
        await store.redeem_code(f"code{n}", f"cookie{n}", WEEK, "src")
    for _ in range(2):
        await store.sign_out("cookie1")
        assert await store.signed_in("cookie1") is None
    assert await store.signed_in("cookie2") == ANN


async def fail_to_sign_in(store: Store, times: int) -> None:
    """Guess wrong codes from one source."""
    for n in range(times):
        assert await store.redeem_code(f"guess{n}", "cookie", WEEK, "src") is None


async def test_ten_failures_are_allowed_and_no_more(store: Store) -> None:
    """Refuse the eleventh guess of one source, and no guess of another."""
    await fail_to_sign_in(store, 10)
    for _ in range(2):
        with pytest.raises(Forbidden):
            await store.redeem_code("guess", "cookie", WEEK, "src")
    assert await store.redeem_code("guess", "cookie", WEEK, "elsewhere") is None


async def test_a_good_code_signs_in_after_ten_failures(store: Store) -> None:
    """Accept it once, from an address that guesses have locked, and keep the lock."""
    await store.add_code(ANN, "good", HOUR)
    await fail_to_sign_in(store, 10)
    assert await store.redeem_code("good", "cookie", WEEK, "src") == ANN
    assert await store.signed_in("cookie") == ANN
    with pytest.raises(Forbidden):
        await store.redeem_code("good", "other", WEEK, "src")
    assert await store.signed_in("other") is None


async def test_an_expired_code_is_a_failure_like_any_other(store: Store, clock: FakeClock) -> None:
    """Refuse it from a locked address, and change nothing there."""
    await store.add_code(ANN, "old", seconds(60))
    clock.advance(60)
    await fail_to_sign_in(store, 10)
    with pytest.raises(Forbidden):
        await store.redeem_code("old", "cookie", WEEK, "src")
    assert await store.redeem_code("old", "cookie", WEEK, "elsewhere") is None
    assert await store.signed_in("cookie") is None


@pytest.mark.parametrize(("after_s", "again"), [(14 * 60, False), (15 * 60 - 1, False), (15 * 60, True)])
async def test_failures_are_forgotten_after_a_quarter_of_an_hour(
    store: Store, clock: FakeClock, after_s: float, again: bool
) -> None:
    """Then the source may guess again."""
    await fail_to_sign_in(store, 10)
    clock.advance(after_s)
    if again:
        assert await store.redeem_code("guess", "cookie", WEEK, "src") is None
        return
    with pytest.raises(Forbidden):
        await store.redeem_code("guess", "cookie", WEEK, "src")


async def test_successes_do_not_count_as_failures(store: Store) -> None:
    """An owner with many devices is not locked out."""
    for n in range(12):
        await store.add_code(ANN, f"code{n}", HOUR)
        assert await store.redeem_code(f"code{n}", f"cookie{n}", WEEK, "src") == ANN


# --- where people are -----------------------------------------------------------------------


@pytest.mark.conformance
async def test_people_are_reached_where_they_wrote_last_directly(scene: Scene, clock: FakeClock) -> None:
    """Each principal has one such conversation, the last one."""
    await scene.say(where=chat(1), who=ANN_TELEGRAM)
    clock.advance(5)
    await scene.say(where=chat(2), who=ANN_TELEGRAM)
    at = clock.now()
    clock.advance(5)
    await scene.store.control(route(), inbound("/stop", where=CHAT), control(ControlEffect.STOP))
    await scene.say(where=OTHER_CHAT, who=ANN_SLACK)
    contact = await scene.store.last_contact(ANN, [ANN_TELEGRAM, ANN_SLACK, BOB])
    assert contact.direct == {ANN_TELEGRAM: (CHAT, clock.now()), ANN_SLACK: (OTHER_CHAT, clock.now())}
    assert at < clock.now()
    assert contact.page_seen_at is None


async def test_only_those_asked_for_are_told(scene: Scene) -> None:
    """Others stay private."""
    await scene.say(who=BOB)
    assert (await scene.store.last_contact(ANN, [ANN_TELEGRAM])).direct == {}


async def test_a_group_or_a_dropped_message_reaches_nobody(store: Store) -> None:
    """Only an accepted direct message shows where a person is."""
    message = inbound(direct=False)
    await store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    await store.drop(inbound(), drop(), "")
    assert (await store.last_contact(ANN, [ANN_TELEGRAM])).direct == {}


async def test_an_open_page_is_remembered(store: Store, clock: FakeClock) -> None:
    """The last time, for each owner."""
    await store.saw_page(ANN)
    clock.advance(60)
    await store.saw_page(ANN)
    seen = clock.now()
    clock.advance(60)
    assert (await store.last_contact(ANN, [])).page_seen_at == seen
    assert (await store.last_contact(OwnerName("eve"), [])).page_seen_at is None


# --- nodes ----------------------------------------------------------------------------------


async def test_a_name_is_held_by_one(store: Store, clock: FakeClock) -> None:
    """Its holder renews it; another gets it when it has run out; other names are free."""
    assert await store.hold("poller", NODE, seconds(30))
    assert not await store.hold("poller", OTHER_NODE, seconds(30))
    assert await store.hold("other", OTHER_NODE, seconds(30))
    clock.advance(20)
    assert await store.hold("poller", NODE, seconds(30))
    clock.advance(29)
    assert not await store.hold("poller", OTHER_NODE, seconds(30))
    clock.advance(1)
    assert await store.hold("poller", OTHER_NODE, seconds(30))
    assert not await store.hold("poller", NODE, seconds(30))


async def test_an_earlier_life_of_a_node_is_another_holder(store: Store) -> None:
    """A node id names one life; at its start, the next one takes what the dead one held."""
    assert await store.hold("poller", NodeId("here#1"), seconds(30))
    assert await store.hold("elsewhere", NodeId("there#1"), seconds(30))
    assert not await store.hold("poller", NodeId("here#2"), seconds(30))
    await store.void_leases("here")
    assert await store.hold("poller", NodeId("here#2"), seconds(30))
    assert not await store.hold("elsewhere", NodeId("here#2"), seconds(30))


async def test_a_fence_grows_with_each_other_holder(store: Store, clock: FakeClock) -> None:
    """Not with a renewal, however late. It never begins anew: not when the name was given up, nor when it ran out."""
    fences = [await _fence(store, NODE), await _fence(store, NODE)]
    clock.advance(31)
    fences += [await _fence(store, NODE)]
    clock.advance(31)
    await store.alive(NODE)
    fences += [await _fence(store, OTHER_NODE)]
    await store.leave(OTHER_NODE)
    fences += [await _fence(store, NODE)]
    await store.void_leases("here")
    await store.alive(OTHER_NODE)
    fences += [await _fence(store, NodeId("here#2"))]
    assert fences == [1, 1, 1, 2, 3, 4]


async def _fence(store: Store, node: NodeId) -> int:
    lease = await store.hold("poller", node, seconds(30))
    assert lease is not None
    assert (lease.name, lease.node) == ("poller", node)
    return lease.fence


async def test_a_stale_holder_tells_nobody_anything(store: Store, clock: FakeClock) -> None:
    """From the moment that another one took its name; also when it is the holder's own earlier lease."""
    stale = await store.hold("poller", NODE, seconds(30))
    clock.advance(31)
    assert await store.tell_owners("late", "Nobody polls yet.", {ANN: []}, under=stale)
    held = await store.hold("poller", OTHER_NODE, seconds(30))
    assert not await store.tell_owners("conflict", "Somebody polls.", {ANN: []}, under=stale)
    assert await store.tell_owners("conflict", "Somebody polls.", {ANN: []}, under=held)
    await store.leave(OTHER_NODE)
    again = await store.hold("poller", NODE, seconds(30))
    assert not await store.tell_owners("token", "It was revoked.", {ANN: []}, under=stale)
    assert await store.tell_owners("token", "It was revoked.", {ANN: []}, under=again)
