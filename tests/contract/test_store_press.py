"""`Intake.press`: decisions of waits by presses, and their consequences."""

from __future__ import annotations

import pytest

from gateway.domain.ids import WaitId
from gateway.domain.slots import SlotKind, SlotState
from gateway.domain.steps import StepState
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import PressResult, PressVerdict, StartOutcome, WaitKind, WaitState
from tests.contract.scene import NODE, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    PAGE,
    approve,
    card,
    deny,
    new_wait,
    press,
    refuse,
    seconds,
)


@pytest.mark.parametrize(
    ("verdict", "result", "state"),
    [
        (approve(), PressResult.APPROVED, WaitState.APPROVED),
        (deny(), PressResult.DENIED, WaitState.DENIED),
    ],
)
async def test_a_press_decides_an_open_wait(
    scene: Scene, clock: FakeClock, verdict: PressVerdict, result: PressResult, state: WaitState
) -> None:
    """Person, time and reason are stored with the decision, and returned with it."""
    asked = await scene.parked()
    clock.advance(10)
    pressed = await scene.store.press(press(who=ANN_SLACK, reason="because"), asked.wait, verdict)
    assert pressed.result is result
    wait = await scene.wait(asked.wait)
    assert pressed.wait == wait
    assert (wait.state, wait.decided_by, wait.decided_at) == (state, ANN_SLACK, clock.now())
    assert wait.reason == "because"


async def test_reason_is_cut_at_a_thousand_characters(scene: Scene) -> None:
    """A pasted novel does not go into the history."""
    asked = await scene.parked()
    await scene.store.press(press(reason="x" * 5000), asked.wait, deny())
    assert (await scene.wait(asked.wait)).reason == "x" * 1000


@pytest.mark.parametrize("why", [PressResult.NOT_ALLOWED, PressResult.NOT_VALID])
async def test_a_refused_press_decides_nothing(scene: Scene, why: PressResult) -> None:
    """It is only recorded: the wait stays open, and the event is known."""
    asked = await scene.parked()
    one = press(who=BOB)
    pressed = await scene.store.press(one, asked.wait, refuse(why))
    assert pressed.result is why
    assert await scene.wait_state(asked.wait) is WaitState.OPEN
    assert await scene.state(asked.turn) is TurnState.PARKED
    assert (await scene.store.press(one, asked.wait, approve())).result is PressResult.DUPLICATE
    assert await scene.wait_state(asked.wait) is WaitState.OPEN


@pytest.mark.parametrize("wait", [None, WaitId("w-unknown")])
async def test_a_press_on_nothing_is_not_valid(scene: Scene, wait: WaitId | None) -> None:
    """A handle of no wait decides nothing, whatever the verdict."""
    pressed = await scene.store.press(press(), wait, approve())
    assert (pressed.result, pressed.wait) == (PressResult.NOT_VALID, None)


@pytest.mark.parametrize("kind", [WaitKind.CHILD, WaitKind.TIMER])
async def test_only_approvals_are_decided_by_a_press(scene: Scene, kind: WaitKind) -> None:
    """The other kinds of wait have no buttons."""
    asked = await scene.asked(wait_kind=kind)
    assert (await scene.press(asked.wait)).result is PressResult.NOT_VALID
    assert await scene.wait_state(asked.wait) is WaitState.OPEN


async def test_the_same_event_decides_once(scene: Scene) -> None:
    """A platform that delivers a press twice gets the state and no second effect."""
    asked = await scene.parked(2)
    one = press()
    await scene.store.press(one, asked.wait, approve())
    before = await scene.rows()
    again = await scene.store.press(one, asked.waits[1], deny())
    assert (again.result, again.wait) == (PressResult.DUPLICATE, await scene.wait(asked.waits[1]))
    assert await scene.rows() == before


async def test_the_second_press_loses(scene: Scene) -> None:
    """A later press gets the decision and its person, and changes nothing."""
    asked = await scene.parked()
    await scene.press(asked.wait, approve(), who=ANN_TELEGRAM)
    before = await scene.rows()
    late = await scene.press(asked.wait, deny(), who=ANN_SLACK)
    assert late.result is PressResult.ALREADY
    assert late.wait is not None
    assert (late.wait.state, late.wait.decided_by) == (WaitState.APPROVED, ANN_TELEGRAM)
    assert await scene.rows() == before


@pytest.mark.parametrize(("after_s", "result"), [(0, PressResult.ALREADY), (61, PressResult.EXPIRED)])
async def test_late_written_reason_is_left_to_be_accepted(
    scene: Scene, clock: FakeClock, after_s: float, result: PressResult
) -> None:
    """Nothing is known of its event: the text is a message, and none that was delivered before."""
    asked = await scene.parked(ttl_s=60)
    if result is PressResult.ALREADY:
        await scene.press(asked.wait)
    clock.advance(after_s)
    before = await scene.rows()
    late = await scene.store.press(press(key="m9", reason="list them"), asked.wait, deny(written=True))
    assert (late.result, late.wait) == (result, await scene.wait(asked.wait))
    assert await scene.rows() == before
    assert not (await scene.say("list them", event_key="m9")).duplicate


async def test_a_written_reason_in_time_is_no_message(scene: Scene) -> None:
    """Its event is known then, like any press."""
    asked = await scene.parked()
    assert (await scene.store.press(press(key="m9"), asked.wait, deny(written=True))).result is PressResult.DENIED
    assert (await scene.say("list them", event_key="m9")).duplicate


@pytest.mark.parametrize(
    ("after_s", "result"),
    [(59.999, PressResult.APPROVED), (60, PressResult.EXPIRED), (60.001, PressResult.EXPIRED)],
)
async def test_a_wait_is_decided_before_it_expires_only(
    scene: Scene, clock: FakeClock, after_s: float, result: PressResult
) -> None:
    """At `expires_at` itself it is too late, whether or not the sweep came by."""
    asked = await scene.parked(ttl_s=60)
    clock.advance(after_s)
    assert (await scene.press(asked.wait)).result is result
    decided = result is PressResult.APPROVED
    assert await scene.wait_state(asked.wait) is (WaitState.APPROVED if decided else WaitState.OPEN)
    assert await scene.state(asked.turn) is (TurnState.QUEUED if decided else TurnState.PARKED)


# --- the turn -------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [approve(), deny()])
async def test_a_decision_queues_the_parked_turn(scene: Scene, verdict: PressVerdict) -> None:
    """Any runner may go on with it."""
    asked = await scene.parked()
    await scene.press(asked.wait, verdict)
    assert await scene.state(asked.turn) is TurnState.QUEUED
    lease = await scene.claim()
    assert (lease.turn, lease.fence) == (asked.turn, asked.lease.fence + 1)


async def test_a_decision_leaves_a_running_turn_with_its_holder(scene: Scene) -> None:
    """It is woken, not taken away."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    assert await scene.state(asked.turn) is TurnState.RUNNING
    assert not await scene.store.claim(NODE)
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED


async def test_a_press_runs_its_own_call(scene: Scene) -> None:
    """The other calls of the card still wait."""
    asked = await scene.parked(2)
    await scene.press(asked.waits[1])
    lease = await scene.claim()
    assert await scene.start(lease, 1, asked.waits[0]) is StartOutcome.NOT_APPROVED
    assert await scene.start(lease, 2, asked.waits[1]) is StartOutcome.STARTED


async def test_a_woken_turn_goes_behind_those_that_wait(scene: Scene, clock: FakeClock) -> None:
    """The queue is one for all sessions, in the order of queueing."""
    asked = await scene.parked()
    other = await scene.say(kind=TurnKind.COMMAND)
    clock.advance(1)
    await scene.press(asked.wait)
    assert [(await scene.claim()).turn for _ in range(2)] == [other.turn, asked.turn]


# --- siblings -------------------------------------------------------------------------------


async def _two_answers(scene: Scene) -> tuple[Asked, Asked]:
    lease = await scene.planned(3)
    ttl = seconds(3600)
    first = await scene.ask(lease, [new_wait(n, expires_in=ttl) for n in (1, 2, 3)])
    await scene.plan(lease, 1)
    second = await scene.ask(lease, [new_wait(5, expires_in=ttl)])
    return first, second


async def test_deny_with_reason_withdraws_the_open_siblings(scene: Scene) -> None:
    """Those of the same answer, and only the open ones."""
    first, second = await _two_answers(scene)
    await scene.press(first.waits[0])
    await scene.press(first.waits[1], deny(withdraw_siblings=True))
    states = [await scene.wait_state(wait) for wait in (*first.waits, *second.waits)]
    assert states == [WaitState.APPROVED, WaitState.DENIED, WaitState.CANCELLED, WaitState.OPEN]


async def test_a_plain_deny_leaves_the_siblings(scene: Scene) -> None:
    """Each row has its own buttons."""
    asked = await scene.parked(2)
    await scene.press(asked.wait, deny())
    assert await scene.wait_state(asked.waits[1]) is WaitState.OPEN


async def test_a_lost_deny_withdraws_nothing(scene: Scene) -> None:
    """Only the press that decided has effects."""
    asked = await scene.parked(2)
    await scene.press(asked.wait)
    await scene.press(asked.wait, deny(withdraw_siblings=True))
    assert await scene.wait_state(asked.waits[1]) is WaitState.OPEN


async def test_a_withdrawn_call_still_needs_its_result(scene: Scene) -> None:
    """The engine writes it; nothing may start it."""
    asked = await scene.parked(2)
    await scene.press(asked.wait, deny(withdraw_siblings=True))
    lease = await scene.claim()
    assert (await scene.step(lease.turn, 2)).state is StepState.ASKED
    assert await scene.start(lease, 2, asked.waits[1]) is StartOutcome.NOT_APPROVED
    assert await scene.start(lease, 2, None) is StartOutcome.NOT_APPROVED


# --- cards ----------------------------------------------------------------------------------


async def test_decision_raises_the_version_of_each_of_its_cards(scene: Scene) -> None:
    """All showings are edited: sent ones are due again, those on the page count as shown."""
    lease = await scene.planned()
    wait = new_wait(1, expires_in=seconds(60))
    cards = [card(wait.id, where=where) for where in (CHAT, OTHER_CHAT, PAGE)]
    await scene.store.open_waits(lease, [wait], cards)
    await scene.send_all()
    assert [slot.state for slot in await scene.slots()] == [SlotState.SENT] * 3
    await scene.press(wait.id)
    slots = await scene.store.card_slots(wait.id)
    assert [(slot.version, slot.sent_version) for slot in slots] == [(2, 1), (2, 1), (2, 2)]
    assert [slot.state for slot in slots] == [SlotState.DUE, SlotState.DUE, SlotState.SENT]


async def test_a_decision_leaves_other_slots(scene: Scene) -> None:
    """A card of other approvals is not edited."""
    asked = await scene.parked()
    other = await scene.say(kind=TurnKind.COMMAND)
    lease = await scene.claim()
    assert lease.turn == other.turn
    await scene.plan(lease)
    second = await scene.ask(lease, [new_wait(1, expires_in=seconds(60))])
    await scene.press(second.wait)
    assert (await scene.slot_of(asked.turn, SlotKind.CARD)).version == 1
    assert (await scene.slot_of(other.turn, SlotKind.CARD)).version == 2
