"""Rows on Telegram's wire: what a core hears and sends, how often a growing answer is edited, the longest callback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from gateway.clock import SystemClock
from gateway.model.ids import NodeId, SessionId
from gateway.model.messages import Conversation
from gateway.model.sessions import TurnKind, TurnState, WhileRunning
from gateway.ports import Store
from gateway.store import open_store
from tests.bench import measure
from tests.bench.figures import Figure
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
    ANSWER,
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
from tests.support.makers import answer, inbound, route, said
from tests.support.platform import FakePlatform
from tests.support.telegram import TOKEN, FakeTelegram, Shown

CALM_S = 1.5
CHATTER = "Something that people say to each other in a group."
SDK = "tests.bench.telegram_sdk"
NODE = NodeId("bench#sends")
LONG_ANSWERS = 4
FILLERS = 64
MS = 1000


# --- hearing ------------------------------------------------------------------------------------


async def updates(bench: Bench) -> list[Figure]:
    """What people say to each other in groups: stored by the daemon, thrown away by the bare SDK."""
    count = bench.counts.updates
    async with run_telegram_daemon(bench) as daemon:
        heard = await _heard_a_s(daemon.telegram, daemon.pid, count)
    async with run_fake(Watcher()) as telegram, run_bare(SDK, *_sdk(telegram)) as pid:
        bare = await _heard_a_s(telegram, pid, count)
    return [_rate("telegram, heard and stored, by a core; floor: bare SDK", heard, bare)]


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
    await _fill_outbox(folder, count)
    async with run_fake(watcher) as telegram:
        daemon = telegram_daemon(bench, telegram.api_root, model=False, folder=folder)
        try:
            await daemon.start({"DRAGOMAN_LOG__LEVEL": "info"}, ready=False)
            sent = await _sent_a_s(telegram, watcher, pid_of(daemon), count)
        finally:
            await daemon.kill()
    bare_watcher = Watcher()
    async with run_fake(bare_watcher) as telegram:
        words = ["--send", str(count), "--to", str(PEOPLE[0]), "--chats", str(len(PEOPLE))]
        async with run_bare(SDK, *_sdk(telegram), *words) as pid:
            bare = await _sent_a_s(telegram, bare_watcher, pid, count)
    return [_rate("telegram, sent and recorded, by a core; floor: bare SDK", sent, bare)]


async def _fill_outbox(folder: Path, count: int) -> None:
    """Make the store with so many answers that are due."""
    store = open_store(f"sqlite://{folder}/state/dragoman.db", SystemClock())
    numbers = iter(range(count))
    try:
        async with asyncio.TaskGroup() as group:
            for one in range(FILLERS):
                group.create_task(_fill(store, numbers), name=f"filler {one}")
    finally:
        await store.close()


async def _fill(store: Store, numbers: Iterator[int]) -> None:
    for number in numbers:
        way = route(SessionId(f"chat:bench-{number}"))
        await store.accept(way, inbound(direct=False), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        (claimed,) = await store.claim(NODE)
        lease = claimed.lease
        given = [received.id for received in (await store.turn(lease.turn)).inputs]
        where = Conversation(channel="telegram", account="main", chat=str(PEOPLE[number % len(PEOPLE)]))
        slots = [said(ANSWER, where=where)]
        assert await store.finish_turn(lease, TurnState.DONE, answer=answer(), given=given, slots=slots, timers=[])


async def _sent_a_s(telegram: FakeTelegram, watcher: Watcher, pid: int, count: int) -> float:
    """Of the last nine tenths: what a start costs is not part of it."""
    await telegram.until(lambda: len(watcher.seen) > count // 10, WITHIN_S)
    before, first = measure.cpu_s(pid), len(watcher.seen)
    await telegram.until(lambda: len(watcher.seen) >= count, WITHIN_S)
    return (count - first) / (measure.cpu_s(pid) - before)


def _sdk(telegram: FakeTelegram) -> list[str]:
    return ["--api-root", telegram.api_root, "--token", TOKEN]


def _rate(what: str, value: float, bare: float) -> Figure:
    return Figure(what=what, value=value, unit="/s", floor=bare)


# --- a growing answer ---------------------------------------------------------------------------


async def stream(bench: Bench) -> list[Figure]:
    """An answer that takes 10 s: how often it is edited, and what that costs; the floor shows it once, at its end."""
    seconds = bench.counts.stream_s
    async with run_telegram_daemon(bench, model=True) as daemon, run_telegram_floor(bench, model=True) as floor:
        await interleaved([daemon, floor], bench.counts.warm)
        async with asyncio.TaskGroup() as group:
            costs = [group.create_task(_streamed(life), name="streamed") for life in (daemon, floor)]
        (edits, gap, cpu), (_, _, bare_cpu) = (cost.result() for cost in costs)
    what = f"telegram, answer of {seconds:g} s"
    return [
        Figure(what=f"{what}, edits in a second", value=edits, budget=1, unit="/s"),
        Figure(what=f"{what}, time between two edits at least, but the last", value=gap, unit="s"),
        Figure(what=f"{what}, CPU of the process", value=cpu * MS, floor=bare_cpu * MS, unit="ms"),
    ]


async def _streamed(life: TelegramLife) -> tuple[float, float, float]:
    """Edits a second, the shortest time between two calls, and CPU seconds. The last words need not wait."""
    telegram, chat = life.telegram, int(OWNER)
    before, already = measure.cpu_s(life.pid), len(telegram.shown(chat))
    began = time.monotonic()
    telegram.say(chat, STREAM)
    await telegram.until(lambda: _ends(telegram.shown(chat)[already:]), WITHIN_S)
    cpu = measure.cpu_s(life.pid) - before
    shows = ("sendMessage", "editMessageText")
    moments = [call.at_s for call in telegram.log if call.chat == chat and call.at_s > began and call.method in shows]
    gap = min((after - one for one, after in pairwise(moments[:-1])), default=0.0)
    return (len(moments) - 1) / (moments[-1] - began), gap, cpu


def _ends(messages: Sequence[Shown]) -> bool:
    return any(message.text.endswith(THE_END) for message in messages)


# --- the loop -----------------------------------------------------------------------------------


async def loop(bench: Bench) -> list[Figure]:
    """The longest callback from the start on: a flood of updates, many chats at once, long Markdown as it grows."""
    longest, counts = bench.new_folder() / "longest.json", bench.counts
    watching = '[channels.test]\nmodule = "tests.bench.channel:factory"\nport = {port}\nlongest = "{longest}"\n'
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
