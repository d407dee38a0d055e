"""F14 on Slack: 429 by method and channel, bans that outlive a death, and how often a growing answer is edited."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fault.rig import everything
from tests.fault.slack_rig import (
    ANN,
    BOB,
    EVE,
    JOE,
    KITCHEN,
    TO_ANN,
    TO_BOB,
    TO_JOE,
    Wire,
    calls_in_bans,
    direct,
    judge_places,
    wire,
)
from tests.fault.telegram_rig import slots_of
from tests.support.model_server import Reply, Rule
from tests.support.proof import KILLS, LOST, TWICE, counted, dice, figure
from tests.support.slack import Call, FakeSlack, Fault, Shown, faults
from tests.support.surroundings import refusing

OTHERS_WITHIN_S = 2.0
BAN_S = 6
LOOKUP_BAN_S = 4
METHODS_BAN_S = 10
LOOKUP, UPLOAD = "users.info", "files.getUploadURLExternal"
CAT = "U0CAT"
CROWD = [f"U0C{n:02}" for n in range(32)]
IN_THREADS = 4
REFUSED_SHARE = 0.2
EDIT_EVERY_S = 1.0
JITTER_S = 0.1
"""By so much two calls may come nearer to each other on their way."""
STORY = " ".join(f"On day {n} the dragoman walked on." for n in range(1, 61))
LONG = " ".join(f"Word number {n} of all that there is to say." for n in range(1, 801))
"""Too long for messages: it goes as a file."""
TOLD_SLOWLY = [Rule(text="story", reply=Reply(text=STORY, chunks=48, delay_s=0.1))]
UNKNOWN = [f"There is no command `/{name}`. `/help` lists them." for name in ("xyzzy", "plugh")]


async def answered_in(one: Wire, who: str, text: str) -> float:
    """Say something; return the seconds until it was answered."""
    began = time.monotonic()
    one.slack.say(who, text)
    await one.slack.see(direct(who), f"You said: {text}")
    return time.monotonic() - began


async def refused(slack: FakeSlack, method: str, channel: str = "") -> Call:
    """Wait until a method was refused for now; return the first such call."""

    def found() -> list[Call]:
        return [call for call in slack.calls(method, channel) if call.status == 429]

    await slack.until(lambda: bool(found()))
    return found()[0]


async def judged(one: Wire) -> None:
    """The daemon stops in peace; everything was shown, once, and nothing was sent into a ban."""
    await one.settled(40)
    assert await one.daemon.stop() == 0
    early, refused = calls_in_bans(one.slack.log), [call for call in one.slack.log if call.status == 429]
    figure("F14", "bans, known to it, into which something was sent", len(early), 0, of=len(refused))
    slots = slots_of(await everything(one.daemon.state), "slack")
    figure("F14", "shown twice, of messages", len(judge_places(one.rig.workspaces, slots)), 0, of=len(slots))


async def test_a_banned_channel_delays_no_other_and_is_not_forgotten(tmp_path: Path) -> None:
    """One conversation is refused for a time; the daemon dies in it. Nothing is tried there before the time is up."""
    async with wire(tmp_path) as one:
        slack = one.slack
        await one.start()
        slack.ban(BAN_S, method="chat.postMessage", channel=TO_ANN)
        slack.say(ANN, "hello")
        ban = await refused(slack, "chat.postMessage", TO_ANN)
        delays = [await answered_in(one, JOE, "one"), await answered_in(one, BOB, "two")]
        await one.kill()
        await one.start()
        delays.append(await answered_in(one, JOE, "three"))
        await slack.see(TO_ANN, "You said: hello")
        opened_s = next(call.at_s for call in slack.calls("chat.postMessage", TO_ANN) if call.ok) - ban.answered_s
        counted(KILLS, 1, "F14")
        figure("F14", "slowest answer in other chats during a ban", max(delays), OTHERS_WITHIN_S, "s")
        figure("F14", "first call after a ban of 6 s and a restart in it", opened_s, BAN_S - 0.3, "s", least=True)
        figure("F14", "calls into the first ban, besides the one that met it", len(slack.during_ban) - 1, 0)
        await judged(one)


@pytest.mark.whole("waits for seconds; the banned channel stays")
async def test_banned_lookup_delays_only_the_message_in_doubt(tmp_path: Path) -> None:
    """Slack limits how often it can be asked what stands in a conversation: that is no ban on writing in another."""
    async with wire(tmp_path) as one:
        slack = one.slack
        await one.start("J17:kill")
        slack.say(ANN, "hello")
        await one.killed()
        slack.script(banning(slack, LOOKUP_BAN_S, "conversations.history"))
        await one.start()
        ban = await refused(slack, "conversations.history")
        delays = [await answered_in(one, JOE, "one"), await answered_in(one, BOB, "two")]
        early = [call for call in slack.during_ban if call is not ban]
        counted(KILLS, 1, "F14")
        figure("F14", "slowest answer elsewhere while Slack may not be asked", max(delays), OTHERS_WITHIN_S, "s")
        figure("F14", "calls into a ban on asking Slack, besides the one that met it", len(early), 0)
        await judged(one)
        assert [message.text for message in slack.shown(TO_ANN)] == ["You said: hello"]


@pytest.mark.whole("waits for seconds; the banned channel stays")
async def test_banned_methods_are_not_forgotten(tmp_path: Path) -> None:
    """Slack wants neither to be asked who somebody is nor to be given files for a time, and the daemon dies in it.
    No conversation makes it call either before the time is up; then all that waited is done.
    """
    async with wire(tmp_path, friends=(BOB, CAT), rules=[Rule(text="everything", reply=Reply(text=LONG))]) as one:
        slack = one.slack
        slack.script(banning(slack, METHODS_BAN_S, LOOKUP, UPLOAD))
        await one.start()
        slack.say(ANN, "tell me everything")
        bans = [await refused(slack, method) for method in (LOOKUP, UPLOAD)]
        await answered_in(one, JOE, "hello")  # it was told by then
        await one.kill()
        await one.start()
        slack.say(JOE, "everything for me, too")  # no ban of this conversation keeps it from the file
        slack.mention(BOB, "who am I?", channel=KITCHEN)
        await slack.see(TO_JOE, "in the file below")
        await slack.heard()
        left_s = min(ban.answered_s for ban in bans) + METHODS_BAN_S - time.monotonic()
        await slack.until(lambda: len([call for call in slack.calls(UPLOAD) if call.ok]) == 2, 20)
        slack.mention(CAT, "and who am I?", channel=KITCHEN)
        await slack.see(KITCHEN, 'from "cat"')  # what only `users.info` tells
        again_s = [next(call for call in slack.calls(ban.method) if call.ok).at_s - ban.answered_s for ban in bans]
        early = [call for call in slack.during_ban if call not in bans]
        counted(KILLS, 1, "F14")
        figure("F14", "left of the bans of methods when a second life needed both", left_s, 1.0, "s", least=True)
        figure("F14", "calls of banned methods, besides those that met a ban, in two lives", len(early), 0)
        what = f"first calls of methods after their bans of {METHODS_BAN_S} s and a restart in them"
        figure("F14", what, min(again_s), METHODS_BAN_S - 0.3, "s", least=True)
        await judged(one)
        assert {file.title for file in slack.world.files.values()} == {"answer.md"}
        assert len(slack.world.files) == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", [faults.broken(), faults.too_many(1), faults.drop()], ids=["500", "429", "cut"])
async def test_colleagues_question_survives_a_failed_lookup(tmp_path: Path, fault: Fault) -> None:
    """In a channel that was allowed: nobody names the colleague, so that they are a stranger unless Slack says more."""
    async with wire(tmp_path) as one:
        slack = one.slack
        slack.person(EVE, "eve")
        slack.channel(KITCHEN, "kitchen", members=[ANN, EVE])
        await one.start()
        slack.script(refusing(LOOKUP, fault, 1))
        slack.mention(EVE, "what is for lunch?", channel=KITCHEN)
        await slack.see(KITCHEN, "You said: ")
        await judged(one)


def banning(slack: FakeSlack, seconds: int, *methods: str) -> Callable[[Call], Fault | None]:
    """Ban methods everywhere, each from its first call on, however late that comes."""
    left = set(methods)

    def script(call: Call) -> Fault | None:
        if call.method not in left:
            return None
        left.remove(call.method)
        slack.ban(seconds, method=call.method)
        return faults.too_many(seconds)

    return script


def refuse_some(slack: FakeSlack, chance: random.Random) -> Callable[[Call], Fault | None]:
    """Ban a method in a fifth of the conversations that are written to, at each message, for a second or two."""

    def script(call: Call) -> Fault | None:
        if call.method not in ("chat.postMessage", "chat.update") or chance.random() > REFUSED_SHARE:
            return None
        seconds = chance.randint(1, 2)
        slack.ban(seconds, method=call.method, channel=call.channel)
        return faults.too_many(seconds)

    return script


async def test_a_fifth_of_a_hundred_messages_is_refused(tmp_path: Path) -> None:
    """Nothing is sent into a ban, nothing is lost or doubled, each conversation keeps its order."""
    async with wire(tmp_path, friends=CROWD, limits="overall_per_min = 0") as one:
        slack = one.slack
        await one.start()
        slack.script(refuse_some(slack, dice("F14 Slack")))
        texts = [f"hello {who}" for who in CROWD]
        for who, text in zip(CROWD, texts, strict=True):
            for said in (text, "@dragoman /xyzzy", "@dragoman /plugh"):
                slack.say(who, said)
        threads = [slack.mention(who, f"and here, {who}?", channel=KITCHEN) for who in CROWD[:IN_THREADS]]
        await one.settled(50)
        await judged(one)
        said = 3 * len(CROWD) + IN_THREADS
        told = Counter((who, message.text) for who in CROWD for message in slack.shown(direct(who)))
        told += Counter((root.ts, "") for root in threads for _ in slack.shown(KITCHEN, root.ts))
        wanted = Counter((root.ts, "") for root in threads)
        for who, text in zip(CROWD, texts, strict=True):
            wanted.update((who, answer) for answer in (f"You said: {text}", *UNKNOWN))
        figure("F14", LOST, (wanted - told).total(), 0, of=said)
        figure("F14", TWICE, (told - wanted).total(), 0, of=said)
        bans = [call for call in slack.log if call.status == 429]
        assert len(bans) >= said * REFUSED_SHARE / 2


@pytest.mark.by_the_clock
@pytest.mark.whole("eight seconds by the clock; the fifth of a hundred that is refused stays")
async def test_growing_answers_are_edited_once_a_second_a_channel(tmp_path: Path) -> None:
    """Three answers grow in the threads of one channel and three elsewhere, within Slack's tiers for the workspace."""
    async with wire(tmp_path, rules=TOLD_SLOWLY, limits="") as one:
        slack = one.slack
        slack.hub.pace.tiers = 1.0
        await one.start()
        for n in range(3):
            slack.mention(BOB, f"a story, the {n}th", channel=KITCHEN)
        for who in (ANN, JOE, BOB):
            slack.say(who, "a story")
        places = (KITCHEN, TO_ANN, TO_JOE, TO_BOB)

        def told() -> list[Shown]:
            return [message for place in places for message in slack.shown(place) if message.text == STORY]

        await slack.until(lambda: len(told()) == 6, 30)
        edits = {place: [call.at_s for call in slack.calls("chat.update", place) if call.ok] for place in places}
        gaps = [later - earlier for place in places for earlier, later in pairwise(streamed(slack, place))]
        busiest = {place: most_within(times, 5.0) for place, times in edits.items()}
        what = "between two edits of a channel while answers are written there"
        figure("F14", what, min(gaps), EDIT_EVERY_S - JITTER_S, "s", least=True)
        last = [later - earlier for times in by_message(slack, places).values() for earlier, later in pairwise(times)]
        what = "between two edits of a message, its last words among them"
        figure("F14", what, min(last), EDIT_EVERY_S - JITTER_S, "s", least=True)
        what = "edits in the busiest 5 s of a channel, the last words of three answers among them"
        figure("F14", what, max(busiest.values()), 5 + 3)
        over = len(slack.hub.pace.over)
        figure("F14", "edits beyond Slack's tiers for a workspace", over, 0, of=sum(map(len, edits.values())))
        assert all(times for times in edits.values())
        await judged(one)


def streamed(slack: FakeSlack, channel: str) -> list[float]:
    """When the answers of a channel grew: all edits but their last words."""
    last = {call.parameters["ts"]: call for call in slack.calls("chat.update", channel) if call.ok}
    every = [call for call in slack.calls("chat.update", channel) if call.ok]
    return [call.at_s for call in every if last[call.parameters["ts"]] is not call]


def by_message(slack: FakeSlack, channels: Sequence[str]) -> dict[str, list[float]]:
    """When each message of some channels was edited."""
    found: dict[str, list[float]] = {}
    for channel in channels:
        for call in slack.calls("chat.update", channel):
            if call.ok:
                found.setdefault(f"{channel}/{call.parameters['ts']}", []).append(call.at_s)
    return found


def most_within(times: list[float], span_s: float) -> int:
    """Return the largest number of these times within so many seconds."""
    return max((sum(first <= at_s < first + span_s for at_s in times) for first in times), default=0)
