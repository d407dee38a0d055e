"""`Sweeps`: expiry, timers, recovery after a restart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.domain.ids import NodeId, OwnerName, SessionId, SlotId
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import StepState
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome, WaitKind, WaitState
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Scene, offer_again
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_SLACK,
    BOB,
    CHAT,
    OTHER_CHAT,
    PAGE,
    answer,
    card,
    chat,
    copy_timer,
    file_slot,
    inbound,
    new_wait,
    result,
    route,
    said,
    seconds,
)

# --- expire_waits ---------------------------------------------------------------------------


@pytest.mark.conformance
async def test_an_open_wait_expires_at_its_time(scene: Scene, clock: FakeClock) -> None:
    """At the very moment at which a press is too late, not before; its turn is queued and its card edited."""
    asked = await scene.parked(ttl_s=60)
    for after_s, expired in ((59.999, 0), (0.001, 1)):
        clock.advance(after_s)
        assert await scene.store.expire_waits() == expired
        assert await scene.store.expire_waits() == 0
        wait = await scene.wait(asked.wait)
        assert wait.state is (WaitState.EXPIRED if expired else WaitState.OPEN)
        assert (wait.decided_by, wait.decided_at) == (None, None)
        assert await scene.state(asked.turn) is (TurnState.QUEUED if expired else TurnState.PARKED)
        assert (await scene.slot_of(asked.turn, SlotKind.CARD)).version == 1 + expired


@pytest.mark.conformance
async def test_an_unused_approval_expires_after_five_minutes(scene: Scene, clock: FakeClock) -> None:
    """When nobody holds the turn: its runner died between the press and the start."""
    asked = await scene.parked()
    await scene.press(asked.wait)
    for after_s, expired in ((300, 0), (0.5, 1)):
        clock.advance(after_s)
        assert await scene.store.expire_waits() == expired
        assert await scene.wait_state(asked.wait) is (WaitState.EXPIRED if expired else WaitState.APPROVED)
        assert await scene.state(asked.turn) is TurnState.QUEUED


async def test_a_holder_is_left_to_use_its_approvals(scene: Scene, clock: FakeClock) -> None:
    """Only `start_step` judges the age of an approval of a held turn."""
    asked = await scene.asked()
    await scene.press(asked.wait)
    clock.advance(301)
    assert await scene.store.expire_waits() == 0
    assert await scene.start(asked.lease, 1, asked.wait) is StartOutcome.TOO_OLD


async def test_expiry_leaves_a_running_turn_with_its_holder(scene: Scene, clock: FakeClock) -> None:
    """It is told, not taken away."""
    asked = await scene.asked(ttl_s=60)
    clock.advance(60)
    assert await scene.store.expire_waits() == 1
    assert await scene.state(asked.turn) is TurnState.RUNNING
    assert await scene.store.renew(asked.lease) is TurnState.RUNNING


async def test_timers_are_left_to_their_own_sweep(scene: Scene, clock: FakeClock) -> None:
    """`expire_waits` does not touch them."""
    asked = await scene.asked(ttl_s=60, wait_kind=WaitKind.TIMER)
    clock.advance(60)
    assert await scene.store.expire_waits() == 0
    assert await scene.wait_state(asked.wait) is WaitState.OPEN
    assert (await scene.store.counts()).open_approvals == 0  # nobody is asked anything


@pytest.mark.conformance
async def test_a_sweep_takes_at_most_five_hundred_rows(scene: Scene, clock: FakeClock) -> None:
    """It says how many, and is called again while there are more."""
    lease = await scene.planned(510)
    ttl = seconds(60)
    waits = [new_wait(n, expires_in=ttl) for n in range(1, 511)]
    assert await scene.store.open_waits(lease, waits, [])
    clock.advance(60)
    taken = [await scene.store.expire_waits() for _ in range(3)]
    assert taken == [500, 10, 0]


# --- reclaim --------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_a_turn_whose_holder_is_gone_is_queued_again(scene: Scene, clock: FakeClock) -> None:
    """The lease expires after fifteen seconds without renewal; the journal stays as it is."""
    lease = await scene.started()
    for after_s, taken in ((14.9, 0), (0.2, 1)):
        clock.advance(after_s)
        assert await scene.store.reclaim() == taken
        assert await scene.state(lease.turn) is (TurnState.QUEUED if taken else TurnState.RUNNING)
        assert (await scene.step(lease.turn, 1)).state is StepState.STARTED
        assert await scene.store.reclaim() == 0


async def test_a_reclaimed_turn_keeps_its_place_in_its_session(scene: Scene) -> None:
    """The queued message behind it still comes later."""
    lease = await scene.running()
    await scene.say("next")
    await scene.lapse()
    assert (await scene.claim()).turn == lease.turn


async def test_a_stopping_turn_whose_holder_is_gone_ends(scene: Scene) -> None:
    """As in `control`: stopped, with its words, and an unknown outcome for what was started."""
    lease = await scene.planned(2)
    await scene.start(lease, 1)
    await scene.stop()
    await scene.lapse()
    view = await scene.view(lease.turn)
    assert view.turn.state is TurnState.STOPPED
    statuses = [step.result.status for step in view.steps if step.result]
    assert statuses == [ResultStatus.UNKNOWN, ResultStatus.CANCELLED]
    slot = await scene.slot_of(lease.turn, SlotKind.ANSWER)
    assert (slot.text, slot.conversation) == ("Stopped.", CHAT)


async def test_parked_turns_are_not_reclaimed(scene: Scene, clock: FakeClock) -> None:
    """They hold no lease."""
    await scene.parked()
    clock.advance(3000)
    assert await scene.store.reclaim() == 0


async def _sending(scene: Scene, *, shown: bool) -> Slot:
    """The card of a parked turn while it is sent: for the first time, or because it was decided."""
    asked = await scene.parked()
    if shown:
        await scene.send_all()
        await scene.press(asked.wait)
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    return slot


@pytest.mark.parametrize("shown", [False, True])
async def test_a_slot_whose_sender_is_gone_is_due_again(scene: Scene, clock: FakeClock, shown: bool) -> None:
    """The timeout is a minute; a create may have been shown already, an edit is harmless."""
    slot = await _sending(scene, shown=shown)
    assert bool(slot.message_ids) is shown
    clock.advance(60)
    await scene.store.reclaim()
    assert (await scene.slot(slot.id)).state is SlotState.SENDING
    clock.advance(1)
    assert await scene.store.reclaim() == 1
    again = await scene.slot(slot.id)
    assert (again.state, again.uncertain) == (SlotState.DUE, not shown)
    assert [s.id for s in await scene.store.claim_slots(OTHER_NODE, ["telegram"], 5)] == [slot.id]


@pytest.mark.conformance
async def test_a_file_may_be_under_way_for_a_quarter_of_an_hour(scene: Scene, clock: FakeClock) -> None:
    """A way out of a megabit takes minutes for it; whoever sends it gives up before that."""
    lease = await scene.started()
    await scene.came(lease, 1, result("made"), [file_slot("all.zip", n=1)])
    (slot,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    clock.advance(15 * 60)
    await scene.store.reclaim()
    assert (await scene.slot(slot.id)).state is SlotState.SENDING
    clock.advance(1)
    await scene.store.reclaim()
    again = await scene.slot(slot.id)
    assert (again.state, again.uncertain) == (SlotState.DUE, True)


# --- void_leases ----------------------------------------------------------------------------


async def test_a_restart_voids_every_earlier_life(scene: Scene) -> None:
    """Also of a life before the last; a machine whose name only begins the same is another."""
    for n, node in enumerate(("here#1", "here#2", "here2#1", "x-here#1")):
        await scene.say(to=route(SessionId(f"chat:{n}")))
        await scene.claim(NodeId(node))
    assert await scene.sweep(lambda: scene.store.void_leases("here")) == 2


async def test_a_restart_ends_what_was_stopping(scene: Scene) -> None:
    """As in `reclaim`."""
    lease = await scene.started()
    await scene.stop()
    assert await scene.store.void_leases("here") == 1
    assert await scene.state(lease.turn) is TurnState.STOPPED
    step = await scene.step(lease.turn, 1)
    assert step.result is not None
    assert step.result.status is ResultStatus.UNKNOWN


@pytest.mark.conformance
async def test_a_restart_takes_back_what_its_machine_held(scene: Scene) -> None:
    """At once: leases of turns, and slots that are due again. Other machines keep theirs."""
    lease = await scene.running(route(SessionId("chat:a")))
    await scene.say(to=route(SessionId("chat:g")))
    theirs = await scene.claim(OTHER_NODE)
    shown = await _sending(scene, shown=True)
    assert await scene.sweep(lambda: scene.store.void_leases("elsewhere")) == 0
    assert await scene.sweep(lambda: scene.store.void_leases("here")) == 2
    again = await scene.slot(shown.id)
    assert (again.state, again.uncertain) == (SlotState.DUE, False)
    assert await scene.state(lease.turn) is TurnState.QUEUED
    assert await scene.state(theirs.turn) is TurnState.RUNNING


# --- fire_timers ----------------------------------------------------------------------------


async def _answered_on_page(scene: Scene, *, owner: OwnerName = ANN) -> SlotId:
    """A turn begun on the web page, answered there, with the timer that copies the answer; in 30 s it fires."""
    await scene.say(where=PAGE)
    lease = await scene.claim()
    slot = SlotId("o-answer")
    (received,) = (await scene.view(lease.turn)).inputs
    timer = copy_timer(slot, expires_in=seconds(30), owner=owner)
    shown = said("From the page.", where=PAGE, slot=slot)
    assert await scene.store.finish_turn(
        lease, TurnState.DONE, answer=answer(), given=[received], slots=[shown], timers=[timer]
    )
    return slot


async def _was_in(scene: Scene, *places: Conversation) -> None:
    for n, place in enumerate(places):
        await scene.store.accept(
            route(),
            inbound(where=place, who=(ANN_SLACK if place == OTHER_CHAT else BOB)),
            TurnKind.COMMAND,
            running=WhileRunning.QUEUE,
            say_if_waiting=None,
        )
        await scene.finish(await scene.claim())
        scene.clock.advance(n + 1)


async def _timer(scene: Scene) -> WaitState:
    (view,) = [view for view in await scene.store.history(MAIN, 0, 100) if view.waits]
    return view.waits[0].state


async def test_an_answer_nobody_saw_is_copied_to_the_last_chat(scene: Scene, clock: FakeClock) -> None:
    """To the owner's last direct conversation that is not the page; once."""
    await _was_in(scene, CHAT, OTHER_CHAT)
    await _answered_on_page(scene)
    clock.advance(29)
    assert await scene.store.fire_timers() == 0
    assert await _timer(scene) is WaitState.OPEN
    clock.advance(1)
    assert await scene.store.fire_timers() == 1
    assert await scene.store.fire_timers() == 0
    (copy,) = await scene.slots(kind=SlotKind.COPY)
    assert (copy.text, copy.conversation, copy.state) == ("From the page.", OTHER_CHAT, SlotState.DUE)
    assert await _timer(scene) is WaitState.ANSWERED


async def test_an_answer_that_was_seen_is_not_copied(scene: Scene, clock: FakeClock) -> None:
    """The page was open after the answer was stored."""
    await _was_in(scene, CHAT)
    await _answered_on_page(scene)
    clock.advance(10)
    await scene.store.saw_page(ANN)
    clock.advance(20)
    assert await scene.store.fire_timers() == 1
    assert await scene.slots(kind=SlotKind.COPY) == []
    assert await _timer(scene) is WaitState.CANCELLED


async def test_a_page_seen_before_the_answer_does_not_count(scene: Scene, clock: FakeClock) -> None:
    """Nor does somebody else's."""
    await _was_in(scene, CHAT)
    await scene.store.saw_page(ANN)
    clock.advance(1)
    await _answered_on_page(scene)
    clock.advance(10)
    await scene.store.saw_page(OwnerName("eve"))
    clock.advance(20)
    await scene.store.fire_timers()
    assert len(await scene.slots(kind=SlotKind.COPY)) == 1


async def test_without_a_chat_nothing_is_copied(scene: Scene, clock: FakeClock) -> None:
    """The owner only ever used the page; another owner's chat is none of theirs."""
    await scene.store.accept(
        route(owner=OwnerName("eve")),
        inbound(where=chat(7)),
        TurnKind.COMMAND,
        running=WhileRunning.QUEUE,
        say_if_waiting=None,
    )
    await scene.finish(await scene.claim())
    await _answered_on_page(scene)
    clock.advance(30)
    assert await scene.store.fire_timers() == 1
    assert await scene.slots(kind=SlotKind.COPY) == []
    assert await _timer(scene) is WaitState.CANCELLED


async def test_a_group_is_no_place_for_a_copy(scene: Scene, clock: FakeClock) -> None:
    """Only direct conversations count."""
    await scene.store.accept(
        route(),
        inbound(where=chat(-5), direct=False),
        TurnKind.COMMAND,
        running=WhileRunning.QUEUE,
        say_if_waiting=None,
    )
    await scene.finish(await scene.claim())
    await _answered_on_page(scene)
    clock.advance(30)
    await scene.store.fire_timers()
    assert await scene.slots(kind=SlotKind.COPY) == []


# --- begin ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("away_s", "offered"), [(0, 0), (120, 0), (121, 1), (86_400, 1)])
async def test_begin_offers_cards_after_a_downtime_only(scene: Scene, away_s: int, offered: int) -> None:
    await scene.store.begin(NODE, timedelta(seconds=120))
    await scene.parked()
    await scene.send_all()
    scene.clock.advance(away_s)
    found = await scene.store.begin(OTHER_NODE, timedelta(seconds=120))
    assert (found > 0) is (offered > 0)


async def test_begin_on_a_new_store_offers_nothing(scene: Scene) -> None:
    await scene.parked()
    await scene.send_all()
    assert await scene.store.begin(NODE, timedelta(0)) == 0


async def test_second_node_after_a_downtime_offers_nothing(scene: Scene) -> None:
    """A heartbeat of any node ends the downtime of all."""
    await scene.store.alive(NODE)
    await scene.parked()
    await scene.send_all()
    scene.clock.advance(600)
    assert await scene.store.begin(NODE, timedelta(seconds=120)) == 1
    assert await scene.store.begin(OTHER_NODE, timedelta(seconds=120)) == 0


async def test_open_cards_are_shown_again_after_a_downtime(scene: Scene) -> None:
    """A new slot with the same waits in the same place; the old one stays, and both can be pressed."""
    asked = await scene.parked(2)
    await scene.send_all()
    await scene.offer_again()
    old, new = await scene.slots(kind=SlotKind.CARD)
    assert (new.waits, new.conversation, new.turn) == (old.waits, old.conversation, asked.turn)
    assert (new.id != old.id, new.state, new.version) == (True, SlotState.DUE, 1)
    assert (old.state, old.version) == (SlotState.SENT, 1)
    assert {slot.id for slot in await scene.store.card_slots(asked.wait)} == {old.id, new.id}


async def test_each_place_gets_one_card_however_often_it_was_offered(scene: Scene) -> None:
    """A third downtime does not double what the second one did."""
    await scene.parked()
    for _ in range(3):
        await scene.send_all()
        await scene.offer_again()
    assert len(await scene.slots(kind=SlotKind.CARD)) == 4


async def test_a_card_that_was_never_shown_is_not_shown_twice(scene: Scene) -> None:
    """It is still on its way."""
    await scene.parked()
    await scene.offer_again()
    assert len(await scene.slots(kind=SlotKind.CARD)) == 1


async def test_the_page_shows_what_is_open_anyway(scene: Scene) -> None:
    """No second card there."""
    await scene.parked(where=PAGE)
    await scene.offer_again()
    assert len(await scene.slots(kind=SlotKind.CARD)) == 1


async def test_a_decided_card_is_not_shown_again(scene: Scene) -> None:
    """Only what is open is asked."""
    asked = await scene.parked()
    await scene.send_all()
    await scene.press(asked.wait)
    await scene.offer_again()
    assert len(await scene.slots(kind=SlotKind.CARD)) == 1


async def test_a_card_with_one_open_row_is_shown_again_whole(scene: Scene) -> None:
    """The decided row says what was decided."""
    asked = await scene.parked(2)
    await scene.send_all()
    await scene.press(asked.wait)
    await scene.send_all()
    await scene.offer_again()
    cards = await scene.slots(kind=SlotKind.CARD)
    assert [slot.waits for slot in cards] == [asked.waits, asked.waits]


async def test_approval_expired_in_a_downtime_is_superseded(scene: Scene, clock: FakeClock) -> None:
    """The approval is superseded, its call planned again and its turn queued; nobody could have pressed it."""
    asked = await scene.parked(ttl_s=60)
    await scene.send_all()
    clock.advance(60)
    await scene.offer_again()
    assert await scene.wait_state(asked.wait) is WaitState.SUPERSEDED
    step = await scene.step(asked.turn, 1)
    assert (step.state, step.asked_anew) == (StepState.PLANNED, True)
    assert await scene.state(asked.turn) is TurnState.QUEUED
    (shown,) = await scene.slots(kind=SlotKind.CARD)
    assert (shown.version, shown.state) == (2, SlotState.DUE)


async def test_a_call_is_asked_again_once(scene: Scene, clock: FakeClock) -> None:
    """The second downtime that swallows it expires it."""
    first = await scene.parked(ttl_s=60)
    clock.advance(60)
    await scene.offer_again()
    second = await scene.ask(await scene.claim(), [new_wait(1, expires_in=seconds(60))])
    assert await scene.store.park(second.lease)
    clock.advance(60)
    await scene.offer_again()
    states = [await scene.wait_state(wait) for wait in (first.wait, second.wait)]
    assert states == [WaitState.SUPERSEDED, WaitState.EXPIRED]
    assert (await scene.step(first.turn, 1)).state is StepState.ASKED
    assert await scene.state(first.turn) is TurnState.QUEUED


async def test_a_new_approval_of_a_call_asked_again_counts(scene: Scene, clock: FakeClock) -> None:
    """The old one is worthless, the new one starts the call."""
    first = await scene.parked(ttl_s=60)
    clock.advance(60)
    await scene.offer_again()
    second = await scene.ask(await scene.claim(), [new_wait(1, expires_in=seconds(60))])
    await scene.press(second.wait)
    assert await scene.start(second.lease, 1, first.wait) is StartOutcome.NOT_APPROVED
    assert await scene.start(second.lease, 1, second.wait) is StartOutcome.STARTED


async def test_an_approval_that_was_given_is_not_asked_again(scene: Scene, clock: FakeClock) -> None:
    """A decision stands, however long ago its card would have expired."""
    asked = await scene.parked(ttl_s=60)
    await scene.press(asked.wait)
    clock.advance(200)
    await scene.offer_again()
    assert await scene.wait_state(asked.wait) is WaitState.APPROVED


async def test_sweeps_of_an_empty_store_find_nothing(store: Store) -> None:
    """Zero, from each of them."""
    assert await store.expire_waits() == 0
    assert await store.reclaim() == 0
    assert await store.fire_timers() == 0
    assert await offer_again(store) == 0
    assert await store.void_leases("here") == 0


async def test_cards_of_one_wait_in_several_chats_are_all_shown_again(scene: Scene) -> None:
    """Every place where it could be pressed."""
    lease = await scene.planned()
    wait = new_wait(1, expires_in=seconds(60))
    await scene.store.open_waits(lease, [wait], [card(wait.id, where=where) for where in (CHAT, OTHER_CHAT, PAGE)])
    await scene.send_all()
    await scene.offer_again()
    places = sorted(slot.conversation.key for slot in await scene.slots(kind=SlotKind.CARD))
    assert places == sorted([CHAT.key, CHAT.key, OTHER_CHAT.key, OTHER_CHAT.key, PAGE.key])
