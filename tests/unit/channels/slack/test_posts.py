"""Posts against a Slack on loopback: reactions and pins as slots, and what Slack refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from channels.slack.adapter import SlackChannel
from channels.slack.ids import command_key, edit_key, message_key, message_of
from channels.slack.manifest import SCOPES
from gateway.domain.posts import Post, PostAct
from gateway.domain.slots import SlotKind
from gateway.errors import SendFailed, SendOutcome
from tests.support.slack import FakeSlack
from tests.unit.channels.slack.scene import showing

ANN, CHAT = "U0ANN", "C0CC"


async def no_parts(message_ids: tuple[str, ...]) -> None:
    """Take no notice of parts."""


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.channel(CHAT, members=[ANN])
    return slack


async def shown(channel: SlackChannel, act: PostAct, **post: Any) -> tuple[str, ...]:
    """Show a post in a slot of its own."""
    made = showing("", CHAT)
    about = Post(act=act, conversation=made.slot.conversation, **post)
    slot = replace(made.slot, kind=SlotKind.POST, post=about)
    return await channel.show(replace(made, slot=slot), no_parts)


async def test_reaction_and_pin_arrive_once(slack: FakeSlack, channel: SlackChannel) -> None:
    asked = slack.say(ANN, "hello", channel=CHAT)
    for _ in range(2):  # the second time as after a crash
        assert await shown(channel, PostAct.REACT, message=asked.ts, emoji="thumbsup") == (asked.ts,)
        assert await shown(channel, PostAct.PIN, message=asked.ts) == (asked.ts,)
    assert slack.world.bot in asked.reactions["thumbsup"]
    assert asked.pinned
    assert {"pins:write", "reactions:write"} <= set(SCOPES)


@pytest.mark.parametrize(
    ("act", "post", "why"),
    [
        (PostAct.REACT, {"message": "1795248720.000100", "emoji": "eyes"}, "The message is gone"),
        (PostAct.REACT, {"message": "", "emoji": "eyes"}, "was never shown there"),
        (PostAct.PIN, {"message": "1795248720.000100"}, "The message is gone"),
    ],
)
async def test_a_refused_post_is_given_up_with_its_reason(
    channel: SlackChannel, act: PostAct, post: dict[str, Any], why: str
) -> None:
    with pytest.raises(SendFailed, match=why) as caught:
        await shown(channel, act, **post)
    assert caught.value.outcome is SendOutcome.DEAD


TS = "1795248720.000100"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (message_key("T0AA", CHAT, TS), TS),
        (edit_key("T0AA", CHAT, TS, "1795248721.000200"), TS),
        (command_key("T0AA", CHAT, "1.2.3"), ""),
        ("", ""),
    ],
)
def test_an_event_key_tells_its_message(key: str, message: str) -> None:
    assert message_of(key) == message
