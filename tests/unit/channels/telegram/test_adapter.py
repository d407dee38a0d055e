"""The adapter against a Telegram on loopback: shown messages, waits, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from channels.telegram.adapter import TelegramChannel
from channels.telegram.parts import RESENT
from gateway.domain.messages import Conversation
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.errors import SendFailed, SendOutcome
from tests.support.shown import slot as made_slot
from tests.support.telegram import TOKEN, Call, FakeTelegram, Fault, faults
from tests.unit.channels.telegram.conftest import QUICK
from tests.unit.channels.telegram.scene import Scene

ANN, BOB = 1001, 2002
DIRECT = Conversation(channel="telegram", account="main", chat=str(ANN))
SECOND_TOKEN = "987654321:AAAnotherTokenOfATestBot-0123456789abc"


class Shower:
    """Shows versions of one slot, as the gateway's delivery does."""

    def __init__(
        self, channel: TelegramChannel, where: Conversation = DIRECT, kind: SlotKind = SlotKind.ANSWER
    ) -> None:
        self.channel = channel
        self.where = where
        self.kind = kind
        self.shown: tuple[str, ...] = ()
        self.told: list[tuple[str, ...]] = []

    async def progress(self, message_ids: tuple[str, ...]) -> None:
        self.shown = message_ids
        self.told.append(message_ids)

    async def show(
        self, text: str, *, partial: bool = False, uncertain: bool = False, once_more: bool = False
    ) -> tuple[str, ...]:
        doubts = {"uncertain": uncertain, "once_more": once_more}
        slot = made_slot(self.where, self.kind, n=None, text=text, message_ids=self.shown, attempts=0, **doubts)
        self.shown = await self.channel.show(RenderedSlot(slot=slot, text=text, partial=partial), self.progress)
        return self.shown

    async def failing(self, text: str = "hello", *, partial: bool = False) -> SendFailed:
        with pytest.raises(SendFailed) as caught:
            await self.show(text, partial=partial)
        return caught.value


def once(method: str, fault: Fault, *, at: int = 0) -> Callable[[Call], Fault | None]:
    """A script that gives the n-th call of a method a fault."""
    seen: list[str] = []

    def script(call: Call) -> Fault | None:
        seen.append(call.method)
        return fault if call.method == method and seen.count(method) == at + 1 else None

    return script


def texts(telegram: FakeTelegram, chat: int = ANN) -> list[str]:
    return [message.text for message in telegram.shown(chat)]


LONG = "\n\n".join(f"Paragraph {n}. " + "word " * 150 for n in range(9))
"""Two messages."""
LONGER = "\n\n".join(f"Paragraph {n}. " + "word " * 150 for n in range(14))
"""Three."""


# --- showing ------------------------------------------------------------------------------------


async def test_a_text_is_sent_with_entities_and_without_previews(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    shown = await Shower(channel).show("It is **bold**: https://example.org/")
    message = telegram.shown(ANN)[0]
    assert shown == (str(message.id),)
    assert "bold" in {entity["type"] for entity in message.entities}
    sent = telegram.calls("sendMessage")[0].parameters
    assert sent["link_preview_options"] == {"is_disabled": True}
    assert "parse_mode" not in sent


async def test_edit_changes_the_message_and_an_equal_one_asks_nothing(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    first = await slot.show("one")
    assert await slot.show("two") == first
    assert await slot.show("two") == first
    assert texts(telegram) == ["two"]
    assert len(telegram.calls("editMessageText")) == 1


async def test_equal_edit_after_a_restart_is_a_success(telegram: FakeTelegram, scene: Scene) -> None:
    slot = Shower(TelegramChannel(scene.context(), QUICK))
    await slot.show("one")
    slot.channel = TelegramChannel(scene.context(), QUICK)
    await slot.show("one")
    assert (texts(telegram), telegram.calls("editMessageText")[0].status) == (["one"], 400)


async def test_long_text_becomes_several_recorded_messages(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    slot = Shower(channel)
    shown = await slot.show(LONGER)
    ids = [str(message.id) for message in telegram.shown(ANN)]
    assert shown == tuple(ids)
    assert slot.told == [tuple(ids[:1]), tuple(ids[:2])]
    assert "".join("".join(texts(telegram)).split()) == "".join(LONGER.split())


async def test_a_growing_text_is_edited_and_goes_on_in_new_messages(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    first = await slot.show("Paragraph 0.")
    assert await slot.show("Paragraph 0. word", partial=True) == first
    assert (await slot.show(LONG))[:1] == first
    assert len(texts(telegram)) == 2
    assert len(telegram.calls("sendMessage")) == 2


async def test_status_line_is_one_silent_message_that_is_edited(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel, kind=SlotKind.STATUS)
    first = await slot.show("▸ shell: `df` -h *.log")
    assert telegram.calls("sendMessage")[0].parameters["disable_notification"] is True
    assert await slot.show("▸ shell: `df` -h *.log · 5 s", partial=True) == first
    assert texts(telegram) == ["▸ shell: `df` -h *.log · 5 s"]
    assert await slot.show("2 calls (shell ×2), 12 s, 4,120 tokens, $0.012") == first

    assert texts(telegram) == ["2 calls (shell ×2), 12 s, 4,120 tokens, $0.012"]
    edits = telegram.calls("editMessageText")
    assert [("disable_notification" in one.parameters, "entities" in one.parameters) for one in edits] == [
        (False, False)
    ] * 2


async def test_answers_make_a_sound(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    await Shower(channel).show("Here it is.")
    assert "disable_notification" not in telegram.calls("sendMessage")[0].parameters


async def test_partial_text_creates_no_message_and_the_final_text_does(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    await slot.show("Once upon")
    telegram.shown(ANN)[0].deleted = True
    for text in ("Once upon a", "Once upon a", "Once upon a time"):
        failed = await slot.failing(text, partial=True)
        assert (failed.outcome, failed.creating) == (SendOutcome.DEAD, False)
    assert {call.method for call in telegram.log[1:]} == {"editMessageText"}
    await slot.show("Once upon")
    assert (texts(telegram), len(telegram.calls("sendMessage"))) == (["Once upon"], 2)


@pytest.mark.parametrize(("before", "beginning"), [("", "Once"), (LONG, "Once"), ("Once", " ")])
async def test_partial_text_over_other_messages_changes_nothing(
    telegram: FakeTelegram, channel: TelegramChannel, before: str, beginning: str
) -> None:
    slot = Shower(channel)
    await slot.show(before)
    asked = len(telegram.log)
    failed = await slot.failing(beginning, partial=True)
    assert (failed.outcome, failed.creating) == (SendOutcome.DEAD, False)
    assert len(telegram.log) == asked


async def test_unanswered_edit_makes_the_shown_text_unknown(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    slot = Shower(channel)
    await slot.show("one")
    telegram.script(once("editMessageText", faults.cut()))
    await slot.failing("two")
    assert await slot.show("one") == (str(telegram.shown(ANN)[0].id),)
    assert texts(telegram) == ["one"]


async def test_repeated_file_is_marked_and_not_sent_once_more_for_it(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    telegram.script(once("sendDocument", faults.cut()))
    whole = LONGER * 3
    assert (await slot.failing(whole)).outcome is SendOutcome.UNCERTAIN
    await slot.show(whole, uncertain=True)
    shown = await slot.show(whole)
    head, lost, again = telegram.shown(ANN)
    assert shown == (str(head.id), str(again.id))
    assert [RESENT in text for text in (head.text, lost.text, again.text)] == [False, False, True]
    assert len(telegram.calls("sendDocument")) == 2


async def test_surplus_message_is_deleted(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    slot = Shower(channel)
    await slot.show(LONGER)
    shown = await slot.show("short")
    assert texts(telegram) == ["short"]
    assert shown == (str(telegram.shown(ANN)[0].id),)


@pytest.mark.parametrize("text", ["short", LONG])
async def test_a_text_that_became_empty_is_taken_away_whole(
    telegram: FakeTelegram, channel: TelegramChannel, text: str
) -> None:
    slot = Shower(channel)
    await slot.show(text)
    assert await slot.show("") == ()
    assert texts(telegram) == []


async def test_nothing_to_show_is_shown_as_nothing(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    assert await Shower(channel).show("") == ()
    assert telegram.log == []


async def test_too_long_text_is_a_file_that_is_not_sent_again(telegram: FakeTelegram, scene: Scene) -> None:
    slot = Shower(TelegramChannel(scene.context(), QUICK))
    whole = LONGER * 3
    first = await slot.show(whole)
    document = telegram.shown(ANN)[1].document
    assert document is not None
    assert document.content.decode() == whole
    slot.channel = TelegramChannel(scene.context(), QUICK)
    assert await slot.show(whole) == first
    assert len(telegram.calls("sendDocument")) == 1


async def test_a_message_that_somebody_deleted_is_shown_again(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    slot = Shower(channel)
    first = await slot.show("one")
    telegram.shown(ANN)[0].deleted = True
    assert await slot.show("two") != first
    assert texts(telegram) == ["two"]


async def test_a_message_that_is_gone_already_counts_as_taken_away(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    await slot.show("one")
    telegram.shown(ANN)[0].deleted = True
    assert await slot.show("") == ()


async def test_entities_that_are_refused_are_left_out(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.script(once("sendMessage", faults.error(400, "Bad Request: can't parse entities: x")))
    await Shower(channel).show("It is **bold**.")
    assert texts(telegram) == ["It is bold."]
    assert telegram.shown(ANN)[0].entities == []


async def test_text_that_is_refused_without_entities_too_is_dead(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    telegram.script(lambda call: faults.error(400, "Bad Request: can't parse entities: x"))
    assert (await Shower(channel).failing("It is **bold**.")).outcome is SendOutcome.DEAD
    assert len(telegram.calls("sendMessage")) == 2


async def test_a_topic_is_written_to(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    chat = telegram.supergroup(topics={5: "Work"})
    await Shower(channel, Conversation(channel="telegram", account="main", chat=str(chat), thread="5")).show("hello")
    assert telegram.shown(chat)[0].thread == 5


# --- failures -----------------------------------------------------------------------------------


async def test_unanswered_create_is_in_doubt_and_edit_adds_no_message(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    slot = Shower(channel)
    telegram.script(once("sendMessage", faults.cut()))
    failed = await slot.failing()
    assert (failed.outcome, failed.creating) == (SendOutcome.UNCERTAIN, True)
    await slot.show("hello", uncertain=True)
    assert texts(telegram)[1].startswith("(re-sent)")
    telegram.script(once("editMessageText", faults.cut()))
    failed = await slot.failing("changed")
    assert (failed.outcome, failed.creating) == (SendOutcome.UNCERTAIN, False)


async def test_repeated_version_replaces_a_late_edit(telegram: FakeTelegram, scene: Scene) -> None:
    """Though this channel showed it last, for all that it knows."""
    slot, late = (Shower(TelegramChannel(scene.context(), QUICK)) for _ in range(2))
    late.shown = await slot.show("one")
    await slot.show("two")
    await late.show("one and")
    await slot.show("two")
    assert texts(telegram) == ["one and"]
    await slot.show("two", once_more=True)
    await slot.show("two", once_more=True)  # "message is not modified"
    assert texts(telegram) == ["two"]


async def test_nobody_there_is_waited_for(scene: Scene) -> None:
    scene.api_root = "http://127.0.0.1:9"
    failed = await Shower(TelegramChannel(scene.context(), QUICK)).failing()
    assert (failed.outcome, failed.scope) == (SendOutcome.WAIT, "telegram/main")
    assert TOKEN.partition(":")[2] not in str(failed)


async def test_a_repetition_goes_on_behind_what_is_shown(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    slot = Shower(channel)
    telegram.script(once("sendMessage", faults.too_many(1), at=1))
    failed = await slot.failing(LONG)
    assert failed.outcome is SendOutcome.WAIT
    telegram.script(lambda _call: None)
    await slot.show(LONG)
    assert len(texts(telegram)) == 2
    assert len(telegram.calls("sendMessage")) == 3


async def test_a_flood_waits_in_its_chats_scope(telegram: FakeTelegram, channel: TelegramChannel, scene: Scene) -> None:
    telegram.ban(ANN, 7)
    failed = await Shower(channel).failing()
    assert failed.outcome is SendOutcome.WAIT
    assert failed.scope == "telegram/main/1001" == channel.rate_limits(DIRECT)[1].scope
    assert failed.until == scene.clock.now() + timedelta(seconds=7)


async def test_a_blocked_bot_is_dead_with_a_cure(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.block(ANN)
    failed = await Shower(channel).failing()
    assert failed.outcome is SendOutcome.DEAD
    assert "unblock" in str(failed)


@pytest.mark.parametrize(
    "where",
    [replace(DIRECT, account="gone"), replace(DIRECT, chat="@name"), replace(DIRECT, thread="general")],
)
async def test_a_place_that_is_none_is_dead(
    telegram: FakeTelegram, channel: TelegramChannel, where: Conversation
) -> None:
    failed = await Shower(channel, where).failing()
    assert (failed.outcome, failed.creating) == (SendOutcome.DEAD, False)
    await channel.typing(where)
    assert telegram.log == []


async def test_a_create_passes_its_fail_point(channel: TelegramChannel, scene: Scene) -> None:
    await Shower(channel).show("hello")
    assert scene.points == ["J17"]


# --- chats that move ----------------------------------------------------------------------------


async def test_a_group_that_moved_is_followed_at_once_and_remembered(telegram: FakeTelegram, scene: Scene) -> None:
    group = telegram.group()
    where = replace(DIRECT, chat=str(group))
    slot = Shower(TelegramChannel(scene.context(), QUICK), where)
    await slot.show("one")
    new = telegram.migrate(group)
    await Shower(slot.channel, where).show("two")
    assert texts(telegram, new) == ["two"]
    assert scene.notes.kept == {str(group): str(new)}
    asked = len(telegram.log)
    await Shower(TelegramChannel(scene.context(), QUICK), where).show("three")
    assert texts(telegram, new) == ["two", "three"]
    assert len(telegram.log) == asked + 1


async def test_a_move_that_cannot_be_kept_is_followed_all_the_same(
    telegram: FakeTelegram, channel: TelegramChannel, scene: Scene
) -> None:
    group = telegram.group()
    new = telegram.migrate(group)
    scene.notes.broken = True
    await Shower(channel, replace(DIRECT, chat=str(group))).show("hello")
    assert texts(telegram, new) == ["hello"]


async def test_a_group_that_moves_for_ever_is_dead(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    places = iter(range(-100, -200, -1))
    telegram.script(lambda _call: faults.error(400, "Bad Request: upgraded", migrate_to_chat_id=next(places)))
    assert (await Shower(channel, replace(DIRECT, chat="-55")).failing()).outcome is SendOutcome.DEAD


# --- typing and limits --------------------------------------------------------------------------


async def test_typing_is_shown_and_fails_by_no_fault(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    await channel.typing(DIRECT)
    assert telegram.chats.typing == [(ANN, None, "typing")]
    for fault in (faults.drop(), faults.broken(), faults.error(403, "Forbidden")):
        telegram.script(once("sendChatAction", fault))
        await channel.typing(DIRECT)


async def test_typing_tells_when_telegram_wants_nothing_in_a_chat(
    telegram: FakeTelegram, channel: TelegramChannel, scene: Scene
) -> None:
    telegram.ban(ANN, 7)
    with pytest.raises(SendFailed) as failed:
        await channel.typing(DIRECT)
    assert failed.value.outcome is SendOutcome.WAIT
    assert failed.value.scope == "telegram/main/1001"
    assert failed.value.until == scene.clock.now() + timedelta(seconds=7)


@pytest.mark.parametrize(
    ("limits", "chat", "wanted"),
    [
        ({}, "1001", [("telegram/main", 1 / 30, 10), ("telegram/main/1001", 1.0, 3)]),
        ({}, "-5", [("telegram/main", 1 / 30, 10), ("telegram/main/-5", 1.0, 3), ("telegram/main/-5/group", 3.0, 3)]),
        ({"overall_per_s": 1.0, "per_chat_per_s": 0}, "1001", [("telegram/main", 1.0, 3)]),
        ({"overall_per_s": 0, "per_chat_per_s": 0, "per_group_per_min": 0}, "-5", []),
    ],
)
async def test_the_limits_of_a_chat(
    scene: Scene, limits: dict[str, float], chat: str, wanted: Sequence[tuple[str, float, int]]
) -> None:
    scene.limits = limits
    channel = TelegramChannel(scene.context(), QUICK)
    for thread in ("", "7"):
        rate_limits = channel.rate_limits(replace(DIRECT, chat=chat, thread=thread))
        assert [(one.scope, pytest.approx(one.every_s), one.burst) for one in rate_limits] == list(wanted)
    assert channel.rate_limits(replace(DIRECT, account="gone")) == ()
