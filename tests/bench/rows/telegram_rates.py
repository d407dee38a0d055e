"""Rows on Telegram's wire: messages received and sent per core, edits of a growing answer, the longest callback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from gateway.domain.messages import Conversation
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rates import CHATTER, Grown, fill_outbox, grown, rate, sent_a_s
from tests.bench.rows.crowd import people
from tests.bench.telegram import (
    GROUPS,
    PEOPLE,
    TelegramLife,
    run_fake,
    run_telegram_daemon,
    run_telegram_floor,
    telegram_daemon,
)
from tests.bench.world import (
    DENSE,
    LONG,
    LONG_S,
    LONGEST,
    OWNER,
    SLOW,
    STREAM,
    THE_END,
    WITHIN_S,
    Bench,
    Watcher,
    interleaved,
    pid_of,
    run_bare,
)
from tests.support.platform import FakePlatform
from tests.support.telegram import TOKEN, FakeTelegram, Shown

CALM_S = 1.5
SDK = "tests.bench.telegram_sdk"
LONG_ANSWERS = 4


# --- hearing ------------------------------------------------------------------------------------


async def updates(bench: Bench) -> list[Figure]:
    """Measure talk of people in groups: stored by the daemon, dropped by the bare SDK."""
    count = bench.counts.updates
    async with run_telegram_daemon(bench) as daemon:
        heard = await _heard_a_s(daemon.telegram, daemon.pid, count)
    async with run_fake(Watcher()) as telegram, run_bare(SDK, *_sdk(telegram)) as pid:
        bare = await _heard_a_s(telegram, pid, count)
    return [rate("telegram, heard and stored, by a core; floor: bare SDK", heard, bare)]


async def _heard_a_s(telegram: FakeTelegram, pid: int, count: int) -> float:
    await _chatter(telegram, 1)
    before = measure.cpu_s(pid)
    await _chatter(telegram, count)
    return count / (measure.cpu_s(pid) - before)


async def _chatter(telegram: FakeTelegram, count: int) -> None:
    """Everybody talks, until all of it is confirmed."""
    for number in range(count):
        telegram.say(7000 + number % 500, CHATTER, chat=GROUPS[number % len(GROUPS)])
    await telegram.until(lambda: not telegram.updates.waiting, WITHIN_S)


# --- sending ------------------------------------------------------------------------------------


async def sends(bench: Bench) -> list[Figure]:
    """A full outbox at the start of a daemon, and as many messages by the bare SDK, as many side by side."""
    count = bench.counts.sends
    folder, watcher = bench.new_folder(), Watcher()
    places = [Conversation(channel="telegram", account="main", chat=str(person)) for person in PEOPLE]
    await fill_outbox(folder, places, count)
    async with run_fake(watcher) as telegram:
        daemon = telegram_daemon(bench, telegram.api_root, model=False, folder=folder)
        try:
            await daemon.start({"DRAGOMAN_LOG__LEVEL": "info"}, ready=False)
            sent = await sent_a_s(telegram, watcher, pid_of(daemon), count)
        finally:
            await daemon.kill()
    bare_watcher = Watcher()
    async with run_fake(bare_watcher) as telegram:
        words = ["--send", str(count), "--to", str(PEOPLE[0]), "--chats", str(len(PEOPLE))]
        async with run_bare(SDK, *_sdk(telegram), *words) as pid:
            bare = await sent_a_s(telegram, bare_watcher, pid, count)
    return [rate("telegram, sent and recorded, by a core; floor: bare SDK", sent, bare)]


def _sdk(telegram: FakeTelegram) -> list[str]:
    return ["--api-root", telegram.api_root, "--token", TOKEN]


# --- a growing answer ---------------------------------------------------------------------------


async def stream(bench: Bench) -> list[Figure]:
    """An answer that takes 10 s: how often it is edited, and what that costs; the floor shows it once, at its end."""
    seconds = bench.counts.stream_s
    async with run_telegram_daemon(bench, model=True) as daemon, run_telegram_floor(bench, model=True) as floor:
        await interleaved([daemon, floor], bench.counts.warm)
        async with asyncio.TaskGroup() as group:
            costs = [group.create_task(_streamed(life), name="streamed") for life in (daemon, floor)]
        ours, bare = (cost.result() for cost in costs)
    return grown("telegram", seconds, ours, bare)


async def _streamed(life: TelegramLife) -> Grown:
    """From what was asked to the last word."""
    telegram, chat = life.telegram, int(OWNER)
    before, already = measure.cpu_s(life.pid), len(telegram.shown(chat))
    began = time.monotonic()
    telegram.say(chat, STREAM)
    await telegram.until(lambda: _ends(telegram.shown(chat)[already:]), WITHIN_S)
    cpu = measure.cpu_s(life.pid) - before
    shows = ("sendMessage", "editMessageText")
    moments = [call.at_s for call in telegram.log if call.chat == chat and call.at_s > began and call.method in shows]
    return Grown.of(began, moments, cpu)


def _ends(messages: Sequence[Shown]) -> bool:
    return any(message.text.endswith(THE_END) for message in messages)


# --- the loop -----------------------------------------------------------------------------------


async def loop(bench: Bench) -> list[Figure]:
    """The longest callback from the start on: a flood of updates, many chats at once, long Markdown as it grows."""
    longest, counts = bench.new_folder() / "longest.json", bench.counts
    watching = '[channels.test]\nmodule = "tests.bench.channel"\nport = {port}\nlongest = "{longest}"\n'
    async with FakePlatform().serve() as platform:
        config = watching.format(port=platform.port, longest=longest)
        async with run_telegram_daemon(bench, config, model=True) as daemon:
            await daemon.exchanges(counts.warm)
            await _chatter(daemon.telegram, counts.updates)
            await daemon.at_once(people(counts.chats), SLOW)
            for first, kind in zip((5000, 5100, 5200), (LONG, LONGEST, DENSE), strict=True):
                await daemon.at_once(people(LONG_ANSWERS, first), kind)
            await asyncio.sleep(LONG_S + CALM_S)
    found = json.loads(longest.read_text())
    what = f"telegram, longest callback of the loop ({found['what']})"
    return [Figure(what=what, value=found["ms"], unit="ms of CPU", budget=100)]
