"""Posts against a Telegram on loopback: polls, reactions and pins as slots, and what Telegram refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from channels.telegram.adapter import TelegramChannel
from channels.telegram.ids import edit_key, message_key, message_of, press_key
from channels.telegram.parts import RESENT
from gateway.domain.messages import Conversation
from gateway.domain.posts import Post, PostAct
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.errors import SendFailed, SendOutcome
from tests.support.shown import slot as made_slot
from tests.support.telegram import FakeTelegram, faults
from tests.unit.channels.telegram.test_adapter import once

ANN, GROUP = 1001, -1003


async def no_parts(message_ids: tuple[str, ...]) -> None:
    """Take no notice of parts."""


async def shown(
    channel: TelegramChannel, act: PostAct, chat: int = ANN, *, text: str = "", uncertain: bool = False, **post: Any
) -> tuple[str, ...]:
    """Show a post in a slot of its own."""
    where = Conversation(channel="telegram", account="main", chat=str(chat))
    slot = made_slot(where, SlotKind.POST, n=None, text=text, message_ids=(), attempts=0, uncertain=uncertain)
    slot = replace(slot, post=Post(act=act, conversation=where, **post))
    return await channel.show(RenderedSlot(slot=slot, text=text), no_parts)


async def test_poll_reaction_and_pin_arrive(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    asked = telegram.say(ANN, "Ask the others.")
    (poll,) = await shown(channel, PostAct.POLL, text="Which\u202e day?", options=("Mon", "Tue\nWed"))
    await shown(channel, PostAct.REACT, message=str(asked.id), emoji="👍")
    await shown(channel, PostAct.PIN, message=poll)
    await shown(channel, PostAct.PIN, message=poll)  # as after a crash
    (made,) = telegram.shown(ANN)
    assert (str(made.id), made.text, made.pinned) == (poll, "Which day?", True)
    assert [one["text"] for one in made.payload["poll"]["options"]] == ["Mon", "Tue Wed"]
    assert telegram.chats.all[ANN].messages[asked.id].reaction == "👍"


async def test_a_poll_that_may_be_there_is_marked(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.script(once("sendPoll", faults.page(acts=True)))
    with pytest.raises(SendFailed) as caught:
        await shown(channel, PostAct.POLL, text="Which day?", options=("Mon", "Tue"))
    assert (caught.value.outcome, caught.value.creating) == (SendOutcome.UNCERTAIN, True)
    await shown(channel, PostAct.POLL, text="Which day?", options=("Mon", "Tue"), uncertain=True)
    assert [one.text for one in telegram.shown(ANN)] == ["Which day?", f"{RESENT} Which day?"]


REFUSED: list[tuple[PostAct, dict[str, Any], str]] = [
    (PostAct.REACT, {"message": "99", "emoji": "👍"}, "The message is gone"),
    (PostAct.REACT, {"message": "1", "emoji": "🦖"}, "does not take that reaction"),
    (PostAct.PIN, {"message": "1"}, "may not pin"),
    (PostAct.PIN, {"message": ""}, "was never shown there"),
    (PostAct.POLL, {"options": ("Mon",)}, "at least 2"),
]


@pytest.mark.parametrize(("act", "post", "why"), REFUSED)
async def test_a_refused_post_is_given_up_with_its_reason(
    telegram: FakeTelegram, channel: TelegramChannel, act: PostAct, post: dict[str, Any], why: str
) -> None:
    telegram.group("Kitchen", chat=GROUP)
    telegram.say(ANN, "hello", chat=GROUP)
    with pytest.raises(SendFailed, match=why) as caught:
        await shown(channel, act, GROUP, text="Which day?", **post)
    assert caught.value.outcome is SendOutcome.DEAD


async def test_a_poll_in_a_chat_that_was_left_is_dead(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    telegram.group("Kitchen", chat=GROUP)
    telegram.chats.all[GROUP].refused = "Forbidden: bot was kicked from the supergroup chat"
    with pytest.raises(SendFailed, match="was removed from this chat") as caught:
        await shown(channel, PostAct.POLL, GROUP, text="Which day?", options=("Mon", "Tue"))
    assert caught.value.outcome is SendOutcome.DEAD


@pytest.mark.parametrize(
    ("key", "message"),
    [(message_key(-1003, 7), "7"), (edit_key(1001, 7, 5, "x"), "7"), (press_key("7"), ""), ("m7", ""), ("", "")],
)
def test_an_event_key_tells_its_message(key: str, message: str) -> None:
    assert message_of(key) == message
