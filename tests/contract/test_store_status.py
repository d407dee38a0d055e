"""Status slots: the status line of a running turn, and its final text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.domain.events import SLOTS, SlotsDue
from gateway.domain.ids import SlotId, status_slot
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.turns import Lease, TurnState
from gateway.errors import LeaseLost
from gateway.ports import ControlEffect, Store
from tests.contract.family import FamilyScene
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, PAGE, answer, said, seconds

EARLY = SlotId("early")
LEFT = "Ended."


def status(lease: Lease, text: str = "shell: df -h", *, where: Conversation = CHAT) -> NewSlot:
    """Return a status slot."""
    return NewSlot(conversation=where, kind=SlotKind.STATUS, text=text, id=status_slot(lease.turn))


async def _opened(scene: Scene, *, where: Conversation = CHAT) -> Lease:
    """A running turn whose line is shown."""
    lease = await scene.running()
    assert await scene.store.open_slot(lease, status(lease, where=where))
    await scene.send_all()
    return lease


async def _end(scene: Scene, lease: Lease, state: TurnState, *slots: NewSlot) -> bool:
    given = (await scene.view(lease.turn)).inputs
    return await scene.store.finish_turn(lease, state, answer=None, given=given, slots=slots, timers=[])


async def _line(scene: Scene) -> Slot:
    (slot,) = await scene.slots(kind=SlotKind.STATUS)
    return slot


def _shown(slot: Slot) -> tuple[str, int, int, SlotState]:
    return slot.text, slot.version, slot.sent_version, slot.state


# --- while the turn is under way ------------------------------------------------------------


async def test_status_line_is_sent_like_any_slot(scene: Scene) -> None:
    """At once, as a slot of the turn."""
    lease = await scene.running()
    async with scene.store.event_bus.subscribe(SLOTS) as heard:
        assert await scene.store.open_slot(lease, status(lease))
        assert await anext(heard) == SlotsDue()
    slot = await _line(scene)
    assert (slot.id, slot.turn, slot.session) == (status_slot(lease.turn), lease.turn, lease.session)
    assert _shown(slot) == ("shell: df -h", 1, 0, SlotState.DUE)


async def test_status_line_is_rewritten(scene: Scene) -> None:
    """Another text is a newer version, the same one is none."""
    lease = await _opened(scene)
    assert await scene.store.open_slot(lease, status(lease))
    assert _shown(await _line(scene)) == ("shell: df -h", 1, 1, SlotState.SENT)
    assert await scene.store.open_slot(lease, status(lease, "thinking"))
    assert _shown(await _line(scene)) == ("thinking", 2, 1, SlotState.DUE)


async def test_status_line_on_the_page_counts_as_sent(scene: Scene) -> None:
    """Each version counts as sent."""
    lease = await _opened(scene, where=PAGE)
    await scene.store.open_slot(lease, status(lease, "thinking", where=PAGE))
    assert _shown(await _line(scene)) == ("thinking", 2, 2, SlotState.SENT)


async def test_answers_leave_it_as_it_is(scene: Scene) -> None:
    """Neither their beginnings nor their ends take it over or away, however many there are."""
    lease = await _opened(scene)
    for n in range(2):
        beginning = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text="Once", n=n, id=SlotId(f"early-{n}"))
        assert await scene.store.open_slot(lease, beginning)
        await scene.store.plan(lease, answer(calls=1), given=[], slots=[])
        assert _shown(await _line(scene)) == ("shell: df -h", 1, 1, SlotState.SENT)
    assert await scene.store.open_slot(lease, status(lease, "thinking"))


async def test_plan_may_rewrite_it(scene: Scene) -> None:
    """And it goes on being the turn's line."""
    lease = await _opened(scene)
    await scene.store.plan(lease, answer(), given=[], slots=[said("Hm."), status(lease, "2 calls")])
    assert _shown(await _line(scene)) == ("2 calls", 2, 1, SlotState.DUE)
    assert await scene.store.open_slot(lease, status(lease, "thinking"))
    assert await _end(scene, lease, TurnState.FAILED)
    assert _shown(await _line(scene)) == (LEFT, 4, 1, SlotState.DUE)


async def test_plan_may_make_it(scene: Scene) -> None:
    """Then it is the turn's line as if `open_slot` had made it."""
    lease = await scene.running()
    await scene.store.plan(lease, answer(), given=[], slots=[status(lease, "2 calls")])
    assert await scene.store.open_slot(lease, status(lease, "thinking"))
    assert await _end(scene, lease, TurnState.DONE)
    assert (await _line(scene)).text == LEFT


async def test_unsent_status_line_is_sent_once_in_its_last_version(scene: Scene) -> None:
    """As it is then."""
    lease = await scene.running()
    for text in ("a", "b", "c"):
        await scene.store.open_slot(lease, status(lease, text))
    assert [slot.text for slot in await scene.send_all()] == ["c"]


async def test_rewritten_status_line_keeps_its_next_try(scene: Scene, clock: FakeClock) -> None:
    """A newer line does not pass by a platform's ban."""
    lease = await scene.running()
    await scene.store.open_slot(lease, status(lease))
    (line,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    await scene.store.slot_retry(line, timedelta(seconds=5), uncertain=False)
    clock.advance(1)
    await scene.store.open_slot(lease, status(lease, "thinking"))
    assert (await _line(scene)).due_at == clock.now() + seconds(4)


async def test_the_next_holder_goes_on_with_it(scene: Scene) -> None:
    """The holder died: its line stays until the next one says something."""
    first = await _opened(scene)
    await scene.lapse()
    lease = await scene.claim()
    assert _shown(await _line(scene)) == ("shell: df -h", 1, 1, SlotState.SENT)
    with pytest.raises(LeaseLost):
        await scene.store.open_slot(first, status(first, "late"))
    assert await scene.store.open_slot(lease, status(lease, "thinking"))
    assert (await _line(scene)).text == "thinking"


async def test_a_parked_turn_keeps_it(scene: Scene) -> None:
    """`waits for a decision` stands as long as it is true."""
    asked = await scene.asked()
    await scene.store.open_slot(asked.lease, status(asked.lease, "waits for a decision"))
    assert await scene.store.park(asked.lease)
    assert (await _line(scene)).text == "waits for a decision"


async def test_a_stopping_turn_changes_nothing(scene: Scene) -> None:
    """It says something once more, at its end."""
    lease = await _opened(scene)
    await scene.stop()
    assert not await scene.store.open_slot(lease, status(lease, "thinking"))
    assert (await _line(scene)).text == "shell: df -h"


# --- at the end -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TurnState.DONE, TurnState.FAILED, TurnState.STOPPED])
async def test_the_end_may_say_what_was_done(scene: Scene, state: TurnState) -> None:
    """It stays where it is, above the answer."""
    lease = await _opened(scene)
    assert await _end(scene, lease, state, said("Here it is."), status(lease, "1 call, 2 s"))
    assert _shown(await _line(scene)) == ("1 call, 2 s", 2, 1, SlotState.DUE)
    assert [slot.text for slot in await scene.slots()] == ["1 call, 2 s", "Here it is."]


@pytest.mark.parametrize("state", [TurnState.DONE, TurnState.FAILED, TurnState.STOPPED])
async def test_an_end_without_a_word_for_it_says_that_it_ended(scene: Scene, state: TurnState) -> None:
    """A line must not say for ever that something runs."""
    lease = await _opened(scene)
    assert await _end(scene, lease, state, said("Here it is."))
    assert _shown(await _line(scene)) == (LEFT, 2, 1, SlotState.DUE)
    assert [slot.text for slot in await scene.slots()] == [LEFT, "Here it is."]


async def test_the_last_word_does_not_take_its_place(scene: Scene) -> None:
    """That of an answer's beginning it does."""
    lease = await _opened(scene)
    await scene.store.open_slot(lease, NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text="Onc", n=0, id=EARLY))
    assert await _end(scene, lease, TurnState.FAILED, said("No answer came."))
    assert {slot.id: slot.text for slot in await scene.slots()} == {
        status_slot(lease.turn): LEFT,
        EARLY: "No answer came.",
    }


async def test_an_end_makes_no_line(scene: Scene) -> None:
    """An ending turn need not know whether it had a line."""
    lease = await scene.running()
    assert await _end(scene, lease, TurnState.DONE, said(), status(lease, "2 s"))
    assert await scene.slots(kind=SlotKind.STATUS) == []


async def test_a_turn_without_one_gets_none(scene: Scene) -> None:
    """Nothing is said of what was never shown."""
    lease = await scene.running()
    assert await _end(scene, lease, TurnState.DONE, said())
    assert await scene.slots(kind=SlotKind.STATUS) == []


async def test_a_refused_end_leaves_it(scene: Scene) -> None:
    """The turn goes on."""
    lease = await _opened(scene)
    await scene.say("wait")
    refused = await scene.store.finish_turn(lease, TurnState.DONE, answer=None, given=[], slots=[], timers=[])
    assert not refused
    assert (await _line(scene)).text == "shell: df -h"


@pytest.mark.parametrize("effect", [ControlEffect.STOP, ControlEffect.RESET])
async def test_a_parked_turn_that_is_stopped_says_that_it_ended(scene: Scene, effect: ControlEffect) -> None:
    """Nobody holds it: the command itself ends it."""
    asked = await scene.asked()
    await scene.store.open_slot(asked.lease, status(asked.lease, "waits for a decision"))
    await scene.store.park(asked.lease)
    assert await scene.stop(effect) == 1
    assert (await _line(scene)).text == LEFT


async def test_a_sweep_that_ends_a_stopped_turn_says_so(scene: Scene) -> None:
    """Its holder died before it could."""
    await _opened(scene)
    await scene.stop()
    await scene.lapse()
    assert _shown(await _line(scene)) == (LEFT, 2, 1, SlotState.DUE)


async def test_a_stopping_turn_that_is_given_back_says_so(scene: Scene) -> None:
    """The daemon shuts down."""
    lease = await _opened(scene)
    await scene.stop()
    await scene.store.release(lease)
    assert (await _line(scene)).text == LEFT


async def test_a_restart_that_ends_a_stopped_turn_says_so(scene: Scene) -> None:
    """The next life of the machine finds it."""
    await _opened(scene)
    await scene.stop()
    await scene.store.void_leases("here")
    assert (await _line(scene)).text == LEFT


async def test_a_child_that_is_stopped_ends_its_line_too(store: Store, clock: FakeClock) -> None:
    """It went down with its parent."""
    family = FamilyScene(store, clock)
    child = await family.child()
    held = await family.work(child)
    await store.open_slot(held, status(held))
    await store.release(held)
    await family.stop()
    (slot,) = await family.slots(child.session, kind=SlotKind.STATUS)
    assert slot.text == LEFT


async def test_a_line_that_was_given_up_is_tried_again_at_the_end(scene: Scene) -> None:
    """Its text is new."""
    lease = await scene.running()
    await scene.store.open_slot(lease, status(lease))
    (line,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    await scene.store.slot_dead(line, "no")
    assert await _end(scene, lease, TurnState.DONE)
    assert [slot.text for slot in await scene.send_all()] == [LEFT]


async def test_each_turn_has_its_own(scene: Scene) -> None:
    """The end of one leaves the other's."""
    first = await _opened(scene)
    assert await _end(scene, first, TurnState.DONE, status(first, "2 s"))
    second = await _opened(scene)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.STATUS)] == ["2 s", "shell: df -h"]
    assert await _end(scene, second, TurnState.DONE)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.STATUS)] == ["2 s", LEFT]
