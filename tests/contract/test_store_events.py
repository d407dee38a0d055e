"""`Intake` of events that are no new message: edits, unreadable events, events not for us."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.events import SESSIONS, Changed
from gateway.domain.messages import Inbound, Refused, RefusedReason
from gateway.domain.routes import Drop, DropReason, WhileRunning
from gateway.domain.slots import SlotKind
from gateway.domain.turns import TurnKind, TurnState
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import BOB, CHAT, OTHER_CHAT, answer, inbound, new_wait, result, route, seconds

UNREADABLE = Drop(reason=DropReason.UNREADABLE, told=True)
CHANNELS = ["telegram", "slack"]


async def _told(store: Store) -> list[str]:
    found: list[str] = []
    while slots := await store.claim_slots(NODE, CHANNELS, 10):
        for slot in slots:
            assert slot.kind in {SlotKind.REPLY, SlotKind.REFUSAL}
            assert (slot.conversation, slot.session) == (CHAT, None)
            found.append(slot.text)
            await store.slot_sent(slot, ("m",))
    return found


async def _accept(
    store: Store,
    message: Inbound,
    kind: TurnKind = TurnKind.MODEL,
    *,
    running: WhileRunning = WhileRunning.QUEUE,
) -> None:
    await store.accept(route(), message, kind, running=running, say_if_waiting=None)


# --- what a message came with ---------------------------------------------------------------


async def test_message_is_stored_with_all_its_details(store: Store, scene: Scene) -> None:
    """The quotation, what it answers, what cannot be read, and that it was cut."""
    message = replace(inbound("look"), quoted="said before", reply_to="17", unread="a photo", cut=True)
    await _accept(store, message)
    assert (await scene.received("look")).message == message


# --- drop: unreadable -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (DropReason.UNREADABLE, SlotKind.REPLY),
        (DropReason.TOO_FAST, SlotKind.REPLY),
        (DropReason.STRANGER, SlotKind.REFUSAL),
    ],
)
async def test_unreadable_message_gets_a_reply_a_stranger_a_refusal(
    store: Store, reason: DropReason, kind: SlotKind
) -> None:
    """A refusal may be held back when too many are due; a reply to somebody known may not."""
    assert await store.drop(inbound(), Drop(reason=reason, told=True), "No.")
    (slot,) = await store.claim_slots(NODE, CHANNELS, 10)
    assert (slot.kind, slot.text) == (kind, "No.")


async def test_unreadable_message_is_answered_each_time(store: Store) -> None:
    """A person who sends two pictures hears twice, also right after a refusal."""
    stranger = Drop(reason=DropReason.STRANGER, told=True)
    assert await store.drop(inbound(), stranger, "No.")
    for _ in range(2):
        assert await store.drop(inbound(), UNREADABLE, "Write it.")
    assert await store.drop(inbound(), stranger, "No.")
    assert await _told(store) == ["No.", "Write it.", "Write it."]


async def test_the_same_picture_twice_is_told_once(store: Store) -> None:
    """A duplicate writes nothing."""
    message = inbound()
    assert [await store.drop(message, UNREADABLE, "Write it.") for _ in range(2)] == [True, False]
    assert await _told(store) == ["Write it."]


async def test_too_fast_sender_is_answered_once_a_minute(store: Store, clock: FakeClock) -> None:
    """Every message is stored; other refusals are not held back by it."""
    too_fast = Drop(reason=DropReason.TOO_FAST, told=True)
    told: list[list[str]] = []
    for pause in (0, 59, 1, 59):
        clock.advance(pause)
        assert await store.drop(inbound(), too_fast, "Slower.")
        told.append(await _told(store))
    assert await store.drop(inbound(), Drop(reason=DropReason.STRANGER, told=True), "No.")
    assert [*told, await _told(store)] == [["Slower."], [], ["Slower."], [], ["No."]]


# --- amend ----------------------------------------------------------------------------------


async def test_an_edit_replaces_a_message_that_waits(store: Store, scene: Scene) -> None:
    """The text alone changes, and readers hear of it."""
    message = replace(inbound("old"), quoted="q")
    await _accept(store, message)
    async with store.event_bus.subscribe(SESSIONS) as heard:
        assert await scene.edit(message, "new")
        assert await anext(heard) == Changed(session=MAIN)
    assert (await scene.received("new")).message == replace(message, text="new")


async def test_an_edit_may_be_edited(store: Store, scene: Scene) -> None:
    """The last one counts."""
    message = inbound("old")
    await _accept(store, message)
    assert await scene.edit(message, "new")
    assert await scene.edit(message, "newest")
    assert (await scene.received("newest")).given is None


async def test_edit_of_a_steering_message_counts_while_parked(store: Store, scene: Scene) -> None:
    """It is given at the turn's next step."""
    await scene.parked()
    message = inbound("old")
    await _accept(store, message, running=WhileRunning.STEER)
    assert await scene.edit(message, "new")


async def test_an_edit_is_late_while_somebody_holds_the_turn(store: Store, scene: Scene) -> None:
    """The model may be reading it: what it answers to must not change under it."""
    message = inbound("old")
    await _accept(store, message)
    lease = await scene.claim()
    assert not await scene.edit(message, "new")
    await scene.stop()
    assert await scene.state(lease.turn) is TurnState.STOPPING
    assert not await scene.edit(message, "newer")
    assert (await scene.received("old")).given is None


async def test_an_edit_of_what_came_while_a_model_is_asked_counts(store: Store, scene: Scene) -> None:
    """The request under way does not contain it; the next one does."""
    lease = await scene.running()
    for wanted in ("newest", "newest of all"):
        given = (await scene.view(lease.turn)).inputs
        message = inbound("old")
        await _accept(store, message, running=WhileRunning.STEER)
        assert await scene.edit(message, "new")
        assert await scene.edit(message, wanted)
        view = await store.plan(lease, answer(calls=0), given=given, slots=[])
        assert (view.inputs[-1].message.text, view.inputs[-1].given) == (wanted, None)
        assert not await scene.edit(message, "too late"), "the holder asks the model with it now"


async def test_an_edit_is_late_when_the_turn_is_claimed_again(store: Store, scene: Scene) -> None:
    """The claim reads what came before it, also what no model was asked about."""
    lease = await scene.running()
    message = inbound("old")
    await _accept(store, message, running=WhileRunning.STEER)
    await store.release(lease)
    assert await scene.edit(message, "new")
    await scene.claim()
    assert not await scene.edit(message, "too late")


@pytest.mark.parametrize("ends", [False, True])
async def test_a_message_stays_as_the_model_read_it(store: Store, scene: Scene, ends: bool) -> None:
    """A holder may read a turn once more before it asks: an edit after that is undone by the answer."""
    lease = await scene.running()
    message = inbound("old")
    await _accept(store, message, running=WhileRunning.STEER)
    read = (await scene.view(lease.turn)).inputs
    assert await scene.edit(message, "new")
    if ends:
        assert await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=read, slots=[], timers=[])
    else:
        await store.plan(lease, answer(calls=1), given=read, slots=[])
    assert (await scene.received("old")).given == 0


@pytest.mark.parametrize("call", ["planned", "asked", "started"])
async def test_an_edit_of_what_steers_counts_while_a_call_is_open(store: Store, scene: Scene, call: str) -> None:
    """No model is asked before every call has its result: the message was not read."""
    lease = await scene.planned(2)
    await scene.came(lease, 2, result())
    if call == "asked":
        await scene.ask(lease, [new_wait(1, expires_in=seconds(60))])
    elif call == "started":
        await scene.start(lease, 1)
    message = inbound("old")
    await _accept(store, message, running=WhileRunning.STEER)
    assert await scene.edit(message, "new")
    assert await scene.edit(message, "newest")
    view = await store.finish_step(lease, 1, result())
    assert view is not None
    assert view.inputs[-1].message.text == "newest"
    assert not await scene.edit(message, "too late")
    assert (await scene.received("newest")).given is None


async def test_an_edit_of_what_steers_is_late_when_the_turn_stops(store: Store, scene: Scene) -> None:
    """Nothing will read it."""
    lease = await scene.planned()
    message = inbound("old")
    await _accept(store, message, running=WhileRunning.STEER)
    await scene.start(lease, 1)
    await scene.stop()
    assert not await scene.edit(message, "new")


async def test_edit_counts_again_when_the_turn_is_returned_unanswered(store: Store, scene: Scene) -> None:
    """Nothing that the model said of it is kept: it is asked anew."""
    message = inbound("old")
    await _accept(store, message)
    await store.release(await scene.claim())
    assert await scene.edit(message, "new")


async def test_an_edit_of_what_was_given_is_late(store: Store, scene: Scene) -> None:
    """The model has read it."""
    message = inbound("old")
    await _accept(store, message)
    await scene.plan(await scene.claim())
    assert not await scene.edit(message, "new")
    assert (await scene.received("old")).given == 0


async def test_an_edit_of_a_command_is_late(store: Store, scene: Scene) -> None:
    """A command runs as it was sent."""
    message = inbound("/shell date")
    await _accept(store, message, TurnKind.COMMAND)
    assert not await scene.edit(message, "/shell ls")
    assert (await scene.received("/shell date")).given is None


@pytest.mark.parametrize("change", [{"principal": BOB}, {"conversation": replace(CHAT, chat="2")}, {"edits": "none"}])
async def test_an_edit_of_something_else_is_late(store: Store, scene: Scene, change: dict[str, Any]) -> None:
    """Another person's, another chat's, an unknown message: nothing changes."""
    message = inbound("old")
    await _accept(store, message)
    edit = replace(message, event_key="edit", edits=message.event_key, text="new")
    assert not await store.amend(replace(edit, **change))
    assert (await scene.received("old")).message == message


async def test_an_edit_of_what_is_no_message_is_late(store: Store, scene: Scene) -> None:
    """Dropped messages and control commands have no turn."""
    dropped = inbound("dropped")
    assert await store.drop(dropped, Drop(reason=DropReason.EMPTY, told=False), "")
    await scene.stop()
    command = (await scene.received("/stop")).message
    assert not await scene.edit(dropped, "new")
    assert not await scene.edit(command, "new")


async def test_the_duplicate_of_an_edit_changes_nothing(store: Store, scene: Scene) -> None:
    """It was stored; and its event is no message."""
    message = inbound("old")
    await _accept(store, message)
    edit = replace(message, event_key="edit", edits=message.event_key, text="new")
    assert await store.amend(edit)
    assert await store.amend(replace(edit, text="other"))
    assert (await scene.received("new")).given is None
    accepted = await store.accept(route(), edit, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    assert (accepted.duplicate, accepted.inbound, accepted.turn) == (True, "", "")


async def test_a_late_edit_is_taken_once(store: Store) -> None:
    """Its event is known then."""
    edit = replace(inbound("new"), edits="none")
    assert not await store.amend(edit)
    assert await store.amend(edit)
    assert not await store.drop(edit, UNREADABLE, "")


# --- refuse ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", list(RefusedReason))
async def test_an_event_that_is_no_message_is_taken_once(store: Store, reason: RefusedReason) -> None:
    """Later deliveries change nothing."""
    refused = Refused(
        channel="telegram", account="default", event_key="7", reason=reason, detail="no text", raw='{"a": "\ud83d"}'
    )
    assert [await store.refuse(refused) for _ in range(2)] == [True, False]
    assert not await store.drop(inbound(key="7"), UNREADABLE, "No.")
    accepted = await store.accept(
        route(), inbound(key="7"), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
    )
    assert (accepted.duplicate, accepted.inbound) == (True, "")
    other = replace(refused, account="other")
    assert await store.refuse(other)
    assert await store.sessions() == []


@pytest.mark.conformance
async def test_an_event_whose_key_no_file_can_hold_is_known_again(store: Store) -> None:
    """Half a surrogate pair: a platform's payload is whatever a client sends."""
    refused = Refused(
        channel="telegram", account="default", event_key="e\ud800", reason=RefusedReason.POISON, detail=""
    )
    assert [await store.refuse(refused) for _ in range(2)] == [True, False]
    message = replace(inbound(key="m\udfff"), text="half \ud83d")
    assert [await store.drop(message, UNREADABLE, "") for _ in range(2)] == [True, False]


async def test_a_known_message_is_not_refused(store: Store) -> None:
    """Its event was taken."""
    message = inbound("a", where=OTHER_CHAT)
    await _accept(store, message)
    place = message.conversation
    refused = Refused(
        channel=place.channel,
        account=place.account,
        event_key=message.event_key,
        reason=RefusedReason.POISON,
        detail="",
    )
    assert not await store.refuse(refused)
