"""Slots that a late edit with unknown result may have overwritten: `fire_timers` has them shown once more."""

from __future__ import annotations

import pytest

from gateway.domain.ids import NodeId, SlotId
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.turns import Lease, TurnState
from tests.contract.scene import NODE, Scene
from tests.support.makers import CHAT, deny, seconds

NEXT_LIFE = NodeId("here#2")
EARLY = SlotId("early")
SETTLED_S = 60.0


async def _claim(scene: Scene, node: NodeId = NODE) -> Slot:
    (slot,) = await scene.store.claim_slots(node, ["telegram"], 50)
    return slot


async def _send(scene: Scene, node: NodeId = NODE) -> Slot:
    slot = await _claim(scene, node)
    await scene.store.slot_sent(slot, slot.message_ids or ("m",))
    return await scene.slot(slot.id)


async def _editing(scene: Scene) -> Slot:
    """An edit of a card is on its way."""
    asked = await scene.parked(2)
    await _send(scene)
    await scene.press(asked.wait)
    return await _claim(scene)


async def _begun(scene: Scene, kind: SlotKind = SlotKind.ANSWER) -> Lease:
    """The beginning of an answer, or a status line, is shown by a node, which may be editing it."""
    lease = await scene.running()
    await scene.store.open_slot(lease, _new("Once", kind))
    await _send(scene)
    return lease


def _new(text: str, kind: SlotKind = SlotKind.ANSWER) -> NewSlot:
    return NewSlot(conversation=CHAT, kind=kind, text=text, id=EARLY)


async def _ends(scene: Scene, lease: Lease, kind: SlotKind = SlotKind.ANSWER) -> None:
    slots = [_new("Once upon a time.", kind)]
    assert await scene.store.finish_turn(lease, TurnState.FAILED, answer=None, given=[], slots=slots, timers=[])


async def _again(scene: Scene, of: Slot, node: NodeId = NODE) -> None:
    """It stands for a minute, is due once more then, and not a third time."""
    assert of.state is SlotState.SENT
    scene.clock.advance(SETTLED_S - 1)
    assert await scene.store.fire_timers() == 0
    assert await scene.slot(of.id) == of
    scene.clock.advance(2)
    assert await scene.store.fire_timers() == 1
    again = await _claim(scene, node)
    assert (again.id, again.version, again.text, again.stands) == (of.id, of.version + 1, of.text, True)
    await scene.store.slot_sent(again, again.message_ids)
    await _nothing_more(scene)


async def _nothing_more(scene: Scene) -> None:
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 0
    assert await scene.store.claim_slots(NODE, ["telegram"], 50) == []


async def _in_doubt(scene: Scene, edit: Slot, how: str) -> None:
    """Its sender is gone, was taken for gone, or heard no answer."""
    if how == "retry":
        await scene.store.slot_retry(edit, seconds(0), uncertain=False, unsettled=True)
    elif how == "reclaim":
        scene.clock.advance(61)
        assert await scene.store.reclaim() == 1
    else:
        assert await scene.store.void_leases("here") == 1


IN_DOUBT = pytest.mark.parametrize("how", ["void_leases", "reclaim", "retry"])


@IN_DOUBT
async def test_an_edit_in_doubt_may_come_after_the_next(scene: Scene, how: str) -> None:
    """A decision in between is shown, and once more when the edit in doubt has arrived or been lost."""
    asked = await scene.parked(2)
    await _send(scene)
    await scene.press(asked.wait)
    edit = await _claim(scene)
    await scene.press(asked.waits[1], deny())
    await _in_doubt(scene, edit, how)
    await _again(scene, await _send(scene, NEXT_LIFE), NEXT_LIFE)


@IN_DOUBT
async def test_the_same_edit_twice_is_no_harm(scene: Scene, how: str) -> None:
    edit = await _editing(scene)
    await _in_doubt(scene, edit, how)
    assert (await _send(scene, NEXT_LIFE)).version == edit.version
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    await _nothing_more(scene)


@IN_DOUBT
async def test_repeats_of_a_version_are_bounded(scene: Scene, how: str) -> None:
    """On a platform that never answers the first try."""
    lease = await _begun(scene)
    await _ends(scene, lease)
    await _send(scene, NEXT_LIFE)
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    again = await _claim(scene)
    await _in_doubt(scene, again, how)
    assert (await _send(scene)).version == again.version
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    await _nothing_more(scene)


async def test_new_version_does_not_count_as_shown(scene: Scene) -> None:
    """A card is decided while it waits to be shown once more: that must not be lost."""
    asked = await scene.parked(2)
    await _send(scene)
    await scene.press(asked.wait)
    edit = await _claim(scene)
    await scene.store.slot_sent(edit, ("m",), unsettled=True)
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    assert (await scene.slot(edit.id)).stands
    await scene.press(asked.waits[1], deny())
    newest = await _claim(scene)
    assert (newest.version, newest.stands) == (edit.version + 2, False)


async def test_last_text_may_be_overwritten_by_its_senders_edit(scene: Scene) -> None:
    lease = await _begun(scene)
    await _ends(scene, lease)
    last = await _claim(scene)
    await scene.store.slot_sent(last, ("m",), unsettled=True)
    await _again(scene, await scene.slot(last.id))


async def test_draft_shown_by_a_life_is_known_when_reported_twice(scene: Scene) -> None:
    """A store that failed after it had written is asked again."""
    lease = await scene.running()
    await scene.store.open_slot(lease, _new("Once"))
    beginning = await _claim(scene)
    for _ in range(2):
        await scene.store.slot_sent(beginning, ("m",))
    await _ends(scene, lease)
    await _again(scene, await _send(scene, NEXT_LIFE), NEXT_LIFE)


async def test_an_edit_that_was_refused_is_over(scene: Scene) -> None:
    edit = await _editing(scene)
    await scene.store.slot_retry(edit, seconds(0), uncertain=False)
    await _send(scene)
    await _nothing_more(scene)


async def test_a_message_in_doubt_is_no_edit(scene: Scene) -> None:
    """It is a message of its own; nothing stands below it."""
    await scene.parked(2)
    await _claim(scene)
    assert await scene.store.void_leases("here") == 1
    await _send(scene, NEXT_LIFE)
    await _nothing_more(scene)


@pytest.mark.parametrize("kind", [SlotKind.ANSWER, SlotKind.STATUS])
async def test_last_words_of_another_life_may_be_overwritten(scene: Scene, kind: SlotKind) -> None:
    """The one that showed the beginning was editing it when it died, perhaps; no row tells."""
    lease = await _begun(scene, kind)
    await _ends(scene, lease, kind)
    await _again(scene, await _send(scene, NEXT_LIFE), NEXT_LIFE)


async def test_last_words_of_the_same_life_wait_for_its_edits(scene: Scene) -> None:
    """The editing life knows when its last edit arrived."""
    lease = await _begun(scene)
    await _ends(scene, lease)
    await _send(scene)
    await _nothing_more(scene)


async def test_a_beginning_that_was_sent_late_is_edited_too(scene: Scene) -> None:
    """The answer was whole before its beginning was shown."""
    lease = await scene.running()
    await scene.store.open_slot(lease, _new("Once"))
    beginning = await _claim(scene)
    await _ends(scene, lease)
    await scene.store.slot_sent(beginning, ("m",))
    await _again(scene, await _send(scene, NEXT_LIFE), NEXT_LIFE)


async def test_a_beginning_that_two_lives_showed(scene: Scene) -> None:
    """An edit of the first may come after the last words of the second."""
    lease = await _begun(scene)
    await scene.store.open_slot(lease, _new("Once upon"))
    await _send(scene, NEXT_LIFE)
    await _ends(scene, lease)
    assert (await _send(scene, NEXT_LIFE)).version == 3
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    assert (await _send(scene, NEXT_LIFE)).version == 4
    await _nothing_more(scene)


async def test_running_answer_is_not_shown_once_more(scene: Scene) -> None:
    """A newer version would be taken for them, and the answer stand still."""
    lease = await _begun(scene)
    await scene.store.open_slot(lease, _new("Once upon"))
    shown = await _send(scene, NEXT_LIFE)
    scene.clock.advance(SETTLED_S + 1)
    assert await scene.store.fire_timers() == 1
    assert await scene.slot(EARLY) == shown
    await _ends(scene, lease)
    await _send(scene, NEXT_LIFE)
    await _nothing_more(scene)


async def test_retried_edit_is_not_sent_twice(scene: Scene) -> None:
    edit = await _editing(scene)
    await scene.store.slot_retry(edit, seconds(SETTLED_S + 5), uncertain=False, unsettled=True)
    scene.clock.advance(SETTLED_S + 10)
    assert await scene.store.fire_timers() == 1
    assert (await _send(scene)).version == edit.version
    await _nothing_more(scene)


async def test_version_under_way_is_followed_by_a_repeat(scene: Scene) -> None:
    """It may have been sent before the edit was made."""
    asked = await scene.parked(2)
    await _send(scene)
    await scene.press(asked.wait)
    edit = await _claim(scene)
    await scene.store.slot_retry(edit, seconds(0), uncertain=False, unsettled=True)
    scene.clock.advance(SETTLED_S - 1)
    await scene.press(asked.waits[1], deny())
    edit = await _claim(scene)
    scene.clock.advance(2)
    assert await scene.store.fire_timers() == 1
    await scene.store.slot_sent(edit, ("m",))
    assert (await _send(scene)).version == edit.version + 1
    await _nothing_more(scene)
