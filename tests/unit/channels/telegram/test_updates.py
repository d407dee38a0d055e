"""Batches of updates: their order, and when they count as stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from channels._shared.poison import POISON_KEPT, TRIES
from channels.telegram.chat_migration import ChatMigrations
from channels.telegram.inbound import BotIdentity
from channels.telegram.updates import SIDE_BY_SIDE, TelegramUpdates
from gateway.domain.messages import Inbound, Press, Refused, RefusedReason
from gateway.domain.waits import PressResult
from gateway.errors import StoreError
from tests.support.clock import FakeClock
from tests.support.surroundings import FakeNotes, FakeSink
from tests.unit.channels.telegram.scene import message, press

GROUP, NEW = -55, -10055


class Taker:
    """Updates over fakes."""

    def __init__(self, sink: FakeSink | None = None, notes: FakeNotes | None = None) -> None:
        self.sink = sink or FakeSink()
        self.notes = notes or FakeNotes()
        self.answers: list[tuple[str, PressResult]] = []
        self.broken = 0
        self.updates = TelegramUpdates(
            bot=BotIdentity(id=4242, username="dragoman_bot", account="main"),
            sink=self.sink,
            migrations=ChatMigrations(self.notes),
            clock=FakeClock(),
            answer=lambda query, result: self.answers.append((query, result)),
            broken=self.break_,
        )

    def break_(self) -> None:
        self.broken += 1

    async def take(self, *updates: object) -> bool:
        return await self.updates.take(updates)


def failing(error: Exception, *keys: str, times: int = 1_000_000) -> FakeSink:
    """A sink that fails for these events (for all, when none are named), so many times."""
    left = [times]

    def fail(key: str) -> Exception | None:
        if (keys and key not in keys) or left[0] == 0:
            return None
        left[0] -= 1
        return error

    return FakeSink(fail=fail)


async def test_chat_is_taken_in_order_beside_other_chats() -> None:
    taker = Taker(FakeSink(delay_s=0.01))
    batch = [message(10 * user + n, f"{user}/{n}", user=user) for n in range(3) for user in range(1, 33)]
    assert await taker.take(*batch)
    assert len(taker.sink.texts) == 96
    for user in range(1, 33):
        mine = [text for text in taker.sink.texts if text.startswith(f"{user}/")]
        assert mine == [f"{user}/{n}" for n in range(3)]
    assert taker.sink.most == SIDE_BY_SIDE


async def test_topics_of_a_chat_keep_the_chats_order() -> None:
    taker = Taker(FakeSink(delay_s=0.005))
    more: dict[str, Any] = {"is_topic_message": True}
    await taker.take(
        message(1, "a", chat=GROUP, message_thread_id=3, **more),
        message(2, "b", chat=GROUP, message_thread_id=4, **more),
        message(3, "c", chat=GROUP),
    )
    assert taker.sink.texts == ["a", "b", "c"]


async def test_mixed_batch_is_taken_in_the_order_of_its_ids() -> None:
    taker = Taker()
    nameless: dict[str, Any] = {"message": {}}
    assert await taker.take(message(12, "c"), nameless, message(10, "a"), message(11, "b"))
    assert taker.sink.texts == ["a", "b", "c"]


async def test_presses_go_before_messages_and_are_answered() -> None:
    taker = Taker()
    assert await taker.take(message(1, "hello"), press(2), message(3, "more", user=2002))
    assert isinstance(taker.sink.events[0], Press)
    assert taker.answers == [("q2", PressResult.APPROVED)]


@pytest.mark.parametrize("result", PressResult)
async def test_every_press_is_answered(result: PressResult) -> None:
    taker = Taker(FakeSink(result=result))
    await taker.take(press(1))
    assert taker.answers == [("q1", result)]


async def test_a_press_that_cannot_be_used_is_answered_too() -> None:
    taker = Taker()
    broken = press(1)
    del broken["callback_query"]["data"]
    assert await taker.take(broken)
    assert taker.answers == [("q1", PressResult.NOT_VALID)]
    assert len(taker.sink.refused) == 1


@pytest.mark.parametrize("query", [None, 7, [], "x" * 200])
async def test_a_press_without_a_usable_id_is_kept_and_not_answered(query: object) -> None:
    taker = Taker()
    broken = press(1)
    broken["callback_query"]["id"] = query
    assert await taker.take(broken)
    assert taker.answers == []
    assert len(taker.sink.refused) == 1


@pytest.mark.parametrize("update", [{}, {"update_id": 5, "poll": {}}, "text", 7, None, [], {"update_id": "x"}])
async def test_anything_else_is_kept_and_blocks_nothing(update: object) -> None:
    taker = Taker()
    assert await taker.take(update, message(6, "hello"))
    assert taker.sink.texts == ["hello"]
    assert len(taker.sink.refused) == 1


async def test_failing_store_leaves_the_batch_unconfirmed_and_in_order() -> None:
    sink = failing(StoreError("full"), "m1001.11", times=1)
    taker = Taker(sink)
    batch = [message(1, "first"), message(2, "second"), message(3, "other", user=2002)]
    assert not await taker.take(*batch)
    assert sink.texts == ["other"]  # "second" did not overtake "first"
    assert await taker.take(*batch)
    assert sink.texts == ["other", "first", "second"]


async def test_a_press_that_is_not_stored_is_not_answered_yet() -> None:
    taker = Taker(failing(StoreError("full"), times=1))
    assert not await taker.take(press(1))
    assert taker.answers == []
    assert await taker.take(press(1))
    assert len(taker.answers) == 1


async def test_unstored_refusal_leaves_the_batch_unconfirmed() -> None:
    assert not await Taker(failing(StoreError("full"))).take({"update_id": 5, "poll": {}})


async def test_poisonous_event_comes_again_and_is_then_put_aside() -> None:
    sink = failing(RuntimeError("a bug"), "m1001.11", times=TRIES)
    taker = Taker(sink)
    batch = [message(1, "first"), message(2, "second")]
    for _ in range(TRIES - 1):
        assert not await taker.take(*batch)
    assert taker.broken == 0
    assert await taker.take(*batch)
    assert taker.broken == 1
    kept = sink.refused[0]
    assert (kept.event_key, kept.reason) == ("m1001.11", RefusedReason.POISON)
    assert "RuntimeError" in kept.detail
    assert '"first"' in kept.raw
    assert sink.texts == ["second"]


async def test_little_is_kept_of_what_anybody_can_send() -> None:
    """c9: 64 KiB of each unusable message of a stranger fill a disk."""
    taker = Taker(failing(RuntimeError("a bug"), "m1001.12", times=TRIES))
    unreadable, breaking = message(1, "x" * 70_000), message(2, "y" * 60_000)
    for _ in range(TRIES):
        await taker.take(unreadable, breaking)
    assert [one.reason for one in taker.sink.refused] == [RefusedReason.POISON] * 2
    assert [len(one.raw) for one in taker.sink.refused] == [POISON_KEPT] * 2
    assert POISON_KEPT == 2_048


async def test_event_that_cannot_be_put_aside_comes_again() -> None:
    taker = Taker(failing(RuntimeError("a bug"), times=TRIES))
    for _ in range(TRIES - 1):
        assert not await taker.take(message(1, "first"))
    taker.sink.fail = lambda key: RuntimeError("a bug") if not taker.sink.events else StoreError("full")
    assert not await Taker(taker.sink).take(message(1, "first"))


# --- chats that move ----------------------------------------------------------------------------


def migration(update: int, *, chat: int = GROUP, **more: int) -> dict[str, Any]:
    found = message(update, "", chat=chat, **more)
    del found["message"]["text"]
    return found


@pytest.mark.parametrize(
    "told", [migration(9, migrate_to_chat_id=NEW), migration(9, chat=NEW, migrate_from_chat_id=GROUP)]
)
async def test_a_group_that_moved_goes_on_under_its_first_id(told: dict[str, Any]) -> None:
    taker = Taker()
    assert await taker.take(message(8, "there", chat=NEW, user=7), told)
    said = taker.sink.events[0]
    assert isinstance(said, Inbound)
    assert said.conversation.chat == str(GROUP)
    assert said.also_called == (str(NEW),)
    assert taker.notes.kept == {str(GROUP): str(NEW)}


async def test_migrated_chat_is_remembered_over_a_restart() -> None:
    taker = Taker(notes=FakeNotes(kept={str(GROUP): str(NEW)}))
    await taker.take(message(1, "there", chat=NEW, user=7))
    said = taker.sink.events[0]
    assert not isinstance(said, Refused)
    assert said.conversation.chat == str(GROUP)


async def test_a_press_in_a_moved_group_counts_in_the_old_one() -> None:
    taker = Taker(notes=FakeNotes(kept={str(GROUP): str(NEW)}))
    pressing = press(1)
    pressing["callback_query"]["message"]["chat"] = {"id": NEW, "type": "supergroup"}
    await taker.take(pressing)
    assert taker.sink.pressed[0].conversation.chat == str(GROUP)


async def test_a_move_that_is_not_kept_leaves_the_batch_unconfirmed() -> None:
    notes = FakeNotes(broken=True)
    taker = Taker(notes=notes)
    assert not await taker.take(migration(1, migrate_to_chat_id=NEW))
    assert not await taker.take(migration(1, migrate_to_chat_id=NEW))
    notes.broken = False
    assert await taker.take(migration(1, migrate_to_chat_id=NEW))
    assert notes.kept == {str(GROUP): str(NEW)}


async def test_moves_in_a_circle_end() -> None:
    moves = ChatMigrations(FakeNotes(kept={"-1": "-2", "-2": "-1"}))
    async with asyncio.timeout(1):
        assert await moves.now("-1") in {"-1", "-2"}
        assert await moves.later("-1") == ("-2",)


@pytest.mark.parametrize(
    ("chat", "also"), [("-1", ("-2", "-3")), ("-2", ("-2", "-3")), ("-3", ("-2", "-3")), ("-4", ())]
)
async def test_a_message_says_every_id_that_its_chat_had(chat: str, also: tuple[str, ...]) -> None:
    """A group that moved was never reached by the id that its owner reads in the app, and allows."""
    taker = Taker(notes=FakeNotes(kept={"-1": "-2", "-2": "-3"}))
    await taker.take(message(1, "hello", chat=int(chat), user=7))
    said = taker.sink.events[0]
    assert isinstance(said, Inbound)
    assert (said.conversation.chat, said.also_called) == ("-1" if also else chat, also)
