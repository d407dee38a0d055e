"""Grants: given by a confirming press or the first call of a scope, used at a start, revoked, expired, listed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.audit import StartBasis
from gateway.domain.grants import Grant, GrantKind, GrantOffer, GrantPlace
from gateway.domain.ids import GrantId, Principal, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.routes import Route
from gateway.domain.slots import SlotKind
from gateway.domain.tools import Risk
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import (
    ALWAYS_ASKED,
    GRANTED,
    ApprovalRequest,
    NewWait,
    PressResult,
    PressVerdict,
    StartOutcome,
    WaitState,
)
from gateway.ports import ControlEffect, Store
from gateway.store import open_store
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, NODE, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    approval,
    approve,
    beginning,
    confirm,
    control,
    deny,
    inbound,
    new_wait,
    press,
    question,
    route,
    seconds,
)

HERE, ELSEWHERE = "example.org", "example.net:8080"
GROUP = SessionId("chat:g")
NONE = frozenset[tuple[str, str]]()
EVERYWHERE = (GrantPlace.CHAT, GrantPlace.SESSION, GrantPlace.PERSON)
OFFER = GrantOffer(kind=GrantKind.ACTION, matches=("key",), places=EVERYWHERE, shown="shell date")
DAY = 86_400.0


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> FamilyScene:
    return FamilyScene(store, clock)


async def offered(
    scene: Scene, offer: GrantOffer | None = OFFER, *, to: Route | None = None, ttl_s: float = 3600
) -> Asked:
    """A running turn that waits for a decision which may be given as a grant."""
    lease = await scene.planned(to=to)
    return await scene.ask(lease, [wait_for(scene, replace(approval(1), always=offer), ttl_s=ttl_s)])


def wait_for(scene: Scene, request: ApprovalRequest, n: int = 1, *, ttl_s: float = 3600) -> NewWait:
    return replace(new_wait(n, expires_in=seconds(ttl_s)), approval=request)


async def granted(
    scene: Scene,
    place: GrantPlace = GrantPlace.SESSION,
    *,
    to: Route | None = None,
    days: float = 30,
    kind: GrantKind = GrantKind.ACTION,
    risk: Risk = Risk.EXECUTE,
) -> tuple[Asked, Grant]:
    """A running turn whose call was granted and begun, and the newest grant."""
    lease = await scene.planned(to=to)
    request = replace(approval(1), always=replace(OFFER, kind=kind), risk=risk)
    asked = await scene.ask(lease, [wait_for(scene, request)])
    await scene.press(asked.wait, question())
    assert (await scene.press(asked.wait, confirm(place, seconds(days * DAY)))).result is PressResult.APPROVED
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED
    return asked, (await scene.store.live_grants())[0]


async def again(
    scene: Scene, *, to: Route | None = None, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT
) -> Lease:
    """A new running turn with one planned call."""
    await scene.say(to=to, who=who, where=where)
    lease = await scene.claim()
    await scene.plan(lease)
    return lease


async def ids_for(scene: Scene, turn: TurnId) -> list[GrantId]:
    return [one.id for one in await scene.store.grants_for(turn)]


async def use(scene: Scene, lease: Lease, grant: GrantId) -> StartOutcome:
    return await scene.store.start_step(lease, 1, None, replace(beginning(1), grant=grant))


# --- the confirming press -----------------------------------------------------------------------


async def test_always_asks_a_question_and_grants_nothing(scene: FamilyScene) -> None:
    asked = await offered(scene)
    await scene.store.park(asked.lease)
    before = await scene.slot_of(asked.turn, SlotKind.CARD)
    pressed = await scene.press(asked.wait, question())

    assert (pressed.result, pressed.wait) == (PressResult.ASK_ALWAYS, await scene.wait(asked.wait))
    wait = await scene.wait(asked.wait)
    assert (wait.state, wait.asks_always, wait.decided_by) == (WaitState.OPEN, True, None)
    assert await scene.store.live_grants() == []
    assert await scene.state(asked.turn) is TurnState.PARKED
    assert (await scene.slot_of(asked.turn, SlotKind.CARD)).version == before.version + 1


async def test_back_asks_the_first_question_again(scene: FamilyScene) -> None:
    asked = await offered(scene)
    await scene.press(asked.wait, question())
    assert (await scene.press(asked.wait, question(asks=False))).result is PressResult.BACK
    assert not (await scene.wait(asked.wait)).asks_always
    late = await scene.press(asked.wait, confirm(GrantPlace.CHAT))
    assert late.result is PressResult.NOT_VALID
    assert await scene.store.live_grants() == []


@pytest.mark.conformance
async def test_confirming_press_decides_grants_and_queues_at_once(scene: FamilyScene, clock: FakeClock) -> None:
    asked = await offered(scene)
    await scene.store.park(asked.lease)
    await scene.press(asked.wait, question())
    clock.advance(5)
    pressed = await scene.store.press(press(who=ANN_SLACK), asked.wait, confirm(GrantPlace.CHAT, seconds(60)))

    assert pressed.result is PressResult.APPROVED
    wait = await scene.wait(asked.wait)
    assert (wait.state, wait.decided_by, wait.payload) == (WaitState.APPROVED, ANN_SLACK, {GRANTED: "chat"})
    assert await scene.state(asked.turn) is TurnState.QUEUED
    (grant,) = await scene.store.live_grants()
    assert (grant.tool, grant.kind, grant.matches, grant.shown) == ("shell", GrantKind.ACTION, ("key",), "shell date")
    assert (grant.place, grant.session, grant.epoch, grant.conversation) == (GrantPlace.CHAT, MAIN, 0, CHAT)
    assert (grant.principal, grant.granted_by, grant.wait) == (ANN_TELEGRAM, ANN_SLACK, asked.wait)
    assert (grant.granted_at, grant.expires_at) == (clock.now(), clock.now() + seconds(60))
    assert (grant.used, grant.last_used_at, grant.ended) == (0, None, False)


async def test_nothing_is_granted_without_the_question(scene: FamilyScene) -> None:
    asked = await offered(scene)
    assert (await scene.press(asked.wait, confirm(GrantPlace.CHAT))).result is PressResult.NOT_VALID
    assert await scene.wait_state(asked.wait) is WaitState.OPEN
    assert await scene.store.live_grants() == []


@pytest.mark.parametrize(
    ("offer", "place"),
    [(None, GrantPlace.CHAT), (replace(OFFER, places=(GrantPlace.CHAT,)), GrantPlace.PERSON)],
    ids=["no offer", "another place"],
)
async def test_only_what_was_offered_is_granted(
    scene: FamilyScene, offer: GrantOffer | None, place: GrantPlace
) -> None:
    asked = await offered(scene, offer)
    opened = (await scene.press(asked.wait, question())).result
    assert opened is (PressResult.NOT_VALID if offer is None else PressResult.ASK_ALWAYS)
    assert (await scene.press(asked.wait, confirm(place))).result is PressResult.NOT_VALID
    assert await scene.store.live_grants() == []


@pytest.mark.parametrize("verdict", [approve(), deny()])
async def test_once_and_deny_still_decide_during_the_question(scene: FamilyScene, verdict: PressVerdict) -> None:
    asked = await offered(scene)
    await scene.press(asked.wait, question())
    pressed = await scene.press(asked.wait, verdict)
    assert pressed.result in (PressResult.APPROVED, PressResult.DENIED)
    assert ALWAYS_ASKED not in (await scene.wait(asked.wait)).payload
    assert await scene.store.live_grants() == []


async def test_double_and_late_confirmations_grant_once(scene: FamilyScene, clock: FakeClock) -> None:
    asked = await offered(scene)
    await scene.press(asked.wait, question())
    one = press()
    assert (await scene.store.press(one, asked.wait, confirm(GrantPlace.CHAT))).result is PressResult.APPROVED
    assert (await scene.store.press(one, asked.wait, confirm(GrantPlace.CHAT))).result is PressResult.DUPLICATE
    assert (await scene.press(asked.wait, confirm(GrantPlace.SESSION))).result is PressResult.ALREADY
    assert (await scene.press(asked.wait, question())).result is PressResult.ALREADY
    assert [grant.place for grant in await scene.store.live_grants()] == [GrantPlace.CHAT]

    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED
    assert await scene.finish(asked.lease, TurnState.FAILED)
    other = await offered(scene, ttl_s=60)
    await scene.press(other.wait, question())
    clock.advance(60)
    assert (await scene.press(other.wait, confirm(GrantPlace.SESSION))).result is PressResult.EXPIRED
    assert len(await scene.store.live_grants()) == 1


@pytest.mark.parametrize("how", ["stopped", "expired", "denied beside"])
async def test_no_grant_after_the_wait_was_closed(scene: FamilyScene, clock: FakeClock, how: str) -> None:
    """Approve after abort, and a sibling's rejection: nothing runs and nothing is granted."""
    lease = await scene.planned(2)
    requests = [replace(approval(n), always=OFFER) for n in (1, 2)]
    asked = await scene.ask(lease, [wait_for(scene, one, n) for n, one in enumerate(requests, 1)])
    await scene.press(asked.wait, question())
    if how == "stopped":
        await scene.stop()
    elif how == "expired":
        clock.advance(3600)
        await scene.sweep(scene.store.expire_waits)
    else:
        await scene.press(asked.waits[1], deny(withdraw_siblings=True))

    late = await scene.press(asked.wait, confirm(GrantPlace.CHAT))
    assert late.result in (PressResult.ALREADY, PressResult.EXPIRED)
    assert await scene.store.live_grants() == []
    assert await scene.start(asked.lease, 1, asked.wait) is not StartOutcome.STARTED


# --- where it holds, and its use ------------------------------------------------------------------


async def test_a_grant_is_counted_when_it_is_used(scene: FamilyScene, clock: FakeClock) -> None:
    asked, grant = await granted(scene)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    for n in (1, 2):
        clock.advance(60)
        lease = await again(scene)
        assert await ids_for(scene, lease.turn) == [grant.id]
        assert await use(scene, lease, grant.id) is StartOutcome.STARTED
        (now,) = await scene.store.live_grants()
        assert (now.used, now.last_used_at) == (n, clock.now())
        assert await scene.finish(lease, TurnState.FAILED)
    rows = await scene.store.audit_rows(0, 10)
    assert [(row.basis, row.grant) for row in rows] == [
        (StartBasis.APPROVAL, None),
        (StartBasis.GRANT, grant.id),
        (StartBasis.GRANT, grant.id),
    ]


@pytest.mark.parametrize("how", ["revoked", "expired", "swept", "unknown", "other tool"])
async def test_a_grant_that_ended_starts_nothing(scene: FamilyScene, clock: FakeClock, how: str) -> None:
    """It was read when the call was decided; between that and the start it ended."""
    asked, grant = await granted(scene, GrantPlace.CHAT)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    lease, id_ = await again(scene), grant.id
    match how:
        case "revoked":
            assert await scene.store.revoke_grant(grant.id, BOB) is not None
        case "expired" | "swept":
            clock.advance(30 * DAY)
            if how == "swept":
                assert await scene.sweep(scene.store.expire_grants) == 1
                clock.advance(-20 * DAY)
        case "unknown":
            id_ = GrantId("g0")
        case _:
            pass
    record = replace(beginning(1), grant=id_, tool="shell" if how != "other tool" else "browser")
    assert await scene.store.start_step(lease, 1, None, record) is StartOutcome.NOT_GRANTED

    assert (await scene.step(lease.turn, 1)).started_at is None
    assert len(await scene.store.audit_rows(0, 10)) == 1
    assert (await ids_for(scene, lease.turn) == []) is (how in ("revoked", "expired", "swept"))


@pytest.mark.parametrize(
    ("place", "who", "where", "to", "is_held"),
    [
        (GrantPlace.SESSION, ANN_TELEGRAM, CHAT, None, True),
        (GrantPlace.SESSION, ANN_SLACK, OTHER_CHAT, None, True),
        (GrantPlace.SESSION, ANN_TELEGRAM, CHAT, route(GROUP), False),
        (GrantPlace.CHAT, ANN_SLACK, CHAT, None, True),
        (GrantPlace.CHAT, ANN_TELEGRAM, OTHER_CHAT, None, False),
        (GrantPlace.CHAT, ANN_TELEGRAM, CHAT, route(GROUP), False),
        (GrantPlace.PERSON, ANN_TELEGRAM, OTHER_CHAT, None, True),
        (GrantPlace.PERSON, ANN_SLACK, CHAT, None, False),
        (GrantPlace.PERSON, ANN_TELEGRAM, CHAT, route(GROUP), False),
    ],
)
async def test_a_grant_holds_in_its_place_and_nowhere_else(
    scene: FamilyScene, place: GrantPlace, who: Principal, where: Conversation, to: Route | None, is_held: bool
) -> None:
    asked, grant = await granted(scene, place)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    lease = await again(scene, to=to, who=who, where=where)

    assert (await ids_for(scene, lease.turn) == [grant.id]) is is_held
    outcome = StartOutcome.STARTED if is_held else StartOutcome.NOT_GRANTED
    assert await use(scene, lease, grant.id) is outcome


@pytest.mark.parametrize("place", list(GrantPlace))
async def test_a_new_history_ends_grants_for_the_session_alone(scene: FamilyScene, place: GrantPlace) -> None:
    asked, grant = await granted(scene, place)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    await scene.stop(ControlEffect.RESET)
    lease, stays = await again(scene), place is not GrantPlace.SESSION

    assert (await ids_for(scene, lease.turn) == [grant.id]) is stays
    assert (len(await scene.store.live_grants()) == 1) is stays
    assert (await use(scene, lease, grant.id) is StartOutcome.STARTED) is stays


async def test_an_interrupted_call_needs_its_grant_again(scene: FamilyScene) -> None:
    asked, grant = await granted(scene)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    lease = await again(scene)
    assert await use(scene, lease, grant.id) is StartOutcome.STARTED
    await scene.lapse()
    later = await scene.claim()
    await scene.store.revoke_grant(grant.id, ANN_TELEGRAM)
    assert await use(scene, later, grant.id) is StartOutcome.NOT_GRANTED


async def test_a_stopped_turn_uses_no_grant(scene: FamilyScene) -> None:
    asked, grant = await granted(scene)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    lease = await again(scene)
    await scene.stop()
    assert await use(scene, lease, grant.id) is StartOutcome.STOPPING
    assert [one.used for one in await scene.store.live_grants()] == [0]


# --- the end of a grant ---------------------------------------------------------------------------


async def test_a_revoked_grant_is_gone_at_once_and_for_ever(scene: FamilyScene) -> None:
    asked, grant = await granted(scene, GrantPlace.CHAT)
    revoked = await scene.store.revoke_grant(grant.id, BOB)
    assert revoked is not None
    assert (revoked.id, revoked.revoked_at, revoked.revoked_by) == (grant.id, scene.clock.now(), BOB)
    assert await scene.store.revoke_grant(grant.id, ANN_TELEGRAM) is None
    assert await scene.store.revoke_grant(GrantId("g0"), ANN_TELEGRAM) is None
    assert await scene.store.live_grants() == []
    assert await ids_for(scene, asked.turn) == []
    assert (await scene.store.counts()).grants == 0


async def test_a_command_revokes_in_its_own_transition(scene: FamilyScene) -> None:
    _, grant = await granted(scene, GrantPlace.CHAT)
    said = inbound("/grants revoke", where=OTHER_CHAT)
    control_ = replace(control(ControlEffect.NONE), revoke=grant.id)
    assert await scene.store.control(route(), said, control_) == 0
    assert await scene.store.live_grants() == []
    asked, again_ = await granted(scene, GrantPlace.CHAT, to=route(GROUP))
    assert asked.turn
    assert await scene.store.control(route(), said, replace(control_, revoke=again_.id)) is None
    assert [one.id for one in await scene.store.live_grants()] == [again_.id]


async def test_a_grant_given_again_is_renewed_under_its_id(scene: FamilyScene, clock: FakeClock) -> None:
    asked, grant = await granted(scene, GrantPlace.CHAT)
    assert re.fullmatch("g[0-9a-f]{16}", grant.id)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    await scene.store.revoke_grant(grant.id, BOB)
    clock.advance(DAY)
    other, anew = await granted(scene, GrantPlace.CHAT)
    assert (anew.id, anew.granted_at, anew.wait) == (grant.id, clock.now(), other.wait)
    assert not anew.ended
    assert await scene.finish(other.lease, TurnState.FAILED)
    _, third = await granted(scene, GrantPlace.PERSON)
    assert third.id != grant.id
    assert len(await scene.store.live_grants()) == 2


@pytest.mark.parametrize(
    ("place", "kind", "change", "is_the_same"),
    [
        (GrantPlace.CHAT, GrantKind.ACTION, "history", True),
        (GrantPlace.SESSION, GrantKind.ACTION, "history", False),
        (GrantPlace.CHAT, GrantKind.ACTION, "risk", True),
        (GrantPlace.CHAT, GrantKind.SUBJECTS, "risk", False),
    ],
)
async def test_a_grant_is_another_one_when_it_allows_other_calls(
    scene: FamilyScene, clock: FakeClock, place: GrantPlace, kind: GrantKind, change: str, is_the_same: bool
) -> None:
    """One grant for people is one row, or it would have to be revoked twice."""
    asked, grant = await granted(scene, place, kind=kind)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    if change == "history":
        await scene.stop(ControlEffect.RESET)
    clock.advance(1)
    _, anew = await granted(scene, place, kind=kind, risk=Risk.NETWORK if change == "risk" else grant.risk)
    assert (anew.id == grant.id) is is_the_same


@pytest.mark.conformance
async def test_grants_expire_by_the_stores_own_time(scene: FamilyScene, clock: FakeClock) -> None:
    asked, _ = await granted(scene, GrantPlace.CHAT, days=1)
    assert (await scene.store.counts()).grants == 1
    clock.advance(DAY - 0.001)
    assert await scene.store.expire_grants() == 0
    assert len(await ids_for(scene, asked.turn)) == 1
    clock.advance(0.001)
    assert await ids_for(scene, asked.turn) == []
    assert await scene.store.live_grants() == []
    assert await scene.sweep(scene.store.expire_grants) == 1
    assert (await scene.store.counts()).grants == 0


@pytest.mark.conformance
async def test_lists_have_the_newest_first_and_a_limit(scene: FamilyScene, clock: FakeClock) -> None:
    found: list[GrantId] = []
    for place in (GrantPlace.CHAT, GrantPlace.PERSON, GrantPlace.SESSION):
        asked, _ = await granted(scene, place)
        assert await scene.finish(asked.lease, TurnState.FAILED)
        found.insert(0, next(one.id for one in await scene.store.live_grants() if one.place is place))
        clock.advance(1)
    assert [one.id for one in await scene.store.live_grants()] == found
    assert [one.id for one in await scene.store.live_grants(2)] == found[:2]
    assert await scene.store.grants_for(TurnId("t0")) == []


# --- sub-sessions and restarts -------------------------------------------------------------------


async def test_a_childs_grant_for_the_chat_holds_in_its_roots_chat(scene: FamilyScene) -> None:
    lease = await scene.at_work()
    child = await scene.born(lease)
    at_work = await scene.work(child)
    await scene.plan(at_work)
    asked = await scene.ask(at_work, [wait_for(scene, replace(approval(1), always=OFFER))])
    await scene.press(asked.wait, question())
    await scene.press(asked.wait, confirm(GrantPlace.CHAT))
    (grant,) = await scene.store.live_grants()
    assert (grant.session, grant.conversation) == (child.session, CHAT)
    assert await ids_for(scene, lease.turn) == [grant.id]


async def test_grants_survive_the_end_of_the_daemon(tmp_path: Path, clock: FakeClock) -> None:
    url = f"sqlite://{tmp_path / 'kept.db'}"
    before = open_store(url, clock)
    scene = Scene(before, clock)
    asked, grant = await granted(scene, GrantPlace.CHAT)
    assert await scene.finish(asked.lease, TurnState.FAILED)
    await before.close()
    after = open_store(url, clock)
    scene = Scene(after, clock)
    try:
        assert list(await after.live_grants()) == [grant]
        assert await after.grants_for(asked.turn) == [grant]
        clock.advance(1)
        other, anew = await granted(scene, GrantPlace.CHAT)
        assert (anew.id, anew.granted_at) == (grant.id, clock.now())
        assert await after.revoke_grant(grant.id, BOB) is not None
        await after.void_leases(NODE.rpartition("#")[0])
        assert await after.grants_for(other.turn) == []
    finally:
        await after.close()
