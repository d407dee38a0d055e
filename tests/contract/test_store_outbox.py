"""`Outbox`: sending of slots, in order, none lost, versions honoured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import Principal, SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import REFUSALS_AT_ONCE, Slot, SlotKind, SlotState
from gateway.domain.waits import PressResult
from gateway.errors import NotFound
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Asked, Scene
from tests.support.clock import FakeClock
from tests.support.makers import CHAT, OTHER_CHAT, PAGE, answer, chat, deny, drop, inbound, said, seconds

CHANNELS = ["telegram", "slack"]


async def _say(scene: Scene, *texts: str, where: Conversation = CHAT) -> None:
    """Store slots, one transition."""
    lease = await scene.running()
    slots = [said(text, where=where) for text in texts]
    await scene.store.plan(lease, answer(), given=[], slots=slots)
    await scene.finish(lease)


async def _claim(scene: Scene, limit: int = 50) -> list[Slot]:
    return list(await scene.store.claim_slots(NODE, CHANNELS, limit))


async def _one(scene: Scene) -> Slot:
    (slot,) = await _claim(scene)
    return slot


async def _sent_card(scene: Scene) -> tuple[Asked, Slot]:
    asked = await scene.parked(2)
    await scene.send_all()
    return asked, await scene.slot_of(asked.turn, SlotKind.CARD)


# --- claim_slots ----------------------------------------------------------------------------


async def test_a_claimed_slot_is_being_sent(scene: Scene) -> None:
    """It counts as an attempt, and nobody else gets it."""
    await _say(scene, "a")
    slot = await _one(scene)
    assert (slot.text, slot.state, slot.attempts, slot.version) == ("a", SlotState.SENDING, 1, 1)
    assert await scene.slot(slot.id) == slot
    assert await scene.store.claim_slots(OTHER_NODE, CHANNELS, 50) == []


@pytest.mark.conformance
async def test_due_slots_agree_with_the_next_claim(scene: Scene) -> None:
    """Not what is for other channels, is being sent, or stands behind what is tried again later; others go on."""
    assert not await scene.store.any_due(CHANNELS)
    await _say(scene, "a", "b")
    assert await scene.store.any_due(CHANNELS)
    assert not await scene.store.any_due(["slack"])
    slot = await _one(scene)
    assert not await scene.store.any_due(CHANNELS)
    await scene.store.slot_retry(slot, seconds(5), uncertain=False)
    assert not await scene.store.any_due(CHANNELS)
    assert await _claim(scene) == []
    await _say(scene, "c", where=OTHER_CHAT)
    assert (await _one(scene)).text == "c"
    scene.clock.advance(5)
    assert await scene.store.any_due(CHANNELS)
    assert (await _one(scene)).text == "a"


@pytest.mark.conformance
async def test_a_conversation_is_served_in_order_one_at_a_time(scene: Scene) -> None:
    """The next only when the one before is through."""
    await _say(scene, "a", "b", "c")
    texts: list[str] = []
    while claimed := await _claim(scene):
        assert len(claimed) == 1
        assert await _claim(scene) == []
        texts.append(claimed[0].text)
        await scene.store.slot_sent(claimed[0], ("1",))
    assert texts == ["a", "b", "c"]


@pytest.mark.conformance
async def test_conversations_are_served_side_by_side_oldest_first(scene: Scene) -> None:
    """The limit takes the oldest. A thread is a conversation of its own."""
    for n in (3, 1, 2):
        await _say(scene, f"{n}a", f"{n}b", where=chat(n))
    await _say(scene, "in a thread", where=replace(chat(3), thread="9"))
    assert [slot.text for slot in await _claim(scene, limit=2)] == ["3a", "1a"]
    assert [slot.text for slot in await _claim(scene, limit=2)] == ["2a", "in a thread"]


async def test_only_the_named_channels_are_served(scene: Scene) -> None:
    """A node takes what it can send."""
    await _say(scene, "t")
    await _say(scene, "s", where=OTHER_CHAT)
    assert [slot.text for slot in await scene.store.claim_slots(NODE, ["slack"], 50)] == ["s"]
    assert [slot.text for slot in await scene.store.claim_slots(NODE, ["telegram"], 50)] == ["t"]
    assert await scene.store.claim_slots(NODE, [], 50) == []


async def test_a_slot_of_the_page_is_sent_by_being_stored(scene: Scene) -> None:
    """No sender ever sees it."""
    await _say(scene, "p", where=PAGE)
    (slot,) = await scene.slots()
    assert (slot.state, slot.version, slot.sent_version) == (SlotState.SENT, 1, 1)
    assert await scene.store.claim_slots(NODE, [*CHANNELS, "web"], 50) == []


@pytest.mark.conformance
async def test_refusals_come_last_and_few_at_once(scene: Scene, store: Store) -> None:
    """A crowd of strangers takes no place of anybody else: what is due for others goes first, whenever it came."""
    for number in range(20):
        await store.drop(inbound(who=Principal(f"telegram:{number}"), where=chat(100 + number)), drop(told=True), "No.")
    assert await store.any_due(CHANNELS)
    assert not await store.any_due(["slack"])
    await _say(scene, "for an owner")
    first = await store.claim_slots(NODE, CHANNELS, 50)
    assert [slot.text for slot in first] == ["for an owner", *["No."] * REFUSALS_AT_ONCE]
    assert await store.claim_slots(NODE, CHANNELS, 50) == []
    assert not await store.any_due(CHANNELS)
    await store.slot_sent(first[1], ("1",))
    (next_one,) = await store.claim_slots(NODE, CHANNELS, 50)
    assert next_one.conversation == chat(100 + REFUSALS_AT_ONCE)
    assert (await store.counts()).due_slots == 20 - REFUSALS_AT_ONCE - 1
    elsewhere = Conversation(channel="slack", account="default", chat="C1")
    await store.drop(inbound(who=Principal("slack:T/U1"), where=elsewhere), drop(told=True), "No.")
    assert [slot.conversation for slot in await store.claim_slots(NODE, CHANNELS, 50)] == [elsewhere]


# --- what came of it ------------------------------------------------------------------------


async def test_a_sent_slot_is_done(scene: Scene) -> None:
    """It has the platform's id, and nothing is due."""
    await _say(scene, "a")
    slot = await _one(scene)
    await scene.store.slot_sent(slot, ("m7",))
    done = await scene.slot(slot.id)
    assert (done.state, done.message_ids, done.version, done.sent_version) == (SlotState.SENT, ("m7",), 1, 1)
    assert (done.attempts, done.uncertain) == (0, False)
    assert await _claim(scene) == []


async def test_a_retry_waits_its_delay(scene: Scene, clock: FakeClock) -> None:
    """Then it is tried again as the same slot."""
    await _say(scene, "a")
    slot = await _one(scene)
    await scene.store.slot_retry(slot, seconds(5), uncertain=False)
    waiting = await scene.slot(slot.id)
    assert (waiting.state, waiting.due_at, waiting.uncertain) == (SlotState.DUE, clock.now() + seconds(5), False)
    clock.advance(4.9)
    assert await _claim(scene) == []
    clock.advance(0.1)
    again = await _one(scene)
    assert (again.id, again.attempts, again.sent_version) == (slot.id, 2, 0)


async def test_an_uncertain_create_stays_marked_until_it_is_shown(scene: Scene) -> None:
    """The next create says that it may be a repetition, also after a plain retry."""
    await _say(scene, "a")
    slot = await _one(scene)
    for uncertain in (True, False):
        await scene.store.slot_retry(slot, seconds(0), uncertain=uncertain)
        slot = await _one(scene)
        assert slot.uncertain
    await scene.store.slot_sent(slot, ("m",))
    assert not (await scene.slot(slot.id)).uncertain


async def test_a_try_that_was_none_is_not_counted(scene: Scene) -> None:
    """A limit or a ban kept it back, or the platform said when."""
    await _say(scene, "a")
    slot = await _one(scene)
    await scene.store.slot_retry(slot, seconds(0), uncertain=False)
    slot = await _one(scene)
    await scene.store.slot_retry(slot, seconds(0), uncertain=False, counted=False)
    assert (await scene.slot(slot.id)).attempts == 1
    assert (await _one(scene)).attempts == 2


async def test_a_part_is_remembered_while_the_rest_is_sent(scene: Scene) -> None:
    """A repetition goes on behind it; what is not whole was not sent."""
    await _say(scene, "a", "b")
    slot = await _one(scene)
    await scene.store.slot_part(slot, ("1",))
    part = await scene.slot(slot.id)
    assert (part.state, part.message_ids, part.sent_version) == (SlotState.SENDING, ("1",), 0)
    await scene.store.slot_retry(slot, seconds(0), uncertain=True)
    again = await _one(scene)
    assert (again.text, again.message_ids, again.uncertain) == ("a", ("1",), True)
    await scene.store.slot_part(again, ("1", "2"))
    await scene.store.slot_sent(again, ("1", "2"))
    assert (await scene.slot(slot.id)).state is SlotState.SENT


@pytest.mark.parametrize("uncertain", [True, False])
async def test_sender_knows_whether_an_edit_may_have_added_a_message(scene: Scene, uncertain: bool) -> None:
    """The same edit twice is harmless; a part that it adds is marked when it is sent again."""
    asked, _ = await _sent_card(scene)
    await scene.press(asked.wait)
    edit = await _one(scene)
    await scene.store.slot_retry(edit, seconds(0), uncertain=uncertain)
    assert (await _one(scene)).uncertain is uncertain


async def test_a_part_that_is_stored_settles_the_doubt(scene: Scene) -> None:
    """The part that was sent again stands there now; what follows was never sent before."""
    await _say(scene, "a")
    slot = await _one(scene)
    await scene.store.slot_retry(slot, seconds(0), uncertain=True)
    again = await _one(scene)
    assert again.uncertain
    await scene.store.slot_part(again, ("1",))
    assert not (await scene.slot(slot.id)).uncertain


async def test_a_dead_slot_is_not_tried_again(scene: Scene, clock: FakeClock) -> None:
    """The next of its conversation goes on."""
    await _say(scene, "a", "b")
    slot = await _one(scene)
    await scene.store.slot_dead(slot, "chat not found")
    assert (await scene.slot(slot.id)).state is SlotState.DEAD
    clock.advance(10_000)
    assert (await _one(scene)).text == "b"


# --- versions -------------------------------------------------------------------------------


async def test_a_new_version_of_a_sent_slot_is_due_at_once(scene: Scene) -> None:
    """As an edit of what is shown; attempts count anew."""
    asked, shown = await _sent_card(scene)
    await scene.press(asked.wait)
    edit = await _one(scene)
    assert (edit.id, edit.message_ids, edit.version, edit.sent_version) == (shown.id, shown.message_ids, 2, 1)
    assert edit.attempts == 1
    await scene.store.slot_sent(edit, edit.message_ids)
    done = await scene.slot(shown.id)
    assert (done.state, done.sent_version) == (SlotState.SENT, 2)


async def test_change_of_a_dead_card_is_retried(scene: Scene) -> None:
    """An outage must not leave its rows to be pressed for good."""
    asked, shown = await _sent_card(scene)
    await scene.press(asked.wait)
    edit = await _one(scene)
    await scene.store.slot_dead(edit, "an outage")
    await scene.press(asked.waits[1], deny())
    again = await _one(scene)
    assert (again.id, again.message_ids, again.version, again.attempts) == (shown.id, shown.message_ids, 3, 1)


async def test_press_on_an_outdated_dead_card_retries_its_change(scene: Scene) -> None:
    asked, shown = await _sent_card(scene)
    await scene.press(asked.wait)
    edit = await _one(scene)
    await scene.store.slot_dead(edit, "an outage")
    assert await _claim(scene) == []
    assert (await scene.press(asked.wait)).result is PressResult.ALREADY
    again = await _one(scene)
    assert (again.id, again.message_ids, again.attempts) == (shown.id, shown.message_ids, 1)
    await scene.store.slot_sent(again, again.message_ids)
    await scene.press(asked.wait)
    assert await _claim(scene) == []


async def test_a_card_that_was_never_shown_and_given_up_stays_so(scene: Scene) -> None:
    asked = await scene.parked(2)
    slot = await _one(scene)
    await scene.store.slot_dead(slot, "chat not found")
    await scene.press(asked.wait)
    await scene.press(asked.wait)
    assert await _claim(scene) == []
    assert (await scene.slot(slot.id)).state is SlotState.DEAD


@pytest.mark.parametrize("how", ["sent", "retry", "dead"])
async def test_a_result_for_an_older_version_leaves_the_slot_due(scene: Scene, how: str) -> None:
    """The card was decided while it was on its way: the newer version is still to be shown."""
    asked = await scene.parked(2)
    slot = await _one(scene)
    await scene.press(asked.wait)
    newer = await scene.slot(slot.id)
    assert (newer.version, newer.state) == (2, SlotState.SENDING)
    assert await _claim(scene) == []
    if how == "sent":
        await scene.store.slot_sent(slot, ("m1",))
    elif how == "retry":
        await scene.store.slot_retry(slot, seconds(0), uncertain=False)
    else:
        await scene.store.slot_dead(slot, "message too long")
    again = await _one(scene)
    shown = how == "sent"
    assert (again.id, again.version, again.attempts) == (slot.id, 2, 1)
    assert (again.sent_version, again.message_ids) == ((1, ("m1",)) if shown else (0, ()))


async def test_versions_that_nobody_sent_are_skipped(scene: Scene) -> None:
    """Two decisions in a row are one edit."""
    asked, _ = await _sent_card(scene)
    await scene.press(asked.wait)
    await scene.press(asked.waits[1], deny())
    edit = await _one(scene)
    assert edit.version == 3
    await scene.store.slot_sent(edit, edit.message_ids)
    assert await _claim(scene) == []


async def test_version_before_the_first_send_is_sent_with_it(scene: Scene) -> None:
    """One create, already decided."""
    asked = await scene.parked(2)
    await scene.press(asked.wait)
    slot = await _one(scene)
    assert (slot.version, slot.sent_version, slot.message_ids) == (2, 0, ())
    await scene.store.slot_sent(slot, ("m",))
    assert await _claim(scene) == []


@pytest.mark.conformance
async def test_newer_version_is_repeated_after_a_stale_edit(scene: Scene) -> None:
    """Another machine's edit, which no row tells of, may stand over it; there may be many."""
    asked, shown = await _sent_card(scene)
    await scene.press(asked.wait)
    edit = await _one(scene)
    assert await scene.store.slot_overwritten(shown.id, 1)  # while the newer one is on its way
    await scene.store.slot_sent(edit, edit.message_ids)
    again = await _one(scene)
    assert (again.id, again.version, again.attempts, again.sent_version) == (shown.id, 3, 1, 2)
    assert again.stands  # it says what was shown already: should it be refused, nothing is lost
    await scene.store.slot_sent(again, again.message_ids)
    assert await scene.store.slot_overwritten(shown.id, 2)  # after it was sent
    assert (await _one(scene)).version == 4


async def test_version_due_anyway_is_not_sent_twice(scene: Scene) -> None:
    asked, shown = await _sent_card(scene)
    await scene.press(asked.wait)
    assert await scene.store.slot_overwritten(shown.id, 1)
    assert (await _one(scene)).version == 2


async def test_an_edit_of_the_newest_version_stands(scene: Scene, store: Store) -> None:
    _, shown = await _sent_card(scene)
    rev = (await store.changes(MAIN, 0, 1_000)).rev
    assert not await store.slot_overwritten(shown.id, 1)
    assert not await store.slot_overwritten(SlotId("gone"), 1)
    assert (await store.changes(MAIN, 0, 1_000)).rev == rev
    assert await _claim(scene) == []


@pytest.mark.parametrize("what", ["sent", "part", "retry", "dead"])
async def test_result_of_a_stale_claim_changes_nothing(scene: Scene, clock: FakeClock, what: str) -> None:
    """Its sender was taken for dead, and another one sends the slot now."""
    await scene.parked()
    store, stale = scene.store, await _one(scene)
    clock.advance(61)
    assert await store.reclaim() == 1
    held = await _one(scene)
    assert (held.id, held.fence) == (stale.id, stale.fence + 1)
    saying = {
        "sent": lambda: store.slot_sent(stale, ("m",)),
        "part": lambda: store.slot_part(stale, ("m",)),
        "retry": lambda: store.slot_retry(stale, seconds(1), uncertain=False),
        "dead": lambda: store.slot_dead(stale, "no"),
    }
    await saying[what]()
    assert await scene.slot(stale.id) == held
    await store.slot_sent(held, ("m2",))
    await saying[what]()  # later still


async def test_a_late_result_counts_while_nobody_claimed_again(scene: Scene, clock: FakeClock) -> None:
    """Its sender was slow: what it made is known, and need not be made twice."""
    await scene.parked()
    slot = await _one(scene)
    clock.advance(61)
    assert await scene.store.reclaim() == 1
    await scene.store.slot_sent(slot, ("m",))
    assert await _claim(scene) == []


@pytest.mark.parametrize("what", ["sent", "part", "retry", "dead"])
async def test_a_slot_that_there_is_not_is_an_error(scene: Scene, what: str) -> None:
    """Each store says so in the same words."""
    store, nowhere = scene.store, replace((await _sent_card(scene))[1], id=SlotId("o0"))
    saying = {
        "sent": lambda: store.slot_sent(nowhere, ("m",)),
        "part": lambda: store.slot_part(nowhere, ("m",)),
        "retry": lambda: store.slot_retry(nowhere, seconds(1), uncertain=False),
        "dead": lambda: store.slot_dead(nowhere, "no"),
    }
    with pytest.raises(NotFound, match=r"^There is no slot o0\.$"):
        await saying[what]()
