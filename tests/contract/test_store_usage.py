"""`UsageStore`: summaries of long histories, and usage."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.routes import WhileRunning
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Picture, ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.ports import ControlEffect, Store
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, BOB, EPOCH, answer, route

TODAY = EPOCH.date()
USED = Usage(input_tokens=100, output_tokens=20, cached_tokens=50, cost_micros=7)
GROUP = route(SessionId("chat:g"))


async def _history(scene: Scene, epoch: int = 0, limit: int = 10) -> list[TurnId]:
    return [view.turn.id for view in await scene.store.history(MAIN, epoch, limit)]


async def _summary(scene: Scene) -> str:
    session = await scene.store.session(MAIN)
    assert session is not None
    return session.summary


async def _compact(scene: Scene, through: TurnId, summary: str = "In short.", *, epoch: int = 0) -> bool:
    return await scene.store.compact(MAIN, epoch, through, summary, None)


async def _end(scene: Scene, lease: Lease, last: Answer, state: TurnState = TurnState.DONE) -> bool:
    given = (await scene.view(lease.turn)).inputs
    return await scene.store.finish_turn(lease, state, answer=last, given=given, slots=[], timers=[])


def _spent(
    usage: Usage = USED, *, answers: int = 1, model: str = "test", who: Principal = ANN_TELEGRAM, day: date = TODAY
) -> Spent:
    return Spent(day=day, principal=who, model=model, answers=answers, usage=usage)


# --- summaries ------------------------------------------------------------------------------


async def test_the_history_begins_after_its_summary(scene: Scene) -> None:
    """The turns stay: only what a model is given begins later."""
    turns = [await scene.ended() for _ in range(4)]
    assert await _summary(scene) == ""
    rows = await scene.rows()
    assert await _compact(scene, turns[1])
    assert await _summary(scene) == "In short."
    assert await _history(scene) == turns[2:]
    assert await _history(scene, limit=1) == turns[3:]
    assert await scene.rows() == rows


async def test_all_of_a_history_can_be_summed_up(scene: Scene) -> None:
    """The next turn is the first one then."""
    assert await _compact(scene, await scene.ended())
    assert await _history(scene) == []
    turn = await scene.ended()
    assert await _history(scene) == [turn]


async def test_every_read_of_a_turn_has_the_latest_summary(scene: Scene) -> None:
    """As it is now, though the turn ended, and was read, before it was made."""
    first, second = await scene.ended(), await scene.ended()
    assert await _history(scene) == [first, second]
    assert await _compact(scene, first)
    lease = await scene.running()
    assert (await scene.view(lease.turn)).session.summary == "In short."
    (view,) = await scene.store.history(MAIN, 0, 10)
    assert (view.turn.id, view.session.summary) == (second, "In short.")


async def test_a_claimed_turn_brings_the_summary(scene: Scene) -> None:
    """A model is asked with what the claim brought."""
    await _compact(scene, await scene.ended())
    await scene.say()
    (claimed,) = await scene.store.claim(NODE)
    assert claimed.view is not None
    assert claimed.view.session.summary == "In short."


async def test_a_summary_grows(scene: Scene) -> None:
    """A later one stands for the earlier one as well."""
    turns = [await scene.ended() for _ in range(3)]
    assert await _compact(scene, turns[0], "One.")
    assert await _compact(scene, turns[1], "One and two.")
    assert (await _summary(scene), await _history(scene)) == ("One and two.", turns[2:])


async def test_a_summary_that_reaches_no_further_is_not_stored(scene: Scene) -> None:
    """Two were made at once: the one that reaches further stays, and the first of equals."""
    turns = [await scene.ended() for _ in range(3)]
    assert await _compact(scene, turns[1], "Two.")
    assert not await _compact(scene, turns[1], "Two again.")
    assert not await _compact(scene, turns[0], "One.")
    assert (await _summary(scene), await _history(scene)) == ("Two.", turns[2:])


async def test_a_history_goes_by_the_order_in_which_turns_ended(scene: Scene) -> None:
    """A command that began before the last turn of the summary ended after it."""
    command = await scene.running(kind=TurnKind.COMMAND)
    assert await _compact(scene, await scene.ended())
    await scene.finish(command)
    assert await _history(scene) == [command.turn]


async def test_a_new_history_has_no_summary(scene: Scene) -> None:
    """/new: what was summed up is over, and the old turns are still what they were."""
    old = [await scene.ended(), await scene.ended()]
    assert await _compact(scene, old[0])
    await scene.stop(ControlEffect.RESET)
    assert await _summary(scene) == ""
    assert (await _history(scene, 1), await _history(scene, 0)) == ([], old)
    turns = [await scene.ended(), await scene.ended()]
    assert await _history(scene, 1) == turns
    assert await _compact(scene, turns[0], "New.", epoch=1)
    assert (await _summary(scene), await _history(scene, 1)) == ("New.", turns[1:])
    assert await _history(scene, 0) == old


async def test_a_summary_of_an_old_history_is_not_stored(scene: Scene) -> None:
    """/new came while it was made."""
    turn = await scene.ended()
    await scene.stop(ControlEffect.RESET)
    assert not await _compact(scene, turn)
    assert not await _compact(scene, turn, epoch=1)
    assert await _summary(scene) == ""


async def test_only_ended_turns_of_the_session_are_summed_up(scene: Scene) -> None:
    """Neither one that runs, nor another session's, nor one that is not there."""
    other = await scene.ended(GROUP)
    lease = await scene.running()
    for turn in (lease.turn, other, TurnId("none")):
        assert not await _compact(scene, turn)
    assert not await scene.store.compact(SessionId("main:nobody"), 0, other, "In short.", None)
    assert await _summary(scene) == ""
    (view,) = await scene.store.history(GROUP.session, 0, 10)
    assert view.session.summary == ""


async def test_each_session_has_its_own_summary(scene: Scene) -> None:
    """One is summed up, the other is not."""
    mine, other = await scene.ended(), await scene.ended(GROUP)
    await _compact(scene, mine)
    assert [view.turn.id for view in await scene.store.history(GROUP.session, 0, 10)] == [other]
    session = await scene.store.session(GROUP.session)
    assert session is not None
    assert session.summary == ""


# --- what was spent -------------------------------------------------------------------------


async def test_answers_are_counted_when_they_are_stored(scene: Scene) -> None:
    """Those with calls and the last one, however the turn ends."""
    lease = await scene.running()
    await scene.store.plan(lease, replace(answer(calls=1), usage=USED), given=[], slots=[])
    assert await scene.store.spent(TODAY) == [_spent()]
    assert await _end(scene, lease, replace(answer(), usage=Usage(input_tokens=1, cost_micros=1)), TurnState.FAILED)
    sums = Usage(input_tokens=101, output_tokens=20, cached_tokens=50, cost_micros=8)
    assert await scene.store.spent(TODAY) == [_spent(sums, answers=2)]


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_tokens", "cost_micros"])
async def test_any_figure_counts(scene: Scene, field: str) -> None:
    """Some providers give only some."""
    usage = replace(Usage(), **{field: 3})
    await _end(scene, await scene.running(), replace(answer(), usage=usage))
    assert await scene.store.spent(TODAY) == [_spent(usage)]


async def test_an_answer_without_figures_is_not_counted(scene: Scene) -> None:
    """Nobody knows what it cost."""
    await _end(scene, await scene.running(), answer())
    assert await scene.store.spent(TODAY) == []


async def test_a_refused_transition_costs_nothing(scene: Scene) -> None:
    """Its answer was not stored, so it is asked for again."""
    lease = await scene.running()
    await scene.say("wait", running=WhileRunning.STEER)
    refused = await scene.store.finish_turn(
        lease, TurnState.DONE, answer=replace(answer(), usage=USED), given=[], slots=[], timers=[]
    )
    assert not refused
    assert await scene.store.spent(TODAY) == []


@pytest.mark.conformance
async def test_each_person_and_model_has_a_line(scene: Scene) -> None:
    """In one order in every store: by person, then by model."""
    for who, model in ((BOB, "test"), (ANN_TELEGRAM, "other"), (ANN_TELEGRAM, "test")):
        await scene.say(to=GROUP, who=who)
        await _end(scene, await scene.claim(), replace(answer(), usage=USED, model=model))
    assert await scene.store.spent(TODAY) == [_spent(model="other"), _spent(), _spent(who=BOB)]


async def test_days_end_at_midnight_in_utc(scene: Scene, clock: FakeClock) -> None:
    """The newest day first, and none before the one that is asked for."""
    clock.advance(24 * 3600 - 1)
    await _end(scene, await scene.running(), replace(answer(), usage=USED))
    clock.advance(1)
    await _end(scene, await scene.running(), replace(answer(), usage=USED))
    tomorrow = TODAY + timedelta(days=1)
    assert await scene.store.spent(TODAY) == [_spent(day=tomorrow), _spent()]
    assert await scene.store.spent(tomorrow) == [_spent(day=tomorrow)]
    assert await scene.store.spent(tomorrow + timedelta(days=1)) == []


async def test_tokens_of_a_child_count_for_its_person(store: Store, clock: FakeClock) -> None:
    """That is the person of the spawning turn."""
    family = FamilyScene(store, clock)
    held = await family.work(await family.born(await family.at_work(who=BOB)))
    await _end(family, held, replace(answer(), usage=USED))
    assert await store.spent(TODAY) == [_spent(who=BOB)]


async def test_making_a_summary_is_spent_too(scene: Scene) -> None:
    """Also when it came too late; with what else was spent that day."""
    lease = await scene.running()
    await _end(scene, lease, replace(answer(), usage=USED))
    for summary in ("First.", "Second."):
        await scene.store.compact(MAIN, 0, lease.turn, summary, _spent(Usage(input_tokens=10)))
    assert await _summary(scene) == "First."
    assert await scene.store.spent(TODAY) == [_spent(replace(USED, input_tokens=120), answers=3)]


async def test_a_summary_without_figures_is_not_counted(store: Store, scene: Scene) -> None:
    """As an answer without them."""
    assert await store.compact(MAIN, 0, await scene.ended(), "In short.", _spent(Usage()))
    assert await store.spent(TODAY) == []


# --- what an answer and a result carry ------------------------------------------------------


@pytest.mark.conformance
async def test_a_note_a_price_and_pictures_come_back(scene: Scene) -> None:
    """With the answer, and the result, that they belong to; pictures in their order."""
    lease = await scene.started()
    pictures = (Picture(file="b.png", media_type="image/png"), Picture(file="a.jpg", media_type="image/jpeg"))
    came = ToolResult(status=ResultStatus.OK, text="Two pictures.", pictures=pictures)
    await scene.came(lease, 1, came)
    last = replace(answer("Hi."), usage=USED, note="`big` did not answer; `small` did.")
    await _end(scene, lease, last)
    assert (await scene.step(lease.turn, 1)).result == came
    assert (await scene.step(lease.turn, 2)).answer == last
