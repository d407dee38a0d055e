from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.messages import Conversation
from gateway.domain.slots import RateLimit, SlotKind, SlotState
from gateway.domain.tools import Effect, Risk
from gateway.outbound.delivery import AT_ONCE, CLAIM_FROM
from gateway.outbound.message_actor import LONGEST_DELAY_S
from gateway.outbound.rate_limit import BANS
from tests.support.engine import Engine
from tests.support.fakes import FakeChannel, FakeTool, in_background, until
from tests.support.makers import chat
from tests.support.sending import ACCOUNT, PacedChannel, asked, delivered, holds, now, slot, told_to_wait
from tests.support.stored import set_slot


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)])


# --- limits ---------------------------------------------------------------------------------------


async def test_slot_with_a_long_wait_is_released_for_others(engine: Engine) -> None:
    for number in range(AT_ONCE):
        await slot(engine, "first", where=chat(number))
    for number in range(AT_ONCE):
        await slot(engine, "behind", where=chat(number))
    await slot(engine, "quick", where=chat(1001))
    channel = PacedChannel()
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(any(one.text == "quick" for one in channel.sent)))
        assert [one.text for one in channel.sent].count("behind") == 0
        engine.clock.advance(10)
        await until(lambda: holds(len(channel.sent) == 2 * AT_ONCE + 1))

    assert {row.slot.state for row in engine.store.slots.values()} == {SlotState.SENT}


async def test_channel_sends_a_limited_number_at_once(engine: Engine) -> None:
    held = [asyncio.Event() for _ in range(AT_ONCE)]
    slots = [await slot(engine, "hello", where=chat(number)) for number in range(2 * AT_ONCE)]
    channel = FakeChannel(slow={chat(number).chat: gate for number, gate in enumerate(held)})
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(all(now(engine, one).state is SlotState.SENDING for one in slots[:AT_ONCE])))
        for gate in held[: CLAIM_FROM - 1]:
            gate.set()
        await until(lambda: holds(len(channel.sent) == CLAIM_FROM - 1))
        await asyncio.sleep(0.05)
        assert len(channel.sent) == CLAIM_FROM - 1
        held[CLAIM_FROM].set()
        await until(lambda: holds(len(channel.sent) == AT_ONCE + CLAIM_FROM))
        for gate in held:
            gate.set()
        await until(lambda: holds(len(channel.sent) == 2 * AT_ONCE))


async def test_waiting_for_a_limit_is_no_try(engine: Engine) -> None:
    first, second = await slot(engine, "first"), await slot(engine, "second")
    channel = PacedChannel(every_s=60)
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(now(engine, first).state is SlotState.SENT))
        for _ in range(10):
            await until(lambda: holds(now(engine, second).due_at > engine.clock.now()))
            assert (now(engine, second).attempts, now(engine, second).uncertain) == (0, False)
            engine.clock.advance(2)

    assert [one.text for one in channel.sent] == ["first"]


async def test_endless_wait_is_rechecked_daily(engine: Engine) -> None:
    """A custom channel may return any delay; 1e300 s is beyond every date."""
    await slot(engine, "first")
    second, began = await slot(engine, "second"), engine.clock.now()
    async with in_background(engine.delivery(PacedChannel(every_s=1e300)).run()):
        await until(lambda: holds(now(engine, second).due_at == began + timedelta(seconds=LONGEST_DELAY_S)))

    assert (now(engine, second).state, now(engine, second).attempts) == (SlotState.DUE, 0)


async def test_texts_precede_cards_under_an_overall_limit(engine: Engine) -> None:
    for number in range(1, 4):
        await slot(engine, f"card {number}", where=chat(number), kind=SlotKind.CARD)
    for number in range(4, 6):
        await slot(engine, f"text {number}", where=chat(number))
    channel = FakeChannel(pace=(RateLimit(scope=ACCOUNT, every_s=0.4, burst=1),))
    async with in_background(engine.delivery(channel).run()):
        for sent in range(1, 6):
            await until(lambda sent=sent: holds(len(channel.sent) == sent))
            engine.clock.advance(0.4)

    assert [one.text for one in channel.sent] == ["card 1", "text 4", "text 5", "card 2", "card 3"]


async def test_slot_waiting_at_the_end_is_released_unmarked(engine: Engine) -> None:
    await slot(engine, "first")
    second = await slot(engine, "second")
    channel = PacedChannel(every_s=1.5)
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()) as running:
        await until(lambda: holds(now(engine, second).state is SlotState.SENDING))
        delivery.drain()
        async with asyncio.timeout(2):
            await running

    assert [one.text for one in channel.sent] == ["first"]
    found = now(engine, second)
    assert (found.state, found.attempts, found.uncertain) == (SlotState.DUE, 0, False)


# --- bans -----------------------------------------------------------------------------------------


async def test_banned_chat_gets_nothing_and_others_continue(engine: Engine) -> None:
    channel = FakeChannel()
    shown = await asked(engine)  # a card in the chat that will be banned
    await delivered(engine, channel)
    channel.outcomes = [told_to_wait(engine, 60)]
    refused = await slot(engine, "refused")
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(not channel.outcomes and now(engine, refused).state is SlotState.DUE))
        assert now(engine, refused).attempts == 0
        (wait,) = await engine.store.open_approvals()
        await engine.press(wait.id)  # the card is to be edited
        await slot(engine, "elsewhere", where=chat(7))
        for _ in range(3):
            await until(lambda: holds("elsewhere" in [one.text for one in channel.sent]))
            engine.clock.advance(15)
            await asyncio.sleep(0.02)
        assert (channel.edited, len(channel.sent)) == ([], 2)
        engine.clock.advance(16)
        await until(lambda: holds(now(engine, shown).state is now(engine, refused).state is SlotState.SENT))

    assert len(channel.edited) == 1


async def test_ban_is_stored_first_and_outlives_the_process(engine: Engine) -> None:
    refused = await slot(engine, "refused", where=chat(7))
    await delivered(engine, FakeChannel(outcomes=[told_to_wait(engine, 3600)]))
    assert list(await engine.store.items(BANS)) == [f"{ACCOUNT}/7"]
    # As if the process had died between the two writes.
    set_slot(engine.store, refused, due_at=engine.clock.now())
    later = FakeChannel()
    await slot(engine, "other", where=chat(8))
    await delivered(engine, later)

    assert [one.text for one in later.sent] == ["other"]
    assert now(engine, refused).due_at > engine.clock.now()


async def test_many_banned_chats_do_not_stop_another(engine: Engine) -> None:
    for number in range(2 * AT_ONCE):
        where = Conversation(channel="telegram", account=f"bot{number}", chat="1")
        await engine.store.put(BANS, where.key, (engine.clock.now() + timedelta(hours=1)).isoformat())
        await slot(engine, "banned", where=where)
    await slot(engine, "free", where=chat(7))
    channel = FakeChannel()
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(bool(channel.sent)))

    assert [one.text for one in channel.sent] == ["free"]


async def test_three_refused_chats_ban_the_account_and_not_another(engine: Engine) -> None:
    channel = FakeChannel(outcomes=[told_to_wait(engine, seconds) for seconds in (30, 90, 60)])
    refused = [await slot(engine, "refused", where=chat(number)) for number in range(3)]
    async with in_background(engine.delivery(channel).run()):
        await until(lambda: holds(all(now(engine, id).due_at > engine.clock.now() for id in refused)))
        fourth = await slot(engine, "fourth", where=chat(4))
        await slot(engine, "other", where=Conversation(channel="telegram", account="second", chat="4"))
        await until(lambda: holds(bool(channel.sent)))
        await until(lambda: holds(now(engine, fourth).due_at > engine.clock.now()))

    assert [one.text for one in channel.sent] == ["other"]
    bans = await engine.store.items(BANS)
    assert bans[ACCOUNT] == f"{(engine.clock.now() + timedelta(seconds=30)).isoformat()} 30.0"


async def test_end_does_not_wait_for_a_ban(engine: Engine) -> None:
    await slot(engine, "refused")
    channel = FakeChannel(outcomes=[told_to_wait(engine, 60)])
    delivery = engine.delivery(channel)
    async with in_background(delivery.run()) as running:
        await until(lambda: holds(not channel.outcomes))
        async with asyncio.timeout(2):
            await delivery.flush()
        delivery.drain()
        await running

    assert channel.sent == []
