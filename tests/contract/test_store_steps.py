"""`TurnJournal`: the journal of a turn; nothing starts without a valid decision."""

from __future__ import annotations

import pytest

from gateway.domain.ids import CallId, WaitId
from gateway.domain.slots import SlotKind, SlotState
from gateway.domain.steps import Answer, StepKind, StepState, Usage
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitState
from gateway.errors import LeaseLost
from tests.contract.scene import OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, PAGE, answer, beginning, card, deny, new_wait, result, said, seconds

# --- plan -----------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_an_answer_is_stored_whole_with_its_calls(scene: Scene, clock: FakeClock) -> None:
    """A finished model step, then a planned step for each call, in call order."""
    lease = await scene.running()
    (received,) = (await scene.view(lease.turn)).inputs
    calls = tuple(ToolCall(id=CallId(f"c{n}"), tool="shell", arguments="{not json") for n in range(2))
    given = Answer(
        text="look ☂",
        calls=calls,
        model="m",
        usage=Usage(input_tokens=5, output_tokens=7),
        opaque={"p": [1, {"a": None}]},
    )
    await scene.store.plan(lease, given, given=[received], slots=[said("look ☂")])
    view = await scene.view(lease.turn)
    assert [(step.n, step.kind, step.state) for step in view.steps] == [
        (0, StepKind.MODEL, StepState.FINISHED),
        (1, StepKind.TOOL, StepState.PLANNED),
        (2, StepKind.TOOL, StepState.PLANNED),
    ]
    assert (view.steps[0].answer, view.steps[0].ended_at) == (given, clock.now())
    assert [(step.call, step.answer_n, step.result) for step in view.steps[1:]] == [(call, 0, None) for call in calls]
    assert [r.given for r in view.inputs] == [0]
    slot = await scene.slot_of(lease.turn, SlotKind.ANSWER)
    assert (slot.text, slot.conversation, slot.version, slot.sent_version) == ("look ☂", CHAT, 1, 0)
    assert (slot.state, slot.message_ids, slot.attempts, slot.uncertain) == (SlotState.DUE, (), 0, False)


async def test_steps_are_numbered_on(scene: Scene) -> None:
    """A second answer goes on where the first one's calls ended."""
    lease = await scene.planned(2)
    await scene.plan(lease, 1)
    view = await scene.view(lease.turn)
    assert [(step.n, step.kind, step.answer_n) for step in view.steps] == [
        (0, StepKind.MODEL, 0),
        (1, StepKind.TOOL, 0),
        (2, StepKind.TOOL, 0),
        (3, StepKind.MODEL, 0),
        (4, StepKind.TOOL, 3),
    ]


async def test_a_message_is_given_once(scene: Scene) -> None:
    """Naming it again does not move it."""
    lease = await scene.planned()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.store.plan(lease, answer(calls=1), given=[received], slots=[])
    assert [r.given for r in (await scene.view(lease.turn)).inputs] == [0]


async def test_a_stopping_turn_plans_nothing(scene: Scene) -> None:
    """The refusal wrote nothing."""
    lease = await scene.running()
    await scene.stop()
    before = await scene.rows()
    with pytest.raises(LeaseLost):
        await scene.store.plan(lease, answer(calls=1), given=[], slots=[said()])
    assert await scene.rows() == before


# --- open_waits -----------------------------------------------------------------------------


async def test_waits_open_with_their_cards(scene: Scene, clock: FakeClock) -> None:
    """The steps become ASKED; the card names its rows in order."""
    lease = await scene.planned(2)
    waits = [new_wait(n, expires_in=seconds(60)) for n in (1, 2)]
    assert await scene.store.open_waits(lease, waits, [card(waits[1].id, waits[0].id)])
    view = await scene.view(lease.turn)
    assert [step.state for step in view.steps[1:]] == [StepState.ASKED] * 2
    assert [(w.id, w.kind, w.n, w.approval, w.payload, w.expires_at - w.opened_at) for w in view.waits] == [
        (w.id, w.kind, w.n, w.approval, w.payload, w.expires_in) for w in waits
    ]
    for wait in view.waits:
        assert (wait.state, wait.session, wait.turn) == (WaitState.OPEN, lease.session, lease.turn)
        assert (wait.opened_at, wait.decided_at, wait.decided_by) == (clock.now(), None, None)
        assert await scene.wait(wait.id) == wait
    slot = await scene.slot_of(lease.turn, SlotKind.CARD)
    assert (slot.waits, slot.version, slot.text) == ((waits[1].id, waits[0].id), 1, "")


async def test_card_stored_before_its_wait_shows_it_when_opened(scene: Scene) -> None:
    """A new version, since the row is new."""
    lease = await scene.planned(2)
    first, second = (new_wait(n, expires_in=seconds(60)) for n in (1, 2))
    assert await scene.store.open_waits(lease, [first], [card(first.id, second.id)])
    before = await scene.slot_of(lease.turn, SlotKind.CARD)
    assert await scene.store.open_waits(lease, [second], [])
    assert (await scene.slot_of(lease.turn, SlotKind.CARD)).version == before.version + 1


async def test_a_card_on_the_page_counts_as_sent(scene: Scene) -> None:
    """The page reads the rows themselves."""
    asked = await scene.asked(where=PAGE)
    slot = await scene.slot_of(asked.turn, SlotKind.CARD)
    assert (slot.state, slot.sent_version) == (SlotState.SENT, 1)
    assert await scene.send_all() == []


@pytest.mark.parametrize("what", ["asked", "started", "finished", "model step"])
async def test_a_wait_opens_on_planned_steps_only(scene: Scene, what: str) -> None:
    """One step that is not PLANNED refuses them all, and nothing changes."""
    lease = await scene.planned(2)
    ttl = seconds(60)
    if what == "asked":
        await scene.ask(lease, [new_wait(2, expires_in=ttl)])
    elif what == "started":
        await scene.start(lease, 2)
    elif what == "finished":
        await scene.store.finish_step(lease, 2, result())
    before = await scene.rows()
    waits = [new_wait(n, expires_in=ttl) for n in (1, 0 if what == "model step" else 2)]
    assert not await scene.store.open_waits(lease, waits, [card(*(w.id for w in waits))])
    assert await scene.rows() == before
    assert await scene.store.wait(waits[0].id) is None


async def test_a_stopping_turn_asks_nothing(scene: Scene) -> None:
    """No card may appear after /stop."""
    lease = await scene.planned()
    await scene.stop()
    before = await scene.rows()
    wait = new_wait(1, expires_in=seconds(60))
    assert not await scene.store.open_waits(lease, [wait], [card(wait.id)])
    assert await scene.rows() == before


# --- start_step -----------------------------------------------------------------------------


async def test_a_planned_call_starts_without_a_wait(scene: Scene, clock: FakeClock) -> None:
    """An allowed call needs no approval; its start time is stored."""
    lease = await scene.planned()
    clock.advance(2)
    assert await scene.start(lease, 1) is StartOutcome.STARTED
    step = await scene.step(lease.turn, 1)
    assert (step.state, step.started_at) == (StepState.STARTED, clock.now())


async def test_a_start_consumes_its_approval(scene: Scene) -> None:
    """In the same transition, so that it is good for one execution."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED
    assert await scene.wait_state(asked.wait) is WaitState.CONSUMED
    assert (await scene.step(asked.turn, 1)).state is StepState.STARTED
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.NOT_APPROVED


async def test_an_approval_binds_one_exact_action(scene: Scene) -> None:
    """Another action starts nothing and leaves the approval."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    assert (
        await scene.store.start_step(asked.lease, 1, asked.wait, beginning(action_sha="other"))
        is StartOutcome.NOT_APPROVED
    )
    assert await scene.wait_state(asked.wait) is WaitState.APPROVED
    assert (await scene.step(asked.turn, 1)).state is StepState.ASKED


async def test_an_approval_binds_one_step(scene: Scene) -> None:
    """A sibling cannot use it, even with its action."""
    asked = await scene.asked(2)
    await scene.press(asked.wait)
    assert await scene.store.start_step(asked.lease, 2, asked.wait, beginning(1)) is StartOutcome.NOT_APPROVED
    assert await scene.wait_state(asked.wait) is WaitState.APPROVED


async def test_an_approval_binds_one_turn(scene: Scene) -> None:
    """Another turn's step of the same number cannot use it."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    other = await scene.planned(kind=TurnKind.COMMAND)
    assert await scene.store.start_step(other, 1, asked.wait, beginning(1)) is StartOutcome.NOT_APPROVED
    assert (await scene.step(other.turn, 1)).state is StepState.PLANNED


async def test_an_unknown_wait_starts_nothing(scene: Scene) -> None:
    """It is not an approval."""
    lease = await scene.planned()
    assert await scene.start(lease, 1, WaitId("w-unknown")) is StartOutcome.NOT_APPROVED


@pytest.mark.parametrize("state", ["open", "approved", "denied", "expired"])
async def test_asked_call_never_starts_without_its_wait(scene: Scene, clock: FakeClock, state: str) -> None:
    """Leaving the wait out is no way around a decision, in this life of the turn or the next."""
    asked = await scene.asked(ttl_s=60)
    if state == "approved":
        await scene.press(asked.wait)
    elif state == "denied":
        await scene.press(asked.wait, deny())
    elif state == "expired":
        clock.advance(60)
        await scene.store.expire_waits()
    assert await scene.start(asked.lease, 1) is StartOutcome.NOT_APPROVED
    await scene.lapse()
    assert await scene.start(await scene.claim(), 1) is StartOutcome.NOT_APPROVED
    assert (await scene.step(asked.turn, 1)).state is StepState.ASKED


@pytest.mark.parametrize(
    ("after_s", "start"), [(299, StartOutcome.STARTED), (300, StartOutcome.STARTED), (300.5, StartOutcome.TOO_OLD)]
)
async def test_a_decision_is_good_for_five_minutes(
    scene: Scene, clock: FakeClock, after_s: float, start: StartOutcome
) -> None:
    """Later the wait is expired, and nothing starts; the time it was open does not count."""
    asked = await scene.asked()
    clock.advance(1000)
    await scene.press(asked.wait)
    clock.advance(after_s)
    assert await scene.start(asked.lease, 1, asked.wait) is start
    expected = WaitState.CONSUMED if start is StartOutcome.STARTED else WaitState.EXPIRED
    assert await scene.wait_state(asked.wait) is expected
    if start is StartOutcome.TOO_OLD:
        assert (await scene.step(asked.turn, 1)).state is StepState.ASKED
        assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.NOT_APPROVED


async def test_an_approval_outlives_the_time_it_could_be_given_in(scene: Scene, clock: FakeClock) -> None:
    """Approved at the last second, it is still good for five minutes."""
    asked = await scene.asked(ttl_s=60)
    clock.advance(59)
    await scene.press(asked.wait)
    clock.advance(100)
    assert await scene.store.expire_waits() == 0
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STARTED


async def test_a_started_call_starts_again_in_a_later_life_only(scene: Scene) -> None:
    """The holder that started it cannot start it twice; the next one may run it again, without asking."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    await scene.start(asked.lease, 1, asked.wait)
    assert await scene.start(asked.lease, 1) is StartOutcome.NOT_APPROVED
    await scene.lapse()
    again = await scene.claim(OTHER_NODE)
    assert await scene.start(again, 1) is StartOutcome.STARTED
    assert await scene.start(again, 1) is StartOutcome.NOT_APPROVED
    assert await scene.wait_state(asked.wait) is WaitState.CONSUMED


async def test_a_finished_call_never_starts(scene: Scene) -> None:
    """Not in this life, not in the next."""
    lease = await scene.started()
    await scene.store.finish_step(lease, 1, result())
    assert await scene.start(lease, 1) is StartOutcome.NOT_APPROVED
    await scene.lapse()
    assert await scene.start(await scene.claim(), 1) is StartOutcome.NOT_APPROVED


async def test_nothing_starts_in_a_stopping_turn(scene: Scene) -> None:
    """Not even what was approved before."""
    asked = await scene.asked(2)
    await scene.press(asked.wait)
    await scene.stop()
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.STOPPING
    assert await scene.start(asked.lease, 2) is StartOutcome.STOPPING


# --- finish_step ----------------------------------------------------------------------------


async def test_a_call_has_one_result(scene: Scene, clock: FakeClock) -> None:
    """The first is kept; the second is refused and changes nothing."""
    lease = await scene.started()
    clock.advance(2)
    first = ToolResult(
        status=ResultStatus.ERROR,
        text="out\n",
        code="exit",
        hint="look",
        exit_code=3,
        duration_ms=17,
        dropped_bytes=5,
        full_output="s1.txt",
    )
    await scene.came(lease, 1, first)
    step = await scene.step(lease.turn, 1)
    assert (step.state, step.result, step.ended_at) == (StepState.FINISHED, first, clock.now())
    before = await scene.rows()
    assert not await scene.store.finish_step(lease, 1, result("other"))
    assert await scene.rows() == before


async def test_turn_view_comes_with_the_last_result(scene: Scene) -> None:
    """Not with one that comes before it, and not with one that is not stored."""
    lease = await scene.planned(2)
    assert await scene.store.finish_step(lease, 2, result("two")) is None
    assert await scene.store.finish_step(lease, 1, result("one")) == await scene.store.turn(lease.turn)
    assert await scene.store.finish_step(lease, 1, result("other")) is None


async def test_a_model_step_takes_no_result(scene: Scene) -> None:
    """It was finished when it was stored."""
    lease = await scene.planned()
    assert not await scene.store.finish_step(lease, 0, result())


@pytest.mark.parametrize("approved", [False, True])
async def test_a_result_withdraws_the_steps_wait(scene: Scene, approved: bool) -> None:
    """Open or approved, it is of no use any more; a sibling's stays."""
    asked = await scene.asked(2)
    if approved:
        await scene.press(asked.wait)
    await scene.came(asked.lease, 1, result(status=ResultStatus.CANCELLED))
    assert [await scene.wait_state(wait) for wait in asked.waits] == [WaitState.CANCELLED, WaitState.OPEN]


async def test_a_result_leaves_a_decided_wait(scene: Scene) -> None:
    """Nothing leaves a final state."""
    asked = await scene.asked()
    await scene.press(asked.wait, deny())
    await scene.store.finish_step(asked.lease, 1, result(status=ResultStatus.DENIED))
    assert await scene.wait_state(asked.wait) is WaitState.DENIED


async def test_a_stopping_turn_takes_results(scene: Scene) -> None:
    """The partial output of a killed tool is kept."""
    lease = await scene.started()
    await scene.stop()
    await scene.came(lease, 1, result("partial"))
    step = await scene.step(lease.turn, 1)
    assert step.result == result("partial")
    assert await scene.state(lease.turn) is TurnState.STOPPING
