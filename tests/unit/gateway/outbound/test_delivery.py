from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.events import ANSWERS, TextDelta, TurnActive
from gateway.domain.ids import SlotId, main_session
from gateway.domain.messages import Conversation
from gateway.domain.slots import EDIT_IN_DOUBT, NewSlot, RenderedSlot, SlotKind, SlotState
from gateway.domain.tools import Effect, Risk
from gateway.domain.waits import WaitState
from gateway.errors import SendFailed, SendOutcome
from gateway.outbound.message_actor import RETRY_S, SETTLED_AFTER_S
from gateway.ports import Progress
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, FakeTool, in_background, until
from tests.support.makers import ANN, CHAT, chat
from tests.support.patience import PATIENCE_S
from tests.support.sending import PartsChannel, asked, delivered, holds, now, slot
from tests.support.stored import add_slot, rewrite, set_slot

SECRET = "correct horse battery"
RETRY = SendFailed("no", outcome=SendOutcome.RETRY)
FAILING = SendFailed("no", outcome=SendOutcome.UNCERTAIN, answered=True)
UNCERTAIN = SendFailed("no", outcome=SendOutcome.UNCERTAIN)
DEAD = SendFailed("no", outcome=SendOutcome.DEAD)
WAIT = SendFailed("429", outcome=SendOutcome.WAIT)
DOUBTFUL_EDIT = SendFailed("no", outcome=SendOutcome.UNCERTAIN, creating=False)
EDIT_TO_WAIT_FOR = SendFailed("no", outcome=SendOutcome.WAIT, creating=False, unsettled=True)
OWN_SESSION = main_session(ANN)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)], secrets=[SECRET])


@pytest.mark.parametrize(
    ("failure", "state", "uncertain", "tries"),
    [
        (None, SlotState.SENT, False, 1),
        (RETRY, SlotState.DUE, False, 1),
        (WAIT, SlotState.DUE, False, 0),
        (UNCERTAIN, SlotState.DUE, True, 1),
        (DOUBTFUL_EDIT, SlotState.DUE, False, 1),
        (DEAD, SlotState.DEAD, False, 1),
        (RuntimeError("the channel broke"), SlotState.DUE, True, 1),
    ],
)
async def test_outcome_of_a_failed_create(
    engine: Engine, failure: SendFailed | Exception | None, state: SlotState, uncertain: bool, tries: int
) -> None:
    """A7, as a table."""
    id = await slot(engine)
    await delivered(engine, FakeChannel(outcomes=[failure]))

    found = now(engine, id)
    assert (found.state, found.uncertain) == (state, uncertain)
    assert found.attempts == (0 if state in (SlotState.SENT, SlotState.DEAD) else tries)


@pytest.mark.parametrize("failure", [RETRY, DOUBTFUL_EDIT, WAIT])
async def test_an_edit_is_repeated_whatever_is_known_and_never_marked(engine: Engine, failure: SendFailed) -> None:
    channel = FakeChannel()
    card = await asked(engine)
    await delivered(engine, channel)
    (wait,) = await engine.store.open_approvals()
    await engine.press(wait.id)
    channel.outcomes = [failure]
    await delivered(engine, channel, rounds=2)

    (edit,) = channel.edited
    assert (edit.slot.uncertain, edit.slot.message_ids) == (False, ("m1",))
    assert len(channel.sent) == 1
    assert now(engine, card).state is SlotState.SENT


async def test_create_in_doubt_is_marked_once_and_then_given_up(engine: Engine) -> None:
    id = await slot(engine)
    channel = FakeChannel(outcomes=[UNCERTAIN, UNCERTAIN])
    await delivered(engine, channel, rounds=3)

    assert channel.sent == []
    assert now(engine, id).state is SlotState.DEAD

    other = await slot(engine, "other")
    channel.outcomes = [UNCERTAIN, None]
    await delivered(engine, channel, rounds=3)
    (showing,) = channel.sent
    assert showing.slot.uncertain
    assert (now(engine, other).state, now(engine, other).uncertain) == (SlotState.SENT, False)


async def test_answered_failures_are_retried_six_times_and_marked(engine: Engine) -> None:
    """A ten-second outage used to lose every answer in it: each was given up after two doubts."""
    id = await slot(engine)
    channel = FakeChannel(outcomes=[FAILING] * 5)
    await delivered(engine, channel, rounds=6)

    assert now(engine, id).state is SlotState.SENT
    assert [showing.slot.uncertain for showing in channel.sent] == [True]
    other = await slot(engine, "other")
    channel.outcomes = [FAILING] * 10
    await delivered(engine, channel, rounds=8)
    assert (now(engine, other).state, len(channel.outcomes)) == (SlotState.DEAD, 4)


async def test_card_in_doubt_is_repeated_once_more(engine: Engine) -> None:
    card = await asked(engine)
    channel = FakeChannel(outcomes=[UNCERTAIN, UNCERTAIN, None])
    await delivered(engine, channel, rounds=3)

    assert now(engine, card).state is SlotState.SENT


async def test_a_refusal_to_be_asked_again_is_tried_six_times(engine: Engine) -> None:
    id = await slot(engine)
    channel = FakeChannel(outcomes=[RETRY] * 10)
    await delivered(engine, channel, rounds=8)

    assert len(channel.outcomes) == 4
    assert now(engine, id).state is SlotState.DEAD


async def test_requested_wait_is_kept(engine: Engine) -> None:
    id = await slot(engine)
    until_then = engine.clock.now() + timedelta(seconds=30)
    channel = FakeChannel(outcomes=[SendFailed("429", outcome=SendOutcome.WAIT, until=until_then)])
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()):
        await until(lambda: holds(now(engine, id).due_at == until_then))

    assert now(engine, id).state is SlotState.DUE


async def test_nothing_overtakes_in_one_conversation(engine: Engine) -> None:
    first, second = await slot(engine, "first"), await slot(engine, "second")
    channel = FakeChannel(outcomes=[RETRY])
    await delivered(engine, channel)
    assert channel.sent == []
    assert (now(engine, first).state, now(engine, second).state) == (SlotState.DUE, SlotState.DUE)

    await delivered(engine, channel)
    assert [showing.text for showing in channel.sent] == ["first", "second"]


async def test_one_slow_conversation_does_not_delay_another(engine: Engine) -> None:
    slow = asyncio.Event()
    channel = FakeChannel(slow={"1": slow})
    await slot(engine, "slow", where=chat(1))
    await slot(engine, "behind it", where=chat(1))
    await slot(engine, "quick", where=chat(2))
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()) as running:
        await until(lambda: holds(bool(channel.sent)))
        assert [showing.text for showing in channel.sent] == ["quick"]
        slow.set()
        async with asyncio.timeout(PATIENCE_S):
            await delivery.flush()
        delivery.drain()
        await running

    assert [showing.text for showing in channel.sent] == ["quick", "slow", "behind it"]


async def test_end_does_not_wait_for_a_missing_channel(engine: Engine) -> None:
    await slot(engine, "for nobody", where=Conversation(channel="slack", account="one", chat="C1"))
    await slot(engine, "for Ann")
    channel = FakeChannel()
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()) as running:
        async with asyncio.timeout(PATIENCE_S):
            await delivery.flush()
        delivery.drain()
        await running

    assert [showing.text for showing in channel.sent] == ["for Ann"]
    assert (await engine.store.counts()).due_slots == 1


async def test_secrets_do_not_leave(engine: Engine) -> None:
    await slot(engine, f"it is {SECRET}")
    channel = FakeChannel()
    await delivered(engine, channel)

    assert channel.sent[0].text == "it is [hidden]"


async def test_card_has_buttons_until_it_is_decided(engine: Engine) -> None:
    card = await asked(engine)
    channel = FakeChannel()
    await delivered(engine, channel)
    (row,) = channel.sent[0].rows
    assert [button.label for button in row.buttons] == ["Once", "Always…", "Deny", "Deny with reason"]
    assert all(engine.tokens.verb(b.handle, row.wait.id, [card]) is b.verb for b in row.buttons)

    await engine.press(row.wait.id)
    await delivered(engine, channel)
    (row,) = channel.edited[0].rows
    assert (row.buttons, row.wait.state) == ((), WaitState.APPROVED)
    assert row.outcome.startswith("ann allowed once")
    assert channel.edited[0].slot.message_ids == ("m1",)


async def test_slot_for_an_absent_channel_stays(engine: Engine) -> None:
    id = await slot(engine, where=Conversation(channel="slack", account="default", chat="D1"))
    await delivered(engine, FakeChannel())

    assert now(engine, id).state is SlotState.DUE


@pytest.mark.parametrize(
    ("failing", "sent", "state"),
    [({"claim_slots": 1}, 1, SlotState.SENT), ({"slot_sent": 2}, 1, SlotState.SENT)],
)
async def test_a_store_that_fails_for_a_moment_sends_nothing_twice(
    engine: Engine, failing: dict[str, int], sent: int, state: SlotState
) -> None:
    id = await slot(engine)
    engine.store.failing = failing
    channel = FakeChannel()
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()) as running:
        await until(lambda: holds(len(channel.sent) == sent))
        await asyncio.sleep(0.03)
        delivery.drain()
        await running

    assert (len(channel.sent), now(engine, id).state) == (sent, state)


@pytest.mark.parametrize("outcome", [None, RETRY, WAIT, DEAD])
async def test_a_message_that_the_store_lost_stops_nobody(engine: Engine, outcome: SendFailed | None) -> None:
    """A Redis came back without the slot while it was being sent. The daemon ended by that."""
    id = await slot(engine)
    channel = FakeChannel(outcomes=[outcome], slow={CHAT.chat: asyncio.Event()})
    async with in_background(engine.delivery(channel).run()) as running:
        await until(lambda: holds(now(engine, id).state is SlotState.SENDING))
        set_slot(engine.store, id, state=SlotState.SENT)  # so that no index has it any more
        engine.store.change(lambda part: part.slots.delete(id))
        channel.slow[CHAT.chat].set()
        other = await slot(engine, "other", where=chat(2))
        await until(lambda: holds(now(engine, other).state is SlotState.SENT))
        assert not running.done()


async def test_message_sent_at_the_death_is_sent_again_marked(engine: Engine) -> None:
    id = await slot(engine)
    engine.store.failing = {"slot_sent": 1}
    channel = FakeChannel()
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(len(channel.sent) == 1))
    assert now(engine, id).state is SlotState.SENDING
    engine.clock.advance(61)
    await engine.store.reclaim()
    await delivered(engine, channel)

    assert [showing.slot.uncertain for showing in channel.sent] == [False, True]


async def test_a_drained_sender_claims_nothing(engine: Engine) -> None:
    id = await slot(engine)
    channel = FakeChannel()
    delivery = engine.delivery(channel)
    delivery.drain()
    async with asyncio.timeout(2):
        await delivery.run()

    assert (channel.sent, now(engine, id).state) == ([], SlotState.DUE)


# --- parts ----------------------------------------------------------------------------------------


async def test_shown_parts_are_stored_and_a_repeat_continues(engine: Engine) -> None:
    id = await slot(engine, "one\ntwo\nthree")
    channel = PartsChannel(outcomes=[None, RETRY], every_s=0)
    await delivered(engine, channel)
    assert (channel.parts, now(engine, id).message_ids) == (["one"], ("m1",))
    await delivered(engine, channel)

    assert channel.parts == ["one", "two", "three"]
    assert (now(engine, id).state, now(engine, id).message_ids) == (SlotState.SENT, ("m1", "m2", "m3"))


async def test_part_with_a_long_wait_goes_later_without_using_a_try(engine: Engine) -> None:
    id = await slot(engine, "one\ntwo\nthree")
    channel = PartsChannel(every_s=100, burst=2)
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()):
        await until(lambda: holds(now(engine, id).state is SlotState.DUE))
        assert (channel.parts, now(engine, id).attempts, now(engine, id).uncertain) == (["one", "two"], 0, False)
        assert now(engine, id).due_at == engine.clock.now() + timedelta(seconds=99)
        engine.clock.advance(100)
        await until(lambda: holds(now(engine, id).state is SlotState.SENT))

    assert channel.parts == ["one", "two", "three"]


async def test_a_doubt_about_another_part_is_a_first_one(engine: Engine) -> None:
    """A long answer's beginning was in doubt and then arrived; its end was given up at its first doubt."""
    id = await slot(engine, "one\ntwo\nthree")
    channel = PartsChannel(outcomes=[UNCERTAIN, None, UNCERTAIN, None, UNCERTAIN], every_s=0)
    await delivered(engine, channel, rounds=4)

    assert channel.parts == ["one", "two", "three"]
    assert now(engine, id).state is SlotState.SENT


async def test_a_channel_that_breaks_behind_a_part_leaves_a_doubt(engine: Engine) -> None:
    await slot(engine, "one\ntwo")
    channel = PartsChannel(outcomes=[None, RuntimeError("broke"), None], every_s=0)
    await delivered(engine, channel, rounds=2)

    assert channel.parts == ["one", "two"]


# --- given up -------------------------------------------------------------------------------------


async def test_owners_hear_of_an_unshowable_place_once_an_hour(engine: Engine) -> None:
    await engine.say()
    for number in (7, 7, 8):
        await slot(engine, where=chat(number), session=OWN_SESSION)
    await delivered(engine, FakeChannel(outcomes=[SendFailed(f"blocked {SECRET}", outcome=SendOutcome.DEAD)] * 3))

    told = [text for text in await engine.texts() if "could not be shown" in text]
    assert len(told) == 2
    assert told[0] == (
        "In telegram/default/7 an answer could not be shown: blocked [hidden]. It can be read on the web page. "
        "To keep using that chat, make sure that the bot is still in it and may write."
    )


async def test_topics_of_a_chat_are_one_place(engine: Engine) -> None:
    await engine.say()
    for thread in ("1", "2", "3"):
        await slot(engine, where=replace(chat(7), thread=thread), session=OWN_SESSION)
    await delivered(engine, FakeChannel(outcomes=[DEAD] * 3))

    assert len([text for text in await engine.texts() if "could not be shown" in text]) == 1


async def test_unshowable_notices_and_refusals_are_not_reported(engine: Engine) -> None:
    await engine.say()  # Ann's chat is known
    await slot(engine, session=OWN_SESSION)
    await slot(engine, "You may not talk to me.", kind=SlotKind.REPLY, where=chat(9))
    channel = FakeChannel(outcomes=[DEAD] * 9)
    await delivered(engine, channel, rounds=40)

    assert len(channel.outcomes) == 9 - 3  # the answer, the refusal, and the notice of the answer in Ann's chat
    assert len([text for text in await engine.texts() if "could not be shown" in text]) == 1


# --- answers that grow ----------------------------------------------------------------------------


async def test_message_ids_after_an_edit_are_stored(engine: Engine) -> None:
    id = await slot(engine, "one")
    channel = PartsChannel(every_s=0)
    await delivered(engine, channel)
    rewrite(engine.store, id, "one\ntwo", None)
    await delivered(engine, channel)

    assert (channel.parts, now(engine, id).message_ids) == (["one", "two"], ("m1", "m2"))


@dataclass(slots=True)
class SlowEdits(FakeChannel):
    """Channel whose live edits take until they are released, and may fail."""

    streams: bool = True
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    end: SendFailed | None = None

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Change, or fail."""
        if showing.partial:
            self.begun.set()
            await self.may_end.wait()
            if self.end is not None:
                raise self.end
        return await FakeChannel.show(self, showing, progress)


@asynccontextmanager
async def written(engine: Engine, channel: SlowEdits, *, patience_s: float = 5) -> AsyncGenerator[SlotId]:
    """Return an answer that was finished while a live edit of it is under way."""
    await engine.say()
    delivery, turn = engine.delivery(channel), (await engine.claim()).turn
    delivery.messages.edit_patience_s = patience_s

    def says(start: int, text: str) -> None:
        engine.store.event_bus.publish(ANSWERS, TextDelta(session=OWN_SESSION, turn=turn, n=0, start=start, text=text))

    async with in_background(engine.live_edits(delivery).run()), in_background(delivery.run()):
        await asyncio.sleep(0.01)
        engine.store.event_bus.publish(ANSWERS, TurnActive(session=OWN_SESSION, turn=turn, conversation=CHAT))
        says(0, "Once upon ")
        early = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text="Once upon", n=0)
        id = add_slot(engine.store, early, OWN_SESSION, turn)
        await until(lambda: holds(now(engine, id).state is SlotState.SENT))
        says(10, "a time ")
        engine.clock.advance(1.1)
        await channel.begun.wait()
        rewrite(engine.store, id, "The end.", 0)
        await until(lambda: holds(now(engine, id).state is SlotState.SENDING))
        says(17, "and then ")
        yield id


async def test_the_last_words_come_after_every_edit_of_the_beginning(engine: Engine) -> None:
    channel = SlowEdits()
    async with written(engine, channel) as id:
        engine.clock.advance(1.1)
        await asyncio.sleep(0.05)
        assert channel.edited == []
        channel.may_end.set()
        await until(lambda: holds(now(engine, id).state is SlotState.SENT))
        engine.clock.advance(3)
        await asyncio.sleep(0.05)

    assert [one.text for one in channel.edited] == ["Once upon a time", "The end."]
    assert len(channel.sent) == 1


async def test_last_words_wait_for_a_slow_edit_without_using_a_try(engine: Engine) -> None:
    channel = SlowEdits()
    async with written(engine, channel, patience_s=0.05) as id:
        for _ in range(3):
            await until(lambda: holds(now(engine, id).due_at == engine.clock.now() + timedelta(seconds=RETRY_S)))
            assert (now(engine, id).state, now(engine, id).attempts) == (SlotState.DUE, 0)
            engine.clock.advance(RETRY_S)
        channel.may_end.set()
        await until(lambda: holds(bool(channel.edited)))
        engine.clock.advance(RETRY_S)
        await until(lambda: holds(now(engine, id).state is SlotState.SENT))

    # On a busy machine the end may be shown once more, since an edit was in doubt for long.
    assert list(dict.fromkeys(one.text for one in channel.edited)) == ["Once upon a time", "The end."]


@pytest.mark.parametrize("end", [RETRY, DOUBTFUL_EDIT])
async def test_last_words_after_an_edit_in_doubt_wait_and_are_repeated(engine: Engine, end: SendFailed) -> None:
    channel = SlowEdits(end=end)
    async with written(engine, channel) as id:
        channel.may_end.set()
        await until(lambda: holds(now(engine, id).due_at == engine.clock.now() + timedelta(seconds=SETTLED_AFTER_S)))
        assert (now(engine, id).state, now(engine, id).attempts, channel.edited) == (SlotState.DUE, 0, [])
        engine.clock.advance(SETTLED_AFTER_S)
        await until(lambda: holds(now(engine, id).state is SlotState.SENT))

        # It may come later still, from a platform that takes its time: the end is shown once more then.
        engine.clock.advance(EDIT_IN_DOUBT.total_seconds() + 1)
        assert await engine.store.fire_timers() == 1
        await until(lambda: holds(len(channel.edited) == 2))

    assert [(one.text, one.slot.stands) for one in channel.edited] == [("The end.", False), ("The end.", True)]


@pytest.mark.parametrize(("failure", "again"), [(DOUBTFUL_EDIT, 1), (EDIT_TO_WAIT_FOR, 1), (WAIT, 0)])
async def test_newer_version_after_an_unanswered_edit_is_repeated(
    engine: Engine, failure: SendFailed, again: int
) -> None:
    """However long delivery waited, and though that was no attempt."""
    card = await asked(engine)
    channel = FakeChannel()
    await delivered(engine, channel)
    (wait,) = await engine.store.open_approvals()
    await engine.press(wait.id)
    channel.outcomes = [failure]
    await delivered(engine, channel)
    rewrite(engine.store, card, "newer", 0)
    await delivered(engine, channel)
    assert now(engine, card).state is SlotState.SENT
    engine.clock.advance(EDIT_IN_DOUBT.total_seconds() + 1)
    assert await engine.store.fire_timers() == again


@pytest.mark.parametrize("outcome", [DEAD, RETRY])
async def test_failed_repeat_of_a_shown_version_is_not_given_up(engine: Engine, outcome: SendFailed) -> None:
    """The owners get no notice, since nothing is lost."""
    id = await slot(engine)
    await delivered(engine, FakeChannel())
    assert await engine.store.slot_overwritten(id, 0)
    await delivered(engine, FakeChannel(outcomes=[outcome] * 9), rounds=7)
    found = now(engine, id)
    assert (found.state, found.version, found.sent_version) == (SlotState.SENT, 2, 2)
    assert len(engine.store.slots) == 1
