"""Files in the store: attachments of messages, results of fetching them, and files that calls show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.events import Changed, session_topic
from gateway.domain.ids import InboundId, SessionId
from gateway.domain.messages import Received
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.tools import Artifact, ResultStatus
from gateway.domain.turns import TurnState
from gateway.errors import LeaseLost, NotFound
from tests.contract.scene import MAIN, Scene
from tests.support.makers import CHAT, attachment, fetched, file_slot, result, route

PHOTO = attachment("ä photo.png", media_type="image/png", size=7)
PAPER = attachment("paper", source="f2")


# --- what comes with a message ----------------------------------------------------------------


async def test_attachments_are_stored_with_their_message(scene: Scene) -> None:
    """In its order, and nobody looked yet."""
    await scene.say("look", attachments=(PHOTO, PAPER))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    assert (received.message.attachments, received.files) == ((PHOTO, PAPER), None)
    assert await scene.received("look") == received


async def test_transcript_is_shown_once(scene: Scene) -> None:
    """Its slot is stored with it; a repeated transcription shows nothing."""
    await scene.say("", attachments=(replace(PHOTO, spoken=True, seconds=3),))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    outcome, slot = (
        replace(fetched("inbox/1.ogg"), heard="hi"),
        NewSlot(conversation=CHAT, kind=SlotKind.REPLY, text="hi"),
    )
    await scene.store.record_fetched(lease, received.id, [outcome], [slot])
    await scene.store.record_fetched(lease, received.id, [fetched("inbox/2.ogg")], [slot])

    (found,) = (await scene.view(lease.turn)).inputs
    assert (found.files, found.message.attachments[0].seconds) == ((outcome,), 3)
    assert [one.text for one in await scene.items(Slot) if one.kind is SlotKind.REPLY] == ["hi"]


async def test_a_stopping_turn_shows_nothing_that_was_heard(scene: Scene) -> None:
    await scene.say("", attachments=(PHOTO,))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.stop()
    slot = NewSlot(conversation=CHAT, kind=SlotKind.REPLY, text="hi")
    await scene.store.record_fetched(lease, received.id, [fetched("inbox/1.ogg")], [slot])

    assert "hi" not in [one.text for one in await scene.items(Slot)]


async def test_a_message_without_files_has_none(scene: Scene) -> None:
    lease = await scene.running()
    (received,) = (await scene.view(lease.turn)).inputs
    assert (received.message.attachments, received.files) == ((), None)


async def test_overheard_message_keeps_its_attachments(scene: Scene) -> None:
    """Nobody fetches those, but the model is told of them."""
    group = route(SessionId("chat:g"))
    await scene.say("look", to=group, attachments=(PHOTO,), unread="a voice message")
    (received,) = await scene.items(Received, group.session)
    assert (received.message.attachments, received.message.unread) == ((PHOTO,), "a voice message")


@pytest.mark.conformance
async def test_fetched_files_are_stored_and_seen_by_every_reader(scene: Scene) -> None:
    """By the turn's view, the session's rows and whoever follows the session."""
    await scene.say("look", attachments=(PHOTO, PAPER))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    outcome = (fetched("inbox/1.png"), fetched("", size=0, trouble="It is too large."))
    before = max(row.rev for row in await scene.rows())
    async with scene.store.event_bus.subscribe(session_topic(MAIN)) as heard:
        await scene.store.record_fetched(lease, received.id, outcome)
        assert await anext(heard) == Changed(session=MAIN)
    (found,) = (await scene.view(lease.turn)).inputs
    assert (found.files, found.message, found.given) == (outcome, received.message, None)
    changed = (await scene.store.changes(MAIN, before, 10)).rows
    assert [row.item for row in changed] == [found]


async def test_an_empty_outcome_is_one_too(scene: Scene) -> None:
    lease = await scene.running()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.store.record_fetched(lease, received.id, ())
    (found,) = (await scene.view(lease.turn)).inputs
    assert found.files == ()


async def test_the_first_word_stands(scene: Scene) -> None:
    """The second one changes nothing, not even a revision."""
    await scene.say("look", attachments=(PHOTO,))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.store.record_fetched(lease, received.id, [fetched("inbox/1.png")])
    before = await scene.rows()
    await scene.store.record_fetched(lease, received.id, [fetched("inbox/2.png")])
    assert await scene.rows() == before


async def test_a_stale_holder_stores_nothing_of_it(scene: Scene) -> None:
    await scene.say("look", attachments=(PHOTO,))
    stale = await scene.claim()
    await scene.lapse()
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    before = await scene.rows()
    with pytest.raises(LeaseLost):
        await scene.store.record_fetched(stale, received.id, [fetched("inbox/1.png")])
    assert await scene.rows() == before


async def test_a_message_of_another_turn_is_not_found(scene: Scene) -> None:
    lease = await scene.running()
    other = await scene.say("later", attachments=(PHOTO,))
    before = await scene.rows()
    for message in (other.inbound, InboundId("nobody")):
        with pytest.raises(NotFound):
            await scene.store.record_fetched(lease, message, [fetched("inbox/1.png")])
    assert await scene.rows() == before


async def test_fetched_file_is_in_the_history(scene: Scene) -> None:
    """Later turns are told of it."""
    await scene.say("look", attachments=(PHOTO,))
    lease = await scene.claim()
    (received,) = (await scene.view(lease.turn)).inputs
    await scene.store.record_fetched(lease, received.id, [fetched("inbox/1.png")])
    await scene.finish(lease)
    (view,) = await scene.store.history(MAIN, 0, 10)
    assert view.inputs[0].files == (fetched("inbox/1.png"),)


# --- what is shown of a call ------------------------------------------------------------------


async def test_a_result_comes_with_what_is_shown_of_it(scene: Scene) -> None:
    """In one transition, in order; each is due in its conversation."""
    lease = await scene.started()
    slots = [file_slot("one.png", n=1), file_slot("two.pdf", n=1)]
    await scene.came(lease, 1, result("made"), slots)
    shown = await scene.slots(kind=SlotKind.FILE)
    assert [(one.file, one.text, one.n, one.turn, one.conversation) for one in shown] == [
        (one.file, one.text, 1, lease.turn, CHAT) for one in slots
    ]
    assert {one.state for one in shown} == {SlotState.DUE}
    assert [one.file for one in await scene.send_all()] == [one.file for one in slots]


async def test_a_second_result_shows_nothing(scene: Scene) -> None:
    lease = await scene.started()
    await scene.came(lease, 1, result("made"))
    before = await scene.rows()
    assert not await scene.store.finish_step(lease, 1, result("again"), [file_slot("one.png", n=1)])
    assert await scene.rows() == before


async def test_a_stopped_turn_keeps_its_result_and_shows_nothing_of_it(scene: Scene) -> None:
    """After /stop nothing more is sent."""
    lease = await scene.started()
    await scene.stop()
    cut = result("partial", status=ResultStatus.CANCELLED)
    await scene.came(lease, 1, cut, [file_slot("one.png", n=1)])
    assert (await scene.step(lease.turn, 1)).result == cut
    assert await scene.slots(kind=SlotKind.FILE) == []


async def test_a_stale_holder_shows_nothing(scene: Scene) -> None:
    stale = await scene.started()
    await scene.lapse()
    await scene.claim()
    with pytest.raises(LeaseLost):
        await scene.store.finish_step(stale, 1, result(), [file_slot("one.png", n=1)])
    assert await scene.slots(kind=SlotKind.FILE) == []


async def test_the_end_of_a_turn_leaves_its_files_alone(scene: Scene) -> None:
    """They are no beginning of an answer, which would be taken away."""
    lease = await scene.started()
    new = file_slot("one.png", n=1)
    await scene.came(lease, 1, result(), [new])
    await scene.finish(lease, TurnState.FAILED)
    (slot,) = await scene.slots(kind=SlotKind.FILE)
    assert (slot.text, slot.file, slot.version) == (new.text, new.file, 1)


@pytest.mark.conformance
async def test_a_file_is_on_every_way_that_a_slot_is_read(scene: Scene) -> None:
    """Claimed, sent, tried again: always with its file, whatever it is called."""
    lease = await scene.started()
    file = Artifact(file="t-1-1.bin", name='o"dd \u202e☂.bin', media_type="application/octet-stream")
    new = NewSlot(conversation=CHAT, kind=SlotKind.FILE, text="download", n=1, file=file)
    await scene.came(lease, 1, result(), [new])
    (slot,) = await scene.send_all()
    assert (slot.file, slot.kind) == (file, SlotKind.FILE)
    assert (await scene.slot(slot.id)).file == file
