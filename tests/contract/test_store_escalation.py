"""Escalation: a timer shows approvals that are still open to further approvers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from gateway.domain.ids import Principal
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import Session
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import ESCALATED, PressVerdict, StartOutcome, Wait, WaitKind, WaitState, escalation
from gateway.ports import ApproversOf
from tests.contract.scene import Asked, Scene
from tests.support.clock import FakeClock
from tests.support.fakes import BOB_CHAT, CLEO, CLEO_CHAT, CLEO_TELEGRAM
from tests.support.makers import BOB, CHAT, PAGE, card, deny, inbound, new_wait, route, seconds

AFTER_S = 30.0


def only(*who: Principal) -> ApproversOf:
    """Return the approvers of every approval: these."""

    def approvers(_wait: Wait, _session: Session) -> Collection[Principal]:
        return who

    return approvers


async def _wrote(scene: Scene, who: Principal, where: Conversation) -> None:
    """Let a person have a direct conversation."""
    way, say = route(owner=CLEO), inbound(who=who, where=where)
    await scene.store.accept(way, say, TurnKind.COMMAND, running=WhileRunning.QUEUE, say_if_waiting=None)
    await scene.finish(await scene.claim())


async def _asked(scene: Scene, to: Sequence[Sequence[Principal]], calls: int = 1, *, parks: bool = True) -> Asked:
    """Ask about calls of one answer, with the timer of the further approvers."""
    lease = await scene.planned(calls)
    waits = [new_wait(n, expires_in=seconds(60)) for n in range(1, calls + 1)]
    ids = tuple(wait.id for wait in waits)
    timer = escalation(ids, to, seconds(AFTER_S))
    assert await scene.store.open_waits(lease, [*waits, timer], [card(*ids)]) == calls
    if parks:
        assert await scene.store.park(lease)
    return Asked(lease=lease, waits=ids)


async def _cards(scene: Scene, asked: Asked) -> list[Slot]:
    return list(await scene.store.card_slots(asked.wait))


async def _timer(scene: Scene, asked: Asked) -> WaitState:
    (timer,) = [wait for wait in (await scene.view(asked.turn)).waits if wait.kind is WaitKind.TIMER]
    return timer.state


@pytest.mark.conformance
async def test_an_open_approval_is_shown_to_further_approvers_once(scene: Scene, clock: FakeClock) -> None:
    """In the last direct conversation of each; the first card stays."""
    await _wrote(scene, CLEO_TELEGRAM, CLEO_CHAT)
    await _wrote(scene, BOB, BOB_CHAT)
    asked = await _asked(scene, [[CLEO_TELEGRAM], [BOB]], 2)
    may = only(CLEO_TELEGRAM, BOB)
    clock.advance(AFTER_S - 0.001)
    assert await scene.store.fire_timers(may) == 0
    clock.advance(0.001)
    assert await scene.store.fire_timers(may) == 1
    assert await scene.store.fire_timers(may) == 0
    cards = await _cards(scene, asked)
    assert [one.conversation for one in cards] == [CHAT, CLEO_CHAT, BOB_CHAT]
    assert [one.waits for one in cards] == [asked.waits] * 3
    assert (await scene.wait(asked.wait)).payload[ESCALATED] is True
    assert await _timer(scene, asked) is WaitState.ANSWERED
    assert await scene.state(asked.turn) is TurnState.PARKED, "nothing was decided"


async def test_the_first_press_wins_and_every_showing_is_edited(scene: Scene, clock: FakeClock) -> None:
    """The presser and the card do not matter."""
    await _wrote(scene, CLEO_TELEGRAM, CLEO_CHAT)
    asked = await _asked(scene, [[CLEO_TELEGRAM]])
    clock.advance(AFTER_S)
    await scene.store.fire_timers(only(CLEO_TELEGRAM))
    await scene.send_all()
    before = [one.version for one in await _cards(scene, asked)]
    assert (await scene.press(asked.wait, deny(), who=CLEO_TELEGRAM)).wait is not None
    assert [one.version for one in await _cards(scene, asked)] == [version + 1 for version in before]
    assert await scene.wait_state(asked.wait) is WaitState.DENIED


async def test_somebody_removed_meanwhile_is_shown_nothing(scene: Scene, clock: FakeClock) -> None:
    """The approvers are read when the timer fires, not when it was set."""
    await _wrote(scene, CLEO_TELEGRAM, CLEO_CHAT)
    await _wrote(scene, BOB, BOB_CHAT)
    asked = await _asked(scene, [[CLEO_TELEGRAM], [BOB]])
    clock.advance(AFTER_S)
    await scene.store.fire_timers(only(CLEO_TELEGRAM))
    assert [one.conversation for one in await _cards(scene, asked)] == [CHAT, CLEO_CHAT]


async def test_without_a_configuration_nobody_is_shown_anything(scene: Scene, clock: FakeClock) -> None:
    """Closed by default."""
    await _wrote(scene, CLEO_TELEGRAM, CLEO_CHAT)
    asked = await _asked(scene, [[CLEO_TELEGRAM]])
    clock.advance(AFTER_S)
    await scene.store.fire_timers()
    assert [one.conversation for one in await _cards(scene, asked)] == [CHAT]


@pytest.mark.parametrize("verdict", [None, deny()])
async def test_a_decided_approval_is_shown_to_nobody_else(
    scene: Scene, clock: FakeClock, verdict: PressVerdict | None
) -> None:
    """The timer is withdrawn; the other approvals of its answer are shown."""
    await _wrote(scene, CLEO_TELEGRAM, CLEO_CHAT)
    asked = await _asked(scene, [[CLEO_TELEGRAM]], 2)
    await scene.press(asked.waits[0], verdict)
    clock.advance(AFTER_S)
    await scene.store.fire_timers(only(CLEO_TELEGRAM))
    assert [one.conversation for one in await _cards(scene, asked)] == [CHAT]
    assert [one.waits for one in await scene.store.card_slots(asked.waits[1])] == [asked.waits, asked.waits[1:]]


async def test_a_timer_of_decided_approvals_is_withdrawn(scene: Scene, clock: FakeClock) -> None:
    """It wakes no turn and shows nothing."""
    asked = await _asked(scene, [[CLEO_TELEGRAM]])
    await scene.press(asked.wait)
    lease = await scene.claim()
    clock.advance(AFTER_S)
    before = await scene.state(asked.turn)
    assert await scene.store.fire_timers(only(CLEO_TELEGRAM)) == 1
    assert await _timer(scene, asked) is WaitState.CANCELLED
    assert await scene.state(lease.turn) is before


async def test_a_chat_with_the_card_gets_no_second_one(scene: Scene, clock: FakeClock) -> None:
    """A person who is asked already, by whatever way, sees one card; the page needs none."""
    await _wrote(scene, CLEO_TELEGRAM, CHAT)
    await _wrote(scene, BOB, PAGE)
    asked = await _asked(scene, [[CLEO_TELEGRAM], [BOB], [Principal("telegram:404")]])
    clock.advance(AFTER_S)
    assert await scene.store.fire_timers(only(CLEO_TELEGRAM, BOB, Principal("telegram:404"))) == 1
    assert [one.conversation for one in await _cards(scene, asked)] == [CHAT]


async def test_no_turn_parks_on_the_timer_alone(scene: Scene) -> None:
    """An approved call must run, however long the timer has."""
    asked = await _asked(scene, [[BOB]], parks=False)
    await scene.press(asked.wait)
    assert not await scene.store.park(asked.lease)
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED


async def test_the_end_of_the_turn_withdraws_the_timer(scene: Scene, clock: FakeClock) -> None:
    """Like its approvals."""
    asked = await _asked(scene, [[BOB]], parks=False)
    await scene.finish(asked.lease, TurnState.FAILED)
    assert await _timer(scene, asked) is WaitState.CANCELLED
    clock.advance(AFTER_S)
    assert await scene.store.fire_timers(only(BOB)) == 0


async def test_calls_beyond_the_limit_have_no_timer(scene: Scene) -> None:
    """Nothing is opened where nothing fits, and the timer does not count."""
    lease = await scene.planned(2)
    waits = [new_wait(n, expires_in=seconds(60)) for n in (1, 2)]
    timer = escalation([wait.id for wait in waits], [[BOB]], seconds(AFTER_S))
    shown = [card(*[wait.id for wait in waits])]
    assert await scene.store.open_waits(lease, [*waits, timer], shown, most=0) == 0
    assert (await scene.view(lease.turn)).waits == ()
    assert await scene.store.open_waits(lease, [*waits, timer], shown, most=1) == 1
    kinds = [wait.kind for wait in (await scene.view(lease.turn)).waits]
    assert kinds == [WaitKind.APPROVAL, WaitKind.TIMER]


async def test_a_card_of_the_escalation_has_eight_rows_at_most(scene: Scene, clock: FakeClock) -> None:
    """As every card."""
    await _wrote(scene, BOB, BOB_CHAT)
    asked = await _asked(scene, [[BOB]], 9)
    clock.advance(AFTER_S)
    await scene.store.fire_timers(only(BOB))
    new = [one for one in await scene.slots(kind=SlotKind.CARD) if one.conversation == BOB_CHAT]
    assert [len(one.waits) for one in new] == [8, 1]
    assert asked.waits == tuple(wait for one in new for wait in one.waits)
