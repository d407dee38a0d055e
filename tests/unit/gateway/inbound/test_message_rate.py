"""Message rate: how many messages of one person are read in a minute, and what becomes of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import Principal
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.slots import SlotKind
from gateway.inbound.message_rate import PEOPLE_KEPT, MessageRate
from gateway.inbound.reply_texts import TOO_FAST
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, GROUP, NODE, PEOPLE
from tests.support.makers import ANN_TELEGRAM, BOB, inbound

MEMBER = Principal("telegram:9009")


def said(who: Principal = BOB, where: Conversation = BOB_CHAT, **fields: object) -> Inbound:
    return replace(inbound(who=who, where=where, direct=where != GROUP), **fields)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rate(clock: FakeClock) -> MessageRate:
    return MessageRate(2, PEOPLE, clock)


def test_so_many_in_a_minute_are_read(rate: MessageRate, clock: FakeClock) -> None:
    """A refused one does not count, so that whoever goes on is read again as soon as the first is a minute old."""
    beyond: list[bool] = []
    for _ in range(6):
        beyond.append(rate.exceeds(said()))
        clock.advance(20)
    assert beyond == [False, False, True, False, False, True]


def test_each_person_is_counted_alone(rate: MessageRate) -> None:
    assert [rate.exceeds(said()) for _ in range(3)] == [False, False, True]
    assert [rate.exceeds(said(MEMBER, GROUP)) for _ in range(3)] == [False, False, True]


def test_a_person_is_counted_over_all_chats(rate: MessageRate) -> None:
    assert [rate.exceeds(said(where=where)) for where in (BOB_CHAT, GROUP, BOB_CHAT)] == [False, False, True]


@pytest.mark.parametrize(
    "free",
    [
        said(ANN_TELEGRAM),
        said(where=GROUP, addressed=False),
        said(edits="m1"),
        said(event_key="again"),
        said(album="a1"),
    ],
)
def test_message_that_asks_nothing_new_is_free(rate: MessageRate, free: Inbound) -> None:
    """Owners, overheard messages, edits, events that come again, the pictures of one album."""
    assert [rate.exceeds(replace(free, event_key=free.event_key)) for _ in range(10)] == [False] * 10
    assert not rate.exceeds(said(free.principal))


@pytest.mark.parametrize("most", [0])
def test_without_a_limit_everything_is_read(clock: FakeClock, most: int) -> None:
    rate = MessageRate(most, PEOPLE, clock)
    assert not any(rate.exceeds(said()) for _ in range(1_000))


def test_a_flood_of_people_pushes_out_the_oldest(rate: MessageRate) -> None:
    """So many people are remembered at most: Bob, who was over the limit, counts anew after as many others."""
    assert [rate.exceeds(said()) for _ in range(3)] == [False, False, True]
    for n in range(PEOPLE_KEPT - 1):
        rate.exceeds(said(Principal(f"telegram:{n + 10_000}")))
    assert rate.exceeds(said())
    for n in range(PEOPLE_KEPT):
        rate.exceeds(said(Principal(f"telegram:{n + 10_000}")))
    assert not rate.exceeds(said())


async def test_a_message_beyond_is_stored_and_told_once_a_minute(tmp_path: Path) -> None:
    """It starts no turn, also not when the platform sends it again."""
    engine = Engine(tmp_path)
    messages = [said(event_key=f"m{n}") for n in range(25)]
    taken = [await engine.ingress.message(one) for one in messages]
    assert [one is None for one in taken] == [False] * 20 + [True] * 5
    engine.clock.advance(30)
    assert await engine.ingress.message(messages[-1]) is None
    assert await _told(engine) == [TOO_FAST]
    engine.clock.advance(30)
    again = await engine.ingress.message(messages[-1])
    assert again is not None
    assert again.duplicate
    for n in range(30):
        await engine.ingress.message(said(event_key=f"n{n}"))
    assert await _told(engine) == [TOO_FAST]


async def test_a_stranger_beyond_is_told_nothing_more(tmp_path: Path) -> None:
    """One refusal a day, however much they write."""
    engine = Engine(tmp_path)
    for n in range(50):
        await engine.ingress.message(
            said(MEMBER, Conversation(channel="telegram", account="default", chat="9009"), event_key=f"s{n}")
        )
    found = await engine.store.claim_slots(NODE, ["telegram"], 10)
    assert [slot.kind for slot in found] == [SlotKind.REFUSAL]


async def _told(engine: Engine) -> list[str]:
    """Send what is due; return the texts."""
    texts: list[str] = []
    while found := await engine.store.claim_slots(NODE, ["telegram"], 10):
        for slot in found:
            texts.append(slot.text)
            await engine.store.slot_sent(slot, ("1",))
    return texts
