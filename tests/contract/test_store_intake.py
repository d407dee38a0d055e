"""`Intake.accept` and `Intake.drop`: handling of a message."""

from __future__ import annotations

import pytest

from gateway.domain.events import TurnWoken, turn_topic
from gateway.domain.ids import SessionId
from gateway.domain.messages import Conversation, Received
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.slots import SlotKind, SlotState
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import PressResult, WaitState
from gateway.ports import Store, Waiting
from tests.contract.family import SESSION, FamilyScene
from tests.contract.scene import MAIN, NODE, Scene
from tests.support.clock import FakeClock
from tests.support.lazy_store import LazyStore
from tests.support.makers import (
    ANN_SLACK,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    EPOCH,
    OTHER_CHAT,
    WAITING,
    answer,
    approve,
    chat,
    control,
    deny,
    drop,
    inbound,
    new_wait,
    press,
    result,
    route,
    seconds,
)


async def test_the_first_message_makes_the_session_and_a_queued_turn(store: Store, scene: Scene) -> None:
    """The session is created when absent, and the message's turn waits for a runner."""
    accepted = await store.accept(
        route(), inbound("hi"), TurnKind.MODEL, running=WhileRunning.STEER, say_if_waiting=WAITING
    )
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


@pytest.mark.conformance
async def test_a_message_comes_back_as_it_was_stored(store: Store, scene: Scene) -> None:
    """Nothing of an inbound is lost, whatever is in it."""
    where = Conversation(channel="slack", account="work", chat="C0AA", thread="17.5")
    message = inbound('späße 🧵 "quoted"\n\x00end', who=ANN_SLACK, where=where, direct=False)
    accepted = await store.accept(route(), message, TurnKind.COMMAND, running=WhileRunning.QUEUE, say_if_waiting=None)
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
    first = await store.accept(
        route(), inbound("a", key="7"), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
    )
    before = await scene.rows()
    again = await store.accept(
        route(), inbound("b", key="7"), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
    )
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
        accepted = await store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        assert not accepted.duplicate


async def test_an_event_of_another_chat_with_the_same_key_is_known(store: Store) -> None:
    """(channel, account, event_key) is the event: the chat does not matter."""
    await store.accept(route(), inbound(key="7"), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    message = inbound(where=chat(5), key="7")
    assert (
        await store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
    ).duplicate


@pytest.mark.conformance
async def test_an_event_is_taken_once_whatever_it_was(store: Store, scene: Scene) -> None:
    """A dropped event, a control command and a press are known to every other method."""
    assert await store.drop(inbound(key="1"), drop(), "")
    assert await store.control(route(), inbound(key="2"), control()) == 0
    assert (await store.press(press(key="3"), None, approve())).result is PressResult.NOT_VALID
    for key in "123":
        accepted = await store.accept(
            route(), inbound(key=key), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
        )
        assert accepted.duplicate
        assert not await store.drop(inbound(key=key), drop(told=True), "no")
        assert await store.control(route(), inbound(key=key), control()) is None
        assert (await store.press(press(key=key), None, approve())).result is PressResult.DUPLICATE
    assert not await store.claim(NODE)


# --- steering -------------------------------------------------------------------------------


async def test_a_message_steers_the_running_turn(scene: Scene) -> None:
    """The same person in the same conversation joins the model turn under way."""
    lease = await scene.running()
    accepted = await scene.say("and this", running=WhileRunning.STEER)
    assert (accepted.turn, accepted.steered) == (lease.turn, True)
    view = await scene.view(lease.turn)
    assert [r.message.text for r in view.inputs] == ["hello", "and this"]
    assert view.inputs[1].given is None
    assert not await scene.store.claim(NODE)


async def test_a_parked_turn_is_steered_too(scene: Scene) -> None:
    """It was started and not ended; the message waits with it, and it stays parked."""
    asked = await scene.parked()
    accepted = await scene.say("and this", running=WhileRunning.STEER)
    assert (accepted.turn, accepted.steered, accepted.waiting) == (asked.turn, True, True)
    assert await scene.state(asked.turn) is TurnState.PARKED


async def test_a_turn_given_back_is_steered_too(scene: Scene) -> None:
    """A queued turn that was started before is under way."""
    lease = await scene.running()
    await scene.store.release(lease)
    accepted = await scene.say("and this", running=WhileRunning.STEER)
    assert (accepted.turn, accepted.steered) == (lease.turn, True)


async def test_without_steer_a_new_turn_is_queued(scene: Scene) -> None:
    """The caller decides whether a message may join."""
    lease = await scene.running()
    accepted = await scene.say("and this", running=WhileRunning.QUEUE)
    assert accepted.turn != lease.turn
    assert not accepted.steered
    assert await scene.state(accepted.turn) is TurnState.QUEUED


async def test_another_persons_message_does_not_steer(scene: Scene) -> None:
    """In a group somebody else's words are a turn of their own."""
    to = route(SessionId("chat:g"))
    lease = await scene.running(to)
    accepted = await scene.say(to=to, who=BOB, running=WhileRunning.STEER)
    assert accepted.turn != lease.turn


async def test_a_message_from_another_conversation_does_not_steer(scene: Scene) -> None:
    """The same owner on another platform starts a turn there: the answer belongs where it was asked."""
    lease = await scene.running()
    accepted = await scene.say(where=OTHER_CHAT, running=WhileRunning.STEER)
    assert accepted.turn != lease.turn


async def test_a_command_does_not_steer(scene: Scene) -> None:
    """A tool command is a turn of its own beside the model turn."""
    lease = await scene.running()
    accepted = await scene.say("/shell date", kind=TurnKind.COMMAND, running=WhileRunning.STEER)
    assert accepted.turn != lease.turn
    assert not accepted.waiting


async def test_nothing_steers_a_command_turn(scene: Scene) -> None:
    """Only the model turn can take more words."""
    lease = await scene.running(kind=TurnKind.COMMAND)
    accepted = await scene.say(running=WhileRunning.STEER)
    assert accepted.turn != lease.turn


async def test_a_turn_that_was_never_started_is_not_steered(scene: Scene) -> None:
    """Each message is its own turn while none is under way."""
    first = await scene.say(running=WhileRunning.STEER)
    second = await scene.say(running=WhileRunning.STEER)
    assert first.turn != second.turn


async def test_an_ended_turn_is_not_steered(scene: Scene) -> None:
    """A message after the end starts a new turn."""
    turn = await scene.ended()
    assert (await scene.say(running=WhileRunning.STEER)).turn != turn


async def test_a_stopping_turn_is_not_steered(scene: Scene) -> None:
    """Its model is never asked again, so the message would not be answered."""
    lease = await scene.running()
    await scene.stop()
    accepted = await scene.say("new", running=WhileRunning.STEER)
    assert accepted.turn != lease.turn


# --- interrupting ---------------------------------------------------------------------------


async def test_interrupted_turn_is_stopped_and_the_message_is_next(scene: Scene) -> None:
    """Its holder is told and may only write results; then the new turn runs."""
    asked = await scene.asked()
    async with scene.store.event_bus.subscribe(turn_topic(asked.turn)) as heard:
        accepted = await scene.say("no, this", running=WhileRunning.INTERRUPT)
        assert await anext(heard) == TurnWoken(turn=asked.turn)
    assert (accepted.turn != asked.turn, accepted.steered, accepted.waiting) == (True, False, False)
    assert await scene.state(asked.turn) is TurnState.STOPPING
    assert await scene.wait_state(asked.wait) is WaitState.CANCELLED
    assert not await scene.store.claim(NODE)
    await scene.store.release(asked.lease)
    assert [slot.text for slot in await scene.slots(kind=SlotKind.ANSWER)] == ["Interrupted."]
    assert (await scene.claim()).turn == accepted.turn


async def test_an_interrupted_turn_that_nobody_holds_ends_at_once(scene: Scene) -> None:
    """Nobody is told to wait: the decision it waited for is not needed any more."""
    asked = await scene.parked()
    accepted = await scene.say("no, this", running=WhileRunning.INTERRUPT, say_if_waiting=WAITING)
    assert not accepted.waiting
    view = await scene.view(asked.turn)
    assert view.turn.state is TurnState.STOPPED
    assert [wait.state for wait in view.waits] == [WaitState.CANCELLED]
    assert [slot.text for slot in await scene.slots(kind=SlotKind.ANSWER)] == ["Interrupted."]
    assert await scene.slots(kind=SlotKind.REPLY) == []
    assert (await scene.claim()).turn == accepted.turn


async def test_an_interrupted_turn_that_was_given_back_ends_at_once(scene: Scene) -> None:
    """It was started before."""
    lease = await scene.running()
    await scene.store.release(lease)
    accepted = await scene.say(running=WhileRunning.INTERRUPT)
    assert await scene.state(lease.turn) is TurnState.STOPPED
    assert (await scene.claim()).turn == accepted.turn


async def test_an_interrupting_message_keeps_its_place_in_the_queue(scene: Scene) -> None:
    """Earlier messages of others are answered first."""
    to = route(SessionId("chat:g"))
    lease = await scene.running(to)
    other = await scene.say(to=to, who=BOB)
    accepted = await scene.say(to=to, running=WhileRunning.INTERRUPT)
    await scene.store.release(lease)
    for turn in (other.turn, accepted.turn):
        lease = await scene.claim()
        assert lease.turn == turn
        await scene.finish(lease)


async def test_a_turn_that_was_never_started_is_not_interrupted(scene: Scene) -> None:
    """There is nothing to stop."""
    first = await scene.say(running=WhileRunning.INTERRUPT)
    second = await scene.say(running=WhileRunning.INTERRUPT)
    assert [await scene.state(one.turn) for one in (first, second)] == [TurnState.QUEUED] * 2


async def test_nobody_interrupts_what_another_person_asked_for(scene: Scene) -> None:
    """As with steering: in a group the bot is everybody's."""
    to = route(SessionId("chat:g"))
    lease = await scene.running(to)
    accepted = await scene.say(to=to, who=BOB, running=WhileRunning.INTERRUPT)
    assert await scene.state(lease.turn) is TurnState.RUNNING
    assert await scene.state(accepted.turn) is TurnState.QUEUED


async def test_a_message_from_another_conversation_does_not_interrupt(scene: Scene) -> None:
    """The same owner, on another platform; behind a parked turn it is told to wait."""
    asked = await scene.parked()
    accepted = await scene.say(where=OTHER_CHAT, running=WhileRunning.INTERRUPT, say_if_waiting=WAITING)
    assert accepted.waiting
    assert await scene.state(asked.turn) is TurnState.PARKED


async def test_a_command_does_not_interrupt(scene: Scene) -> None:
    """It runs beside the model turn; nor is one interrupted by a message."""
    lease = await scene.running()
    await scene.say("/shell date", kind=TurnKind.COMMAND, running=WhileRunning.INTERRUPT)
    command = await scene.claim()
    await scene.finish(lease)
    await scene.say(running=WhileRunning.INTERRUPT)
    assert [await scene.state(one.turn) for one in (lease, command)] == [TurnState.DONE, TurnState.RUNNING]


async def test_a_stopping_turn_is_not_interrupted_again(scene: Scene) -> None:
    """It says what it was stopped with first."""
    lease = await scene.running()
    await scene.stop()
    await scene.say(running=WhileRunning.INTERRUPT)
    await scene.lapse()
    assert (await scene.slot_of(lease.turn, SlotKind.ANSWER)).text == "Stopped."


async def test_a_known_event_interrupts_nothing(scene: Scene) -> None:
    """The platform delivered it twice: the turn that it began runs by now."""
    accepted = await scene.say(event_key="7", running=WhileRunning.INTERRUPT)
    lease = await scene.claim()
    again = await scene.say(event_key="7", running=WhileRunning.INTERRUPT)
    assert (again.turn, again.duplicate) == (accepted.turn, True)
    assert await scene.state(lease.turn) is TurnState.RUNNING


async def test_the_rest_of_a_cut_message_interrupts_nothing_more(scene: Scene) -> None:
    """Its first part did, and began the turn that it joins."""
    lease = await scene.running()
    first = await scene.say("one", cut=True, running=WhileRunning.INTERRUPT)
    await scene.store.release(lease)
    rest = await scene.say("two", running=WhileRunning.INTERRUPT)
    assert rest.turn == first.turn
    assert (await scene.claim()).turn == first.turn


async def test_an_interrupted_turn_waits_for_its_child_no_longer(store: Store, clock: FakeClock) -> None:
    """A child whose end it waited for is stopped with it; one that works on its own goes on."""
    family = FamilyScene(store, clock)
    lease = await family.at_work(2)
    waited, free = await family.born(lease, 1), await family.born(lease, 2, SESSION)
    assert await store.park(lease)
    await family.say("no, this", running=WhileRunning.INTERRUPT)
    turns = (lease.turn, waited.turn, free.turn)
    assert [await family.state(turn) for turn in turns] == [TurnState.STOPPED, TurnState.STOPPED, TurnState.QUEUED]
    assert [slot.text for slot in await family.slots(waited.session)] == ["Interrupted."]


async def test_context_goes_to_the_interrupting_turn(scene: Scene) -> None:
    """As to any new one."""
    to = route(SessionId("chat:g"))
    await scene.running(to)
    await scene.overhear("beside", to=to)
    accepted = await scene.say("now this", to=to, running=WhileRunning.INTERRUPT)
    texts = [one.message.text for one in (await scene.view(accepted.turn)).inputs]
    assert texts == ["beside", "now this"]


# --- waiting for a decision -----------------------------------------------------------------


@pytest.mark.parametrize("running", [WhileRunning.STEER, WhileRunning.QUEUE])
async def test_a_message_behind_a_parked_turn_is_told_to_wait(scene: Scene, running: WhileRunning) -> None:
    """The note is a reply slot in the message's own conversation."""
    await scene.parked()
    accepted = await scene.say(running=running, say_if_waiting=WAITING, where=OTHER_CHAT)
    assert accepted.waiting
    (reply,) = await scene.slots(kind=SlotKind.REPLY)
    assert (reply.text, reply.conversation, reply.state) == (WAITING.decision, OTHER_CHAT, SlotState.DUE)


async def test_without_words_nobody_is_told_to_wait(scene: Scene) -> None:
    """No texts, or an empty one, store no slot."""
    await scene.parked()
    assert (await scene.say(say_if_waiting=None)).waiting
    assert (await scene.say(say_if_waiting=Waiting(decision="", children="Not this."))).waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


async def test_waiting_reply_names_what_the_turn_waits_for(store: Store, clock: FakeClock) -> None:
    """No card is open while a turn waits for nothing but its sub-sessions; one that is open comes first."""
    family = FamilyScene(store, clock)
    lease = await family.at_work()
    await family.plan(lease)
    await family.born(lease)
    asked = await family.ask(lease, [new_wait(3, expires_in=seconds(60))])
    assert await store.park(lease)
    assert (await family.say(say_if_waiting=WAITING)).waiting
    await family.press(asked.wait, deny())
    held = (await store.claim(NODE, 5))[-1].lease
    assert held.turn == lease.turn
    await store.finish_step(held, 3, result())
    assert await store.park(held)
    assert (await family.say(say_if_waiting=WAITING)).waiting
    assert (await family.say(say_if_waiting=Waiting(decision="Not this.", children=""))).waiting
    assert [slot.text for slot in await family.slots(kind=SlotKind.REPLY)] == [WAITING.decision, WAITING.children]


async def test_a_message_beside_a_running_turn_is_not_told_to_wait(scene: Scene) -> None:
    """Only a parked turn waits for a decision."""
    await scene.asked()
    assert not (await scene.say(running=WhileRunning.STEER, say_if_waiting=WAITING)).waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


async def test_a_command_beside_a_parked_turn_is_not_told_to_wait(scene: Scene) -> None:
    """It runs at once."""
    await scene.parked()
    accepted = await scene.say("/shell date", kind=TurnKind.COMMAND, say_if_waiting=WAITING)
    assert not accepted.waiting
    assert await scene.slots(kind=SlotKind.REPLY) == []


# --- refusals -------------------------------------------------------------------------------


async def test_a_dropped_message_starts_nothing(store: Store) -> None:
    """Only the event is stored: no session, no turn, no slot without `refuse`."""
    assert await store.drop(inbound(who=BOB), drop(told=False), "No.")
    assert await store.sessions() == []
    assert not await store.claim(NODE)
    assert await store.claim_slots(NODE, ["telegram"], 10) == []


async def test_a_stranger_is_refused_once_a_day(store: Store, clock: FakeClock) -> None:
    """The first message is answered, the next in 24 hours are not, then one is again."""
    refused: list[int] = []
    for hours in (0, 1, 23, 24):
        clock.advance((EPOCH - clock.now()).total_seconds() + hours * 3600)
        assert await store.drop(inbound(who=BOB, where=chat(5)), drop(told=True), "Not for you.")
        claimed = await store.claim_slots(NODE, ["telegram"], 10)
        for slot in claimed:
            assert (slot.kind, slot.text, slot.conversation) == (SlotKind.REFUSAL, "Not for you.", chat(5))
            assert (slot.session, slot.turn) == (None, None)
            await store.slot_sent(slot, ("1",))
        refused.append(len(claimed))
    assert refused == [1, 0, 0, 1]


async def test_each_stranger_is_refused(store: Store) -> None:
    """The day counts for a principal, not for the gateway."""
    for who, where in ((BOB, chat(5)), (ANN_SLACK, chat(6))):
        assert await store.drop(inbound(who=who, where=where), drop(told=True), "No.")
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
    await scene.say("later", running=WhileRunning.STEER)
    first, later = (await scene.view(lease.turn)).inputs
    await scene.store.plan(lease, answer(calls=1), given=[first], slots=[])
    assert [r.given for r in (await scene.view(lease.turn)).inputs] == [0, None]
    await scene.store.plan(lease, answer(calls=0), given=[later], slots=[])
    assert [r.given for r in (await scene.view(lease.turn)).inputs] == [0, 2]


async def test_a_message_costs_the_same_beside_many_queued(clock: FakeClock) -> None:
    """A transition runs once more for each row that it misses."""
    store = LazyStore(clock)
    scene, runs = Scene(store, clock), list[int]()
    await scene.running()
    for count in (30, 60):
        for _ in range(count):
            await scene.say()
        before = store.runs
        await scene.say()
        runs.append(store.runs - before)
    assert runs[0] == runs[1]
