"""Sending against a Slack on loopback: shown messages, failed sends, lookups of uncertain sends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from channels.slack.adapter import STREAMED_BURST, SlackChannel, build
from channels.slack.send_state import FIRST_S, LONGEST_S
from gateway.domain.ids import SlotId
from gateway.domain.messages import Conversation
from gateway.domain.slots import RateLimit, RenderedSlot, SlotKind
from gateway.errors import SendFailed, SendOutcome
from gateway.ports import Auth
from tests.support.clock import FakeClock
from tests.support.slack import Call, FakeSlack, Fault, faults
from tests.support.surroundings import refusing, until
from tests.unit.channels.slack.scene import Scene, showing

ANN = "U0ANN"
CHAT = "C0CC"
LONG = "A long answer.\n\n" * 3000


@dataclass(slots=True)
class Kept:
    """`ports.Progress`: what was told of, in order."""

    told: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    async def __call__(self, message_ids: tuple[str, ...]) -> None:
        self.told.append(message_ids)


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.channel(CHAT, members=[ANN])
    return slack


async def failed(channel: SlackChannel, shown: RenderedSlot) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await channel.show(shown, Kept())
    return caught.value


def after(shown: RenderedSlot, message_ids: tuple[str, ...], text: str, **slot: Any) -> RenderedSlot:
    """The same slot, later."""
    return replace(shown, text=text, slot=replace(shown.slot, message_ids=message_ids, version=2, **slot))


# --- what people see ----------------------------------------------------------------------------


async def test_an_answer_is_one_message_that_says_which_slot_it_is(slack: FakeSlack, channel: SlackChannel) -> None:
    ts = await channel.show(showing("**Hello** Ann", CHAT), Kept())
    shown = slack.shown(CHAT)
    assert [((message.ts,), message.thread) for message in shown] == [(ts, "")]
    assert "Hello" in shown[0].text
    assert shown[0].metadata == {"event_type": "dragoman_slot", "event_payload": {"slot": "o1.1", "part": 0}}


async def test_a_thread_is_always_kept(slack: FakeSlack, channel: SlackChannel) -> None:
    root = slack.say(ANN, "look here", channel=CHAT)
    where = showing(LONG, CHAT, thread=root.ts)
    await channel.show(where, Kept())
    assert {message.thread for message in slack.shown(CHAT)} == {root.ts}
    assert len(slack.uploads(CHAT)) == 1


async def test_edit_changes_the_message_and_an_equal_one_asks_nothing(slack: FakeSlack, channel: SlackChannel) -> None:
    first = showing("one", CHAT)
    ts = await channel.show(first, Kept())
    second = after(first, ts, "two")
    assert await channel.show(second, Kept()) == ts
    assert await channel.show(second, Kept()) == ts
    assert [message.text for message in slack.shown(CHAT)] == ["two"]
    assert slack.shown(CHAT)[0].metadata is not None
    assert len(slack.calls("chat.update")) == 1


async def test_repeated_version_replaces_a_late_edit(slack: FakeSlack, scene: Scene) -> None:
    """Though this channel showed it last, for all that it knows; its file is left as it is."""
    channel, late = build(scene.context()), build(scene.context())
    first = showing(LONG, CHAT)
    shown = await channel.show(first, Kept())
    before = [message.text for message in slack.shown(CHAT)]
    await late.show(after(first, shown[:1], "late"), Kept())
    again = replace(first.slot, message_ids=shown, version=3, sent_version=2, once_more=True)
    assert await channel.show(replace(first, slot=again), Kept()) == shown
    assert [message.text for message in slack.shown(CHAT)] == before
    assert len(slack.uploads(CHAT)) == 1


async def test_a_long_answer_is_a_beginning_and_a_file(slack: FakeSlack, channel: SlackChannel) -> None:
    kept = Kept()
    shown = await channel.show(showing(LONG, CHAT), kept)
    _, file = shown
    assert kept.told == [shown[:1]]
    assert slack.uploads(CHAT)[0].id == file
    assert slack.uploads(CHAT)[0].content == LONG.encode()
    assert "in the file below" in slack.shown(CHAT)[0].text


async def test_growing_answer_continues_its_message(slack: FakeSlack, channel: SlackChannel) -> None:
    first = showing("A long", CHAT)
    ts = await channel.show(first, Kept())
    shown = await channel.show(after(first, ts, LONG), Kept())
    assert shown[:1] == ts
    short = after(first, shown, "Short.")
    assert await channel.show(short, Kept()) == ts
    assert [message.text for message in slack.shown(CHAT)] == ["Short."]


async def test_a_message_that_is_gone_is_shown_again(slack: FakeSlack, channel: SlackChannel) -> None:
    first = showing("one", CHAT)
    ts = await channel.show(first, Kept())
    slack.shown(CHAT)[0].deleted = True
    shown = await channel.show(after(first, ts, "two"), Kept())
    assert shown != ts
    assert [message.text for message in slack.shown(CHAT)] == ["two"]


async def test_blocks_that_are_refused_go_as_text(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(refusing("chat.postMessage", faults.error("invalid_blocks"), 1))
    await channel.show(showing("Hello", CHAT), Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["Hello"]
    assert slack.calls("chat.postMessage")[1].parameters.get("blocks") == []


async def test_two_workspaces_have_each_their_own(slack: FakeSlack, scene: Scene) -> None:
    other = slack.another_workspace("T0BB")
    other.channel(CHAT, members=["U0BEA"])
    scene.workspaces["other"] = other
    channel = build(scene.context())
    await channel.show(showing("to main", CHAT), Kept())
    await channel.show(showing("to other", CHAT, account="other"), Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["to main"]
    assert [message.text for message in other.shown(CHAT)] == ["to other"]


# --- beginnings ---------------------------------------------------------------------------------


async def test_a_beginning_grows_by_edits(slack: FakeSlack, channel: SlackChannel) -> None:
    first = showing("one", CHAT)
    ts = await channel.show(first, Kept())
    growing = replace(after(first, ts, "one two"), partial=True)
    assert await channel.show(growing, Kept()) == ts
    assert "one two" in slack.shown(CHAT)[0].text


async def test_a_beginning_makes_no_message(slack: FakeSlack, channel: SlackChannel) -> None:
    error = await failed(channel, showing("one", CHAT, partial=True))
    assert (error.outcome, error.creating) == (SendOutcome.DEAD, False)
    assert slack.shown(CHAT) == []


async def test_beginnings_leave_room_in_the_tier_of_edits(slack: FakeSlack, scene: Scene) -> None:
    clock = scene.clock = FakeClock()
    channel = build(scene.context())
    first = showing("0", CHAT)
    ts = await channel.show(first, Kept())
    for n in range(STREAMED_BURST + 10):
        await channel.show(replace(after(first, ts, f"word {n}"), partial=True), Kept())
    assert len(slack.calls("chat.update")) == STREAMED_BURST
    await channel.show(after(first, ts, "the end"), Kept())
    assert slack.shown(CHAT)[0].text == "the end"
    clock.advance(1.6)
    await channel.show(replace(after(first, ts, "more"), partial=True), Kept())
    assert "more" in slack.shown(CHAT)[0].text


# --- doubts -------------------------------------------------------------------------------------


def unanswered(method: str, times: int = 1) -> Any:
    """A script: these calls act, and nobody hears of it."""
    return refusing(method, Fault(acts=True, closes=True), times)


async def test_unanswered_message_is_found_and_not_sent_again(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(unanswered("chat.postMessage"))
    first = showing("Hello", CHAT)
    error = await failed(channel, first)
    assert (error.outcome, error.creating) == (SendOutcome.UNCERTAIN, True)
    again = replace(first, slot=replace(first.slot, uncertain=True))
    ts = await channel.show(again, Kept())
    assert [((message.ts,), message.text) for message in slack.shown(CHAT)] == [(ts, "Hello")]
    assert len(slack.calls("chat.postMessage")) == 1


async def test_found_message_is_edited_to_the_current_text(slack: FakeSlack, channel: SlackChannel) -> None:
    root = slack.say(ANN, "look here", channel=CHAT)
    slack.script(unanswered("chat.postMessage"))
    first = showing("Hel", CHAT, thread=root.ts)
    await failed(channel, first)
    later = replace(first, text="Hello you", slot=replace(first.slot, uncertain=True, version=2))
    await channel.show(later, Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["Hello you"]


async def test_message_that_never_arrived_is_sent_without_a_mark(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(refusing("chat.postMessage", faults.drop(), 1))
    first = showing("Hello", CHAT)
    assert (await failed(channel, first)).outcome is SendOutcome.UNCERTAIN
    again = replace(first, slot=replace(first.slot, uncertain=True))
    await channel.show(again, Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["Hello"]


async def test_second_doubt_waits_where_it_can_be_looked_up(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(unanswered("chat.postMessage", 2))
    first = showing("Hello", CHAT, uncertain=True)
    assert (await failed(channel, first)).outcome is SendOutcome.WAIT
    await channel.show(first, Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["Hello"]


OUTAGE = 10
"""More tries than any slot has."""
DOWN = [faults.broken(503), faults.page(), faults.drop()]


def waits_s(scene: Scene, outage: list[SendFailed]) -> list[float]:
    """Return the wait after each failure. All of them are waits of the channel, and none is a create in doubt."""
    assert {(error.outcome, error.scope) for error in outage} == {(SendOutcome.WAIT, f"slack/main/{CHAT}")}
    assert not any(error.creating for error in outage)
    now = scene.clock.now()
    return [(error.until - now).total_seconds() for error in outage if error.until is not None]


@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("method", ["conversations.history", "chat.postMessage"])
async def test_message_in_doubt_outlives_any_outage(slack: FakeSlack, scene: Scene, fault: Fault, method: str) -> None:
    scene.clock = FakeClock()
    channel = build(scene.context())
    slack.script(refusing(method, fault, OUTAGE))
    first = showing("Hello", CHAT, uncertain=True)
    waits = waits_s(scene, [await failed(channel, first) for _ in range(OUTAGE)])
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (FIRST_S, LONGEST_S)
    await channel.show(first, Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["Hello"]


@pytest.mark.parametrize("fault", DOWN)
async def test_an_edit_outlives_any_outage_and_may_be_made_late(slack: FakeSlack, scene: Scene, fault: Fault) -> None:
    scene.clock = FakeClock()
    channel = build(scene.context())
    first = showing("one", CHAT)
    later = after(first, await channel.show(first, Kept()), "two")
    slack.script(refusing("chat.update", fault, OUTAGE))
    outage = [await failed(channel, later) for _ in range(OUTAGE)]
    assert waits_s(scene, outage)[0] == FIRST_S
    assert all(error.unsettled for error in outage)
    await channel.show(later, Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["two"]


async def test_the_bytes_of_a_file_outlive_any_outage(slack: FakeSlack, scene: Scene) -> None:
    scene.clock = FakeClock()
    channel, kept = build(scene.context()), Kept()
    first = showing(LONG, CHAT)
    slack.script(refusing("files.getUploadURLExternal", faults.broken(503), OUTAGE))
    with pytest.raises(SendFailed) as caught:
        await channel.show(first, kept)
    later = after(first, kept.told[-1], LONG)
    waits_s(scene, [caught.value, *[await failed(channel, later) for _ in range(OUTAGE - 1)]])
    await channel.show(later, kept)
    assert len(slack.uploads(CHAT)) == 1


async def test_unverifiable_message_is_marked(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.world.scopes -= {"channels:history"}
    await channel.show(showing("Hello", CHAT, uncertain=True), Kept())
    assert slack.shown(CHAT)[0].text.startswith("(re-sent)")


@pytest.mark.parametrize("fault", [faults.drop(), faults.broken(), faults.page(), faults.too_many(7)])
async def test_nothing_is_sent_while_slack_does_not_say(slack: FakeSlack, channel: SlackChannel, fault: Fault) -> None:
    slack.script(refusing("conversations.history", fault))
    error = await failed(channel, showing("Hello", CHAT, uncertain=True))
    assert error.outcome is SendOutcome.WAIT
    assert not error.creating
    assert slack.calls("chat.postMessage") == []


async def test_a_file_in_doubt_is_looked_up_too(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(unanswered("files.completeUploadExternal"))
    first, kept = showing(LONG, CHAT), Kept()
    with pytest.raises(SendFailed) as caught:
        await channel.show(first, kept)
    assert (caught.value.outcome, caught.value.creating) == (SendOutcome.UNCERTAIN, True)
    again = replace(first, slot=replace(first.slot, uncertain=True, message_ids=kept.told[-1]))
    shown = await channel.show(again, kept)
    assert shown == (*kept.told[-1], slack.uploads(CHAT)[0].id)
    assert len(slack.uploads(CHAT)) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("other", ["B", "A"])
async def test_file_in_doubt_is_not_confused_with_a_similar_one(
    slack: FakeSlack, scene: Scene, restarted: bool, other: str
) -> None:
    """Not even for one that says the same: each answer has its own."""
    channel, kept = build(scene.context()), Kept()
    before = await channel.show(showing("A" * 60_000, CHAT), Kept())
    slack.script(refusing("files.completeUploadExternal", faults.drop(), 1))
    second = showing(other * 60_000, CHAT, id=SlotId("o1.2"))
    with pytest.raises(SendFailed):
        await channel.show(second, kept)
    again = replace(second, slot=replace(second.slot, uncertain=True, message_ids=kept.told[-1]))
    channel = build(scene.context()) if restarted else channel
    shown = await channel.show(again, kept)
    stand = [file for message in slack.shown(CHAT) for file in message.files]
    assert [file.id for file in stand] == [before[1], shown[1]]
    assert [(file.content or b"")[:1].decode() for file in stand] == ["A", other]
    assert slack.calls("chat.delete") == []


async def test_many_messages_are_looked_through(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(unanswered("chat.postMessage"))
    first = showing("Hello", CHAT)
    await failed(channel, first)
    for n in range(450):
        slack.say(ANN, f"hello {n}", channel=CHAT)
    await channel.show(replace(first, slot=replace(first.slot, uncertain=True)), Kept())
    assert len(slack.shown(CHAT)) == 1
    assert len(slack.calls("conversations.history")) == 3


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "outcome", "creating"),
    [
        (faults.drop(), SendOutcome.UNCERTAIN, True),
        (faults.broken(500), SendOutcome.UNCERTAIN, True),
        (faults.broken(200, acts=True), SendOutcome.UNCERTAIN, True),
        (faults.page(502, acts=True), SendOutcome.UNCERTAIN, True),
        (Fault(tears=True), SendOutcome.UNCERTAIN, True),
        (faults.too_many(7), SendOutcome.WAIT, False),
        (faults.error("not_in_channel"), SendOutcome.DEAD, False),
        (faults.error("is_archived"), SendOutcome.DEAD, False),
        (faults.error("invalid_auth"), SendOutcome.WAIT, False),
        (faults.error("missing_scope", needed="chat:write"), SendOutcome.WAIT, False),
    ],
)
async def test_a_failed_send_says_what_is_known(
    slack: FakeSlack, channel: SlackChannel, fault: Fault, outcome: SendOutcome, creating: bool
) -> None:
    slack.script(refusing("chat.postMessage", fault))
    error = await failed(channel, showing("Hello", CHAT))
    assert (error.outcome, error.creating) == (outcome, creating)
    assert slack.bot_token not in str(error)


async def test_nobody_there_is_waited_for(slack: FakeSlack, scene: Scene) -> None:
    slack.hub.port = 9
    channel = build(scene.context())
    error = await failed(channel, showing("Hello", CHAT))
    assert (error.outcome, error.scope) == (SendOutcome.WAIT, "slack/main")


async def test_a_wait_says_where_and_until_when(slack: FakeSlack, scene: Scene, channel: SlackChannel) -> None:
    slack.script(refusing("chat.postMessage", faults.too_many(7)))
    error = await failed(channel, showing("Hello", CHAT))
    assert error.scope == f"slack/main/{CHAT}"
    assert error.until is not None
    assert 5 < (error.until - scene.clock.now()).total_seconds() <= 7


@pytest.mark.parametrize("error", ["rate_limited", "message_limit_exceeded", "team_added_to_org"])
async def test_a_wait_of_which_nothing_is_told_is_no_short_one(slack: FakeSlack, scene: Scene, error: str) -> None:
    scene.clock = FakeClock()
    slack.script(refusing("chat.postMessage", faults.error(error)))
    found = await failed(build(scene.context()), showing("Hello", CHAT))
    assert found.until is not None
    assert (found.outcome, (found.until - scene.clock.now()).total_seconds()) == (SendOutcome.WAIT, 30)


async def test_refused_token_is_trouble_until_a_message_is_sent(
    slack: FakeSlack, scene: Scene, channel: SlackChannel
) -> None:
    task = asyncio.create_task(channel.run(scene.sink), name="channel")
    await until(lambda: channel.trouble() == "")
    slack.script(refusing("chat.postMessage", faults.error("token_revoked"), 1))
    await failed(channel, showing("Hello", CHAT))
    assert "bot_token (token_revoked)" in channel.trouble()
    assert scene.host.alerts[0][0] == "slack/main/token"
    await channel.show(showing("Hello", CHAT), Kept())
    assert channel.trouble() == ""
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    "where",
    [
        Conversation(channel="slack", account="nobody", chat=CHAT),
        Conversation(channel="slack", account="main", chat="#general"),
        Conversation(channel="slack", account="main", chat="U0ANN"),
        Conversation(channel="slack", account="main", chat=CHAT, thread="soon"),
    ],
)
async def test_a_place_that_slack_cannot_have_is_dead(
    slack: FakeSlack, channel: SlackChannel, where: Conversation
) -> None:
    good = showing("Hello", CHAT)
    error = await failed(channel, replace(good, slot=replace(good.slot, conversation=where)))
    assert error.outcome is SendOutcome.DEAD
    assert slack.log == []
    await channel.typing(where)
    assert slack.log == []


# --- the rest of the port -----------------------------------------------------------------------


def test_paces_are_those_of_the_workspace_and_of_the_channel(channel: SlackChannel) -> None:
    here = channel.rate_limits(Conversation(channel="slack", account="main", chat=CHAT, thread="1.2"))
    assert here == [
        RateLimit(scope="slack/main", every_s=0.2, burst=10),
        RateLimit(scope=f"slack/main/{CHAT}", every_s=1.0, burst=3, spaces_edits=True),
    ]
    assert channel.rate_limits(Conversation(channel="slack", account="nobody", chat=CHAT)) == ()


def test_a_limit_of_zero_is_none(scene: Scene) -> None:
    scene.limits = {"per_channel_per_s": 0, "overall_per_min": 0}
    assert build(scene.context()).rate_limits(Conversation(channel="slack", account="main", chat=CHAT)) == []


def test_endpoints_are_signed_and_only_for_http(scene: Scene) -> None:
    assert build(scene.context()).endpoints() == []
    scene.mode = "http"
    found = build(scene.context()).endpoints()
    assert [(one.method, one.path, one.auth) for one in found] == [("POST", "/slack/main", Auth.SIGNED)]


async def test_typing_is_a_status_in_direct_threads_alone(slack: FakeSlack, scene: Scene) -> None:
    channel = build(scene.context())
    task = asyncio.create_task(channel.run(scene.sink), name="channel")
    await until(lambda: channel.trouble() == "")
    root = slack.say(ANN, "hello")
    panel = Conversation(channel="slack", account="main", chat=root.channel, thread=root.ts)
    for _ in range(3):
        await channel.typing(panel)
    assert len(slack.statuses(root.channel, root.ts)) == 1
    await channel.show(showing("Hello", root.channel, thread=root.ts), Kept())
    await channel.typing(panel)
    assert len([status for status in slack.statuses(root.channel, root.ts) if status]) == 2
    await channel.typing(replace(panel, thread=""))
    await channel.typing(Conversation(channel="slack", account="main", chat=CHAT, thread="1795248720.000100"))
    assert len(slack.calls("assistant.threads.setStatus")) == 2
    task.cancel()
    await asyncio.wait([task])


async def test_a_status_line_is_one_message(slack: FakeSlack, channel: SlackChannel) -> None:
    await channel.show(showing("⏳ shell: df -h", CHAT, kind=SlotKind.STATUS), Kept())
    assert [message.text for message in slack.shown(CHAT)] == ["⏳ shell: df -h"]


async def test_a_channel_that_streams_says_so(channel: SlackChannel) -> None:
    assert channel.streams
    assert "not connected yet" in channel.trouble()


async def test_unanswered_create_passes_j17(slack: FakeSlack, scene: Scene) -> None:
    calls: list[Call] = []
    slack.script(lambda call: calls.append(call))
    await build(scene.context()).show(showing("Hello", CHAT), Kept())
    assert scene.points == ["J17"]
