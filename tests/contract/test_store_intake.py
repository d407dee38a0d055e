"""`Intake.accept` and `Intake.drop`: what becomes of a message."""

from __future__ import annotations

import pytest

from gateway.model.ids import InboundId, SessionId
from gateway.model.messages import Conversation, Received
from gateway.model.sessions import Origin, SessionKind, TurnKind, TurnState
from gateway.model.slots import SlotKind, SlotState
from gateway.model.waits import PressResult
from gateway.ports import Store
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    EPOCH,
    OTHER_CHAT,
    answer,
    approve,
    chat,
    control,
    drop,
    inbound,
    press,
    route,
)


async def test_the_first_message_makes_the_session_and_a_queued_turn(store: Store, scene: Scene) -> None:
    """The session is created when absent, and the message's turn waits for a runner."""
    accepted = await store.accept(route(), inbound("hi"), TurnKind.MODEL, steer=True, say_if_waiting="wait")
    session = await store.session(MAIN)
    assert session is not None
    assert (session.kind, session.origin, session.owner) == (SessionKind.MAIN, Origin.DIRECT, "ann")
    assert (session.epoch, session.root_kind, session.tools) == (0, SessionKind.MAIN, None)
    assert session.created_at == session.active_at == EPOCH
    view = await scene.view(accepted.turn)
    assert (view.turn.state, view.turn.kind, view.turn.epoch) == (TurnState.QUEUED, TurnKind.MODEL, 0)
    assert (view.turn.conversation, view.turn.principal) == (CHAT, ANN_TELEGRAM)
    assert (view.turn.started_at, view.turn.ended_at, view.turn.active_ms) == (None, None, 0)
    assert [(r.id, r.turn, r.given, r.message.text) for r in view.inputs] == [
        (accepted.inbound, accepted.turn, None, "hi")
    ]
    assert (accepted.duplicate, accepted.steered, accepted.waiting) == (False, False, False)
    assert await scene.slots() == []


async def test_a_message_comes_back_as_it_was_stored(store: Store, scene: Scene) -> None:
    """Nothing of an inbound is lost, whatever is in it."""
    where = Conversation(channel="slack", account="work", chat="C0AA", thread="17.5")
    message = inbound('späße 🧵 "quoted"\n\x00end', who=ANN_SLACK, where=where, direct=False)
    accepted = await store.accept(route(), message, TurnKind.COMMAND, steer=False, say_if_waiting="")
    (received,) = (await scene.view(accepted.turn)).inputs
    assert received.message == message
    assert received.received_at == EPOCH


async def test_a_message_makes_its_session_active(store: Store, scene: Scene, clock: FakeClock) -> None:
    """`active_at` is the time of the last message; the rest of the session stays."""
    await scene.say()
    clock.advance(60)
    await scene.say()
    session = await store.session(MAIN)
    assert session is not None
    assert (session.created_at, session.active_at) == (EPOCH, clock.now())


async def test_a_known_event_writes_nothing(store: Store, scene: Scene) -> None:
    """The same event again, even with another text, names what was stored and changes nothing."""
    first = await store.accept(route(), inbound("a", key="7"), TurnKind.MODEL, steer=False, say_if_waiting="")
    before = await scene.rows()
    again = await store.accept(route(), inbound("b", key="7"), TurnKind.MODEL, steer=False, say_if_waiting="")
    assert (again.inbound, again.turn, again.duplicate) == (first.inbound, first.turn, True)
    assert await scene.rows() == before


@pytest.mark.parametrize("field", ["channel", "account"])
async def test_events_of_another_account_are_other_events(store: Store, field: str) -> None:
    """The key counts within its channel and account only."""
    other = {
        "channel": Conversation(channel="slack", account=CHAT.account, chat=CHAT.chat),
        "account": Conversation(channel=CHAT.channel, account="second", chat=CHAT.chat),
    }[field]
    for where in (CHAT, other):
        message = inbound(where=where, key="7")
        accepted = await store.accept(route(), message, TurnKind.MODEL, steer=False, say_if_waiting="")
        assert not accepted.duplicate


async def test_an_event_of_another_chat_with_the_same_key_is_known(store: Store) -> None:
    """(channel, account, event_key) is the event: the chat does not matter."""
    await store.accept(route(), inbound(key="7"), TurnKind.MODEL, steer=False, say_if_waiting="")
    message = inbound(where=chat(5), key="7")
    assert (await store.accept(route(), message, TurnKind.MODEL, steer=False, say_if_waiting="")).duplicate


async def test_an_event_is_taken_once_whatever_it_was(store: Store, scene: Scene) -> None:
    """A dropped event, a control command and a press are known to every other method."""
    assert await store.drop(inbound(key="1"), drop(), "")
    assert await store.control(route(), inbound(key="2"), control()) == 0
    assert (await store.press(press(key="3"), None, approve())).result is PressResult.NOT_VALID
    for key in "123":
        accepted = await store.accept(route(), inbound(key=key), TurnKind.MODEL, steer=False, say_if_waiting="")
        assert accepted.duplicate
        assert not await store.drop(inbound(key=key), drop(refuse=True), "no")
        assert await store.control(route(), inbound(key=key), control()) is None
        assert (await store.press(press(key=key), None, approve())).result is PressResult.DUPLICATE
    assert not await store.claim(NODE)


# --- steering -------------------------------------------------------------------------------


async def test_a_message_steers_the_running_turn(scene: Scene) -> None:
    """The same person in the same conversation joins the model turn under way."""
    lease = await scene.running()
    accepted = await scene.say("and this", steer=True)
    assert (accepted.turn, accepted.steered) == (lease.turn, True)
    view = await scene.view(lease.turn)
    assert [r.message.text for r in view.inputs] == ["hello", "and this"]
    assert view.inputs[1].given is None
    assert not await scene.store.claim(NODE)


async def test_a_parked_turn_is_steered_too(scene: Scene) -> None:
    """It was started and not ended; the message waits with it, and it stays parked."""
    asked = await scene.parked()
    accepted = await scene.say("and this", steer=True)
    assert (accepted.turn, accepted.steered, accepted.waiting) == (asked.turn, True, True)
    assert await scene.state(asked.turn) is TurnState.PARKED


async def test_a_turn_given_back_is_steered_too(scene: Scene) -> None:
    """A queued turn that was started before is under way."""
    lease = await scene.running()
    await scene.store.release(lease)
    accepted = await scene.say("and this", steer=True)
    assert (accepted.turn, accepted.steered) == (lease.turn, True)


async def test_without_steer_a_new_turn_is_queued(scene: Scene) -> None:
    """The caller decides whether a message may join."""
    lease = await scene.running()
    accepted = await scene.say("and this", steer=False)
    assert accepted.turn != lease.turn
    assert not accepted.steered
    assert await scene.state(accepted.turn) is TurnState.QUEUED


async def test_another_persons_message_does_not_steer(scene: Scene) -> None:
    """In a group somebody else's words are a turn of their own."""
    to = route(SessionId("chat:g"))
    lease = await scene.running(to)
    accepted = await scene.say(to=to, who=BOB, steer=True)
    assert accepted.turn != lease.turn


async def test_a_message_from_another_conversation_does_not_steer(scene: Scene) -> None:
    """The same owner on another platform starts a turn there: the answer belongs where it was asked."""
    lease = await scene.running()
    accepted = await scene.say(where=OTHER_CHAT, steer=True)
    assert accepted.turn != lease.turn


async def test_a_command_does_not_steer(scene: Scene) -> None:
    """A tool command is a turn of its own beside the model turn."""
    lease = await scene.running()
    accepted = await scene.say("/shell date", kind=TurnKind.COMMAND, steer=True)
    assert accepted.turn != lease.turn
    assert not accepted.waiting


async def test_nothing_steers_a_command_turn(scene: Scene) -> None:
    """Only the model turn can take more words."""
    lease = await scene.running(kind=TurnKind.COMMAND)
    accepted = await scene.say(steer=True)
    assert accepted.turn != lease.turn


async def test_a_turn_that_was_never_started_is_not_steered(scene: Scene) -> None:
    """Each message is its own turn while none is under way."""
    first = await scene.say(steer=True)
    second = await scene.say(steer=True)
    assert first.turn != second.turn


async def test_an_ended_turn_is_not_steered(scene: Scene) -> None:
    """After the end a message starts anew."""
    turn = await scene.ended()
    assert (await scene.say(steer=True)).turn != turn


async def test_a_stopping_turn_is_not_steered(scene: Scene) -> None:
    """Its model is never asked again, so the message would not be answered."""
    lease = await scene.running()
    await scene.stop()
    accepted = await scene.say("new", steer=True)
    assert accepted.turn != lease.turn


# --- waiting for a decision -----------------------------------------------------------------


@pytest.mark.parametrize("steer", [True, False])
async def test_a_message_behind_a_parked_turn_is_told_to_wait(scene: Scene, steer: bool) -> None:
    """The note is a reply slot in the message's own conversation."""
    await scene.parked()
    accepted = await scene.say(steer=steer, say_if_waiting="Waiting for a decision.", where=OTHER_CHAT)
    assert accepted.waiting
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert (reply.text, reply.conversation, reply.state) == ("Waiting for a decision.", OTHER_CHAT, SlotState.DUE)


async def test_without_words_nobody_is_told_to_wait(scene: Scene) -> None:
    """An empty `say_if_waiting` stores no slot."""
    await scene.parked()
    assert (await scene.say(say_if_waiting="")).waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


async def test_a_message_beside_a_running_turn_is_not_told_to_wait(scene: Scene) -> None:
    """Only a parked turn waits for a decision."""
    await scene.asked()
    assert not (await scene.say(steer=True, say_if_waiting="Waiting.")).waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


async def test_a_command_beside_a_parked_turn_is_not_told_to_wait(scene: Scene) -> None:
    """It runs at once."""
    await scene.parked()
    accepted = await scene.say("/shell date", kind=TurnKind.COMMAND, say_if_waiting="Waiting.")
    assert not accepted.waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


# --- refusals -------------------------------------------------------------------------------


async def test_a_dropped_message_starts_nothing(store: Store) -> None:
    """Only the event is stored: no session, no turn, no slot without `refuse`."""
    assert await store.drop(inbound(who=BOB), drop(refuse=False), "No.")
    assert await store.sessions() == []
    assert not await store.claim(NODE)
    assert await store.claim_slots(NODE, ["telegram"], 10) == []


async def test_a_stranger_is_refused_once_a_day(store: Store, clock: FakeClock) -> None:
    """The first message is answered, the next in 24 hours are not, then one is again."""
    refused: list[int] = []
    for hours in (0, 1, 23, 24):
        clock.advance((EPOCH - clock.now()).total_seconds() + hours * 3600)
        assert await store.drop(inbound(who=BOB, where=chat(5)), drop(refuse=True), "Not for you.")
        claimed = await store.claim_slots(NODE, ["telegram"], 10)
        for slot in claimed:
            assert (slot.kind, slot.text, slot.conversation) == (SlotKind.REFUSAL, "Not for you.", chat(5))
            assert (slot.session, slot.turn) == (None, None)
            await store.slot_sent(slot.id, slot.version, "1")
        refused.append(len(claimed))
    assert refused == [1, 0, 0, 1]


async def test_each_stranger_is_refused(store: Store) -> None:
    """The day counts for a principal, not for the gateway."""
    for who, where in ((BOB, chat(5)), (ANN_SLACK, chat(6))):
        assert await store.drop(inbound(who=who, where=where), drop(refuse=True), "No.")
    assert len(await store.claim_slots(NODE, ["telegram"], 10)) == 2


async def test_every_accepted_message_is_a_row_of_its_session(scene: Scene) -> None:
    """Messages and control commands are read back in the order they came."""
    await scene.say("one")
    await scene.stop()
    await scene.say("two")
    received = await scene.items(Received)
    assert [(r.message.text, r.turn is None) for r in received] == [("one", False), ("/stop", True), ("two", False)]


async def test_a_message_counts_as_given_before_the_step_that_got_it(scene: Scene) -> None:
    """`given` is the number of the model step, and only of the messages that were named."""
    lease = await scene.running()
    later = await scene.say("later", steer=True)
    first = (await scene.view(lease.turn)).inputs[0].id
    await scene.store.plan(lease, answer(calls=1), given=[first], slots=[])
    assert [r.given for r in (await scene.view(lease.turn)).inputs] == [0, None]
    await scene.store.plan(lease, answer(calls=0), given=[InboundId(later.inbound)], slots=[])
    assert [r.given for r in (await scene.view(lease.turn)).inputs] == [0, 2]
