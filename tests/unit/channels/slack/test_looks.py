"""Lookup of an uncertain send with small pages: continued over several attempts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from channels.slack.adapter import SlackChannel, build
from channels.slack.showing import PAGE, PAGES
from gateway.domain.slots import RenderedSlot
from gateway.errors import SendFailed, SendOutcome
from tests.support.clock import FakeClock
from tests.support.slack import FakeSlack, faults
from tests.support.surroundings import refusing
from tests.unit.channels.slack.scene import Scene, showing
from tests.unit.channels.slack.test_adapter import ANN, CHAT, Kept, failed, unanswered


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.channel(CHAT, members=[ANN])
    return slack


def limited(slack: FakeSlack, method: str = "conversations.history") -> None:
    """From now on every second call of a method is refused for a second, as of an app that is given one a minute."""
    asked = itertools.count()
    slack.script(lambda call: faults.too_many(1) if call.method == method and next(asked) % 2 else None)


async def looked_through(channel: SlackChannel, clock: FakeClock, first: RenderedSlot, tries: int) -> tuple[str, ...]:
    """Try until it is shown: so often at most. Return what shows it."""
    again, outcomes = replace(first, slot=replace(first.slot, uncertain=True)), list[SendOutcome]()
    for _ in range(tries):
        try:
            return await channel.show(again, Kept())
        except SendFailed as error:
            outcomes.append(error.outcome)
            clock.advance(1.1)
    raise AssertionError(f"it is never shown: {outcomes}")


@pytest.mark.parametrize("acts", [True, False])
async def test_a_look_that_is_limited_goes_on_where_it_was(slack: FakeSlack, scene: Scene, acts: bool) -> None:
    clock = scene.clock = FakeClock()
    channel = build(scene.context())
    slack.script(unanswered("chat.postMessage") if acts else refusing("chat.postMessage", faults.drop(), 1))
    first = showing("Hello", CHAT)
    await failed(channel, first)
    for n in range(450):
        slack.say(ANN, f"hello {n}", channel=CHAT)
    limited(slack)
    ts = await looked_through(channel, clock, first, tries=3)
    assert [((message.ts,), message.text) for message in slack.shown(CHAT)] == [(ts, "Hello")]
    cursors = [call.parameters.get("cursor", "") for call in slack.calls("conversations.history") if call.ok]
    assert cursors == ["", "next:200", "next:400"]


async def test_endless_lookup_is_given_up_and_the_message_marked(slack: FakeSlack, scene: Scene) -> None:
    clock = scene.clock = FakeClock()
    channel = build(scene.context())
    slack.script(refusing("chat.postMessage", faults.drop(), 1))
    first = showing("Hello", CHAT)
    await failed(channel, first)
    for n in range(PAGES * PAGE + 1):
        slack.say(ANN, f"hello {n}", channel=CHAT)
    limited(slack)
    await looked_through(channel, clock, first, tries=PAGES)
    assert [message.text.startswith("(re-sent)") for message in slack.shown(CHAT)] == [True]


async def test_lookup_with_a_lost_cursor_is_given_up_and_marked(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(refusing("conversations.history", faults.error("invalid_cursor")))
    await channel.show(showing("Hello", CHAT, uncertain=True), Kept())
    assert slack.shown(CHAT)[0].text.startswith("(re-sent)")
