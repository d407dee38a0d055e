"""Rows on Slack's wire: messages received and sent per core beside the bare SDK, and edits of a growing answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gateway.domain.messages import Conversation
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rates import CHATTER, Grown, fill_outbox, grown, rate, sent_a_s
from tests.bench.slack import (
    CHANNELS,
    PEOPLE,
    TALKERS,
    SlackLife,
    direct,
    run_slack_daemon,
    run_slack_sdk,
    user,
)
from tests.bench.world import OWNER, STREAM, THE_END, WITHIN_S, Bench, interleaved
from tests.support.slack import FakeSlack
from tests.support.slack.rig import ONE
from tests.support.slack.world import Shown

SHOWS = ("chat.postMessage", "chat.update")


# --- hearing ------------------------------------------------------------------------------------


async def events(bench: Bench) -> list[Figure]:
    """Measure talk of people in channels: stored by the daemon, dropped by the bare SDK."""
    count = bench.counts.updates
    async with run_slack_daemon(bench) as daemon:
        heard = await _heard_a_s(daemon, count)
    async with run_slack_sdk(bench) as bare:
        thrown_away = await _heard_a_s(bare, count)
    return [rate("slack, heard and stored, by a core; floor: bare SDK", heard, thrown_away)]


async def _heard_a_s(life: SlackLife, count: int) -> float:
    await _chatter(life.slack, len(TALKERS))  # from then on it is known who they are
    before = measure.cpu_s(life.pid)
    await _chatter(life.slack, count)
    return count / (measure.cpu_s(life.pid) - before)


async def _chatter(slack: FakeSlack, count: int) -> None:
    """Everybody talks, until all of it is acknowledged."""
    already = len(slack.app.given)
    for number in range(count):
        slack.say(user(TALKERS[number % len(TALKERS)]), CHATTER, channel=CHANNELS[number % len(CHANNELS)])
    waiting = slack.app.given[already:]

    def taken() -> bool:
        while waiting and waiting[-1].acknowledged:
            waiting.pop()
        return not waiting

    await slack.until(taken, WITHIN_S)


# --- sending ------------------------------------------------------------------------------------


async def sends(bench: Bench) -> list[Figure]:
    """A full outbox at the start of a daemon, and as many messages by the bare SDK, as many side by side."""
    count, folder = bench.counts.sends, bench.new_folder()
    places = [Conversation(channel="slack", account=ONE, chat=direct(person)) for person in PEOPLE]
    await fill_outbox(folder, places, count)
    async with run_slack_daemon(bench, folder=folder, ready=False, echo=False) as daemon:
        sent = await sent_a_s(daemon.slack, daemon.watcher, daemon.pid, count)
    words = ["--send", str(count), "--to", str(PEOPLE[0]), "--chats", str(len(PEOPLE))]
    async with run_slack_sdk(bench, *words, echo=False) as bare:
        thrown = await sent_a_s(bare.slack, bare.watcher, bare.pid, count)
    return [rate("slack, sent and recorded, by a core; floor: bare SDK", sent, thrown)]


# --- a growing answer ---------------------------------------------------------------------------


async def stream(bench: Bench) -> list[Figure]:
    """An answer that takes 10 s: what is called in its conversation; the bare SDK shows it once, at its end."""
    async with run_slack_daemon(bench, model=True) as daemon, run_slack_sdk(bench, model=True) as floor:
        await interleaved([daemon, floor], bench.counts.warm)
        async with asyncio.TaskGroup() as group:
            costs = [group.create_task(_streamed(life), name="streamed") for life in (daemon, floor)]
        (ours, others), (bare, _) = (cost.result() for cost in costs)
    what = f"slack, answer of {bench.counts.stream_s:g} s, other calls in its chat, in all"
    return [*grown("slack", bench.counts.stream_s, ours, bare), Figure(what=what, value=others)]


async def _streamed(life: SlackLife) -> tuple[Grown, int]:
    """From what was asked to the last word; and how many calls were none that show it: a reaction to the question."""
    slack, chat = life.slack, direct(OWNER)
    before, already = measure.cpu_s(life.pid), len(slack.shown(chat))
    began = time.monotonic()
    slack.say(user(OWNER), STREAM)
    await slack.until(lambda: _ends(slack.shown(chat)[already:]), WITHIN_S)
    cpu = measure.cpu_s(life.pid) - before
    calls = [call for call in slack.calls(channel=chat) if call.at_s > began]
    shows = [call.at_s for call in calls if call.method in SHOWS]
    return Grown.of(began, shows, cpu), len(calls) - len(shows)


def _ends(messages: Sequence[Shown]) -> bool:
    return any(message.text.endswith(THE_END) for message in messages)
