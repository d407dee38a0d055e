"""`TurnJournal.open_slot`: the draft slot of an answer being written, and its end."""

from __future__ import annotations

import pytest

from gateway.domain.events import SLOTS, SlotsDue
from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.turns import Lease, TurnState
from gateway.errors import LeaseLost
from tests.contract.scene import NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, OTHER_CHAT, PAGE, answer, said, seconds

EARLY = SlotId("early")


def early(text: str = "Once", *, where: Conversation = CHAT, n: int = 0) -> NewSlot:
    """The beginning of an answer."""
    return NewSlot(conversation=where, kind=SlotKind.ANSWER, text=text, n=n, id=EARLY)


async def _opened(scene: Scene) -> Lease:
    """A running turn with a slot whose first version is shown."""
    lease = await scene.running()
    assert await scene.store.open_slot(lease, early())
    await scene.send_all()
    return lease


async def _end(scene: Scene, lease: Lease, state: TurnState, *slots: NewSlot) -> bool:
    return await scene.store.finish_turn(lease, state, answer=None, given=[], slots=slots, timers=[])


async def _texts(scene: Scene) -> list[str]:
    return [slot.text for slot in await scene.slots()]


def _shown(slot: Slot) -> tuple[str, int, int, SlotState]:
    return slot.text, slot.version, slot.sent_version, slot.state


# --- open_slot ------------------------------------------------------------------------------


async def test_the_beginning_of_an_answer_is_sent(scene: Scene) -> None:
    """Like any slot of the turn."""
    lease = await scene.running()
    async with scene.store.event_bus.subscribe(SLOTS) as heard:
        assert await scene.store.open_slot(lease, early())
        assert await anext(heard) == SlotsDue()
    slot = await scene.slot(EARLY)
    assert (slot.turn, slot.session, slot.n, slot.kind) == (lease.turn, lease.session, 0, SlotKind.ANSWER)
    assert _shown(slot) == ("Once", 1, 0, SlotState.DUE)


async def test_more_text_is_a_newer_version(scene: Scene) -> None:
    """The same text is none."""
    lease = await _opened(scene)
    assert await scene.store.open_slot(lease, early())
    assert _shown(await scene.slot(EARLY)) == ("Once", 1, 1, SlotState.SENT)
    assert await scene.store.open_slot(lease, early("Once upon"))
    assert _shown(await scene.slot(EARLY)) == ("Once upon", 2, 1, SlotState.DUE)


async def test_a_stopping_turn_opens_nothing(scene: Scene) -> None:
    """Nor does one that somebody else holds."""
    lease = await scene.running()
    await scene.stop()
    assert not await scene.store.open_slot(lease, early())
    assert EARLY not in [slot.id for slot in await scene.slots()]
    await scene.lapse()
    with pytest.raises(LeaseLost):
        await scene.store.open_slot(lease, early())


async def test_a_whole_answer_is_not_made_a_beginning_again(scene: Scene) -> None:
    """A late draft does not replace the answer."""
    lease = await _opened(scene)
    await scene.store.plan(lease, answer(), given=[], slots=[early("All of it.")])
    assert not await scene.store.open_slot(lease, early("All"))
    assert (await scene.slot(EARLY)).text == "All of it."


# --- the answer comes -----------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
async def test_the_answer_takes_the_slot_over(scene: Scene, ends: bool) -> None:
    """Its text in the next version, though it may be the same; nothing else is said."""
    lease = await _opened(scene)
    if ends:
        assert await _end(scene, lease, TurnState.FAILED, early("Once", n=2))
    else:
        await scene.store.plan(lease, answer(), given=[], slots=[early("Once", n=2)])
    slot = await scene.slot(EARLY)
    assert _shown(slot) == ("Once", 2, 1, SlotState.DUE)
    assert (slot.n, slot.message_ids) == (2, (f"m-{EARLY}",))
    assert await _texts(scene) == ["Once"]


async def test_a_version_on_its_way_is_followed_by_the_answer(scene: Scene) -> None:
    """A sender has it: the whole comes after."""
    lease = await scene.running()
    await scene.store.open_slot(lease, early())
    (sending,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    await _end(scene, lease, TurnState.FAILED, early("Once upon a time."))
    assert _shown(await scene.slot(EARLY)) == ("Once upon a time.", 2, 0, SlotState.SENDING)
    await scene.store.slot_sent(sending, ("m",))
    assert _shown(await scene.slot(EARLY)) == ("Once upon a time.", 2, 1, SlotState.DUE)


async def test_an_answer_whose_beginning_was_given_up_is_tried(scene: Scene) -> None:
    """The platform refused half a text; it may take the whole."""
    lease = await scene.running()
    await scene.store.open_slot(lease, early("**"))
    (sending,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    await scene.store.slot_dead(sending, "cannot be parsed")
    await scene.store.plan(lease, answer(), given=[], slots=[early("**Once**")])
    (again,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    assert (again.text, again.attempts) == ("**Once**", 1)


async def test_the_next_try_keeps_its_time(scene: Scene, clock: FakeClock) -> None:
    """A newer text does not pass by a platform's ban."""
    lease = await scene.running()
    await scene.store.open_slot(lease, early())
    (draft,) = await scene.store.claim_slots(NODE, ["telegram"], 1)
    await scene.store.slot_retry(draft, seconds(5), uncertain=False)
    due_at = (await scene.slot(EARLY)).due_at
    clock.advance(1)
    await scene.store.open_slot(lease, early("Once upon"))
    assert (await scene.slot(EARLY)).due_at == due_at


async def test_draft_slot_on_the_page_counts_as_sent(scene: Scene) -> None:
    """Each version counts as sent."""
    lease = await scene.running()
    await scene.store.open_slot(lease, early(where=PAGE))
    await scene.store.plan(lease, answer(), given=[], slots=[early("Once upon", where=PAGE)])
    assert _shown(await scene.slot(EARLY)) == ("Once upon", 2, 2, SlotState.SENT)


# --- no answer comes ------------------------------------------------------------------------


async def test_an_answer_without_text_takes_it_away(scene: Scene) -> None:
    """Calls alone: what was shown is emptied, so that the channel deletes it."""
    lease = await _opened(scene)
    await scene.store.plan(lease, answer(calls=1), given=[], slots=[])
    slot = await scene.slot(EARLY)
    assert _shown(slot) == ("", 2, 1, SlotState.DUE)
    assert slot.n == 0


@pytest.mark.parametrize("state", [TurnState.DONE, TurnState.FAILED, TurnState.STOPPED])
async def test_the_last_word_stands_in_its_place(scene: Scene, state: TurnState) -> None:
    """No second message: `Stopped.` where the answer was being written."""
    lease = await _opened(scene)
    given = (await scene.view(lease.turn)).inputs
    slots = [said("first"), said("last", slot=SlotId("other"))]
    assert await scene.store.finish_turn(lease, state, answer=None, given=given, slots=slots, timers=[])
    assert await _texts(scene) == ["last", "first"]
    assert _shown(await scene.slot(EARLY)) == ("last", 2, 1, SlotState.DUE)


async def test_without_a_last_word_it_is_taken_away(scene: Scene) -> None:
    """Nothing is left of it."""
    lease = await _opened(scene)
    await _end(scene, lease, TurnState.FAILED)
    assert await _texts(scene) == [""]


async def test_a_last_word_for_elsewhere_goes_there(scene: Scene) -> None:
    """A slot stays in its conversation."""
    lease = await _opened(scene)
    await _end(scene, lease, TurnState.FAILED, said("last", where=OTHER_CHAT))
    assert await _texts(scene) == ["", "last"]


async def test_a_refused_end_changes_nothing(scene: Scene) -> None:
    """A message waits to be given: the turn goes on, and so does its answer."""
    lease = await _opened(scene)
    await scene.say("wait", running=WhileRunning.STEER)
    assert not await _end(scene, lease, TurnState.DONE, said("last"))
    assert _shown(await scene.slot(EARLY)) == ("Once", 1, 1, SlotState.SENT)
    assert await scene.store.open_slot(lease, early("Once upon"))


async def test_the_next_holder_takes_it_over(scene: Scene) -> None:
    """The holder died: another asks again under an id of its own, and the first beginning is taken away."""
    await _opened(scene)
    await scene.lapse()
    lease = await scene.claim()
    await scene.store.plan(lease, answer(), given=[], slots=[said("All of it.", slot=SlotId("second"))])
    assert await _texts(scene) == ["", "All of it."]


async def test_a_stopped_turn_says_so_in_its_place(scene: Scene) -> None:
    """Its holder died before it could: the sweep writes the word."""
    await _opened(scene)
    assert await scene.stop() == 1
    assert (await scene.slot(EARLY)).text == "Once"
    await scene.lapse()
    (slot,) = await scene.slots(kind=SlotKind.ANSWER)
    assert _shown(slot) == ("Stopped.", 2, 1, SlotState.DUE)


async def test_a_queued_turn_that_is_stopped_says_so_in_its_place(scene: Scene) -> None:
    """It was given back while it wrote."""
    lease = await _opened(scene)
    await scene.store.release(lease)
    assert await scene.stop() == 1
    (slot,) = await scene.slots(kind=SlotKind.ANSWER)
    assert (slot.id, slot.text) == (EARLY, "Stopped.")


async def test_an_answered_turn_that_is_stopped_says_so_again(scene: Scene) -> None:
    """Its answer stands; the word comes below it."""
    lease = await scene.running()
    await scene.store.open_slot(lease, early())
    await scene.store.plan(lease, answer(), given=[], slots=[early("All of it.")])
    await scene.store.release(lease)
    assert await scene.stop() == 1
    assert [slot.text for slot in await scene.slots(kind=SlotKind.ANSWER)] == ["All of it.", "Stopped."]
