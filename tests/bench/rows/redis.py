"""Rows: the store on Redis beside the one on SQLite, in one run; a turn, two nodes, and what grows on Redis."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import redis

from gateway.domain.ids import SessionId
from gateway.domain.messages import Conversation
from gateway.domain.retention import Keep
from gateway.domain.routes import WhileRunning
from gateway.domain.turns import TurnKind
from gateway.ports import Store
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.bench import measure
from tests.bench.figures import Decision, Figure
from tests.bench.rates import fill
from tests.bench.rows.crowd import people
from tests.bench.rows.growth import NODE, after_a_child
from tests.bench.rows.store import A_TURN, SLICES, take_turns
from tests.bench.world import SLOW, Bench, Life
from tests.support.makers import control, inbound, route
from tests.support.redis_server import RedisServer, asked

Seed: TypeAlias = Callable[[Store, int], Awaitable[None]]
Step: TypeAlias = Callable[[Store, int], Awaitable[None]]

CLUSTER = """
[cluster]
key = "file:{key}"
node = "{node}"
roles = {roles}
turns_at_once = {room}
"""
ROOM = 8
"""Turns of a node at a time: few, so that the model bounds it."""
MS, US = 1_000, 1_000_000
CALLERS = 32
IN_SCRIPTS = frozenset({"get", "hget", "set", "mset", "getrange", "zadd", "zrem", "zcard", "del", "expire", "time"})
"""Commands that the script alone sends. Of others that it sends too (PUBLISH), both are counted."""
FORGET_EVENTS = (
    "EVAL \"local n = 0 for _, key in ipairs(redis.call('KEYS', '*:event:*')) do n = n + redis.call('DEL', key) end "
    'return n" 0'
)
"""Script for the expiry that Redis does itself after 15 days."""
BARE = """
local at = 0
while at < #ARGV do
    local count = tonumber(ARGV[at + 1])
    redis.call(unpack(ARGV, at + 2, at + 1 + count))
    at = at + 1 + count
end
"""
"""Script that does what it is given."""
TIMES = 3.0
"""By so much the largest may be dearer than the smallest."""
FAMILY = 500
TURNS_EACH = 20
FIRST = 1_000_000
"""Chats that have nothing unsent."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Work of a server so far."""

    requests: int
    """Round trips: commands of a pipeline come together."""
    cpu_s: float
    """Spent on commands, those of a script as a part of it."""
    memory: int


async def spent(server: RedisServer) -> Spent:
    """Ask the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"INFO everything\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    await writer.wait_closed()
    found = re.findall(r"cmdstat_([a-z|]+):calls=(\d+),usec=(\d+)", text)
    used = {name: (int(calls), int(us)) for name, calls, us in found}
    value = dict(re.findall(r"^(\w+):([\d.]+)\r?$", text, flags=re.MULTILINE))
    return Spent(
        int(value["total_reads_processed"]),
        (sum(us for name, (_, us) in used.items() if name not in IN_SCRIPTS) - _in_scripts(used)) / US,
        int(value["used_memory"]),
    )


def _in_scripts(used: Mapping[str, tuple[int, int]]) -> float:
    """Return the microseconds of MGET that are a part of those of scripts: each commit calls it once."""
    calls, us = used.get("mget", (0, 0))
    return us * used.get("evalsha", (0, 0))[0] / max(calls, 1)


@asynccontextmanager
async def on_redis(bench: Bench) -> AsyncGenerator[tuple[RedisServer, Store]]:
    """A store on a server of its own, on the disk that is measured."""
    with RedisServer(bench.new_folder()) as server:
        store = open_store(server.url, SystemClock())
        try:
            yield server, store
        finally:
            await store.close()


# --- transitions --------------------------------------------------------------------------------


async def transitions(bench: Bench) -> list[Figure]:
    """Accept, claim and finish, durable, on both stores by turns, and what a turn asks of Redis."""
    numbers, count = iter(range(1_000_000)), max(bench.counts.commits // A_TURN, 1)
    beside = open_store(f"sqlite://{bench.new_folder()}/dragoman.db", SystemClock())
    ours_s = theirs_s = 0.0
    try:
        async with on_redis(bench) as (_, store):
            for one in (store, beside):
                await take_turns(one, numbers, CALLERS, CALLERS)
            for _ in range(SLICES):
                theirs_s += await take_turns(beside, numbers, count, CALLERS)
                ours_s += await take_turns(store, numbers, count, CALLERS)
    finally:
        await beside.close()
    total = count * A_TURN * SLICES
    return [
        Figure(
            what="transitions in a second on Redis, 32 callers; beside SQLite",
            value=total / ours_s,
            unit="/s",
            floor=total / theirs_s,
            budget=total / theirs_s / 2,
            at_least=True,
        ),
        *await _a_turn(bench),
        *await _sessions_of_a_command(bench),
        *await _folded_turns(bench),
    ]


async def _a_turn(bench: Bench) -> list[Figure]:
    """Return the commands of a plain turn to Redis, without those of an idle daemon.

    Beside it, scripts that only do its writes, as far apart: caches are as cold. Then many people at once, who find
    them warm.
    """
    turns, users = bench.counts.turns, people(CALLERS)
    with RedisServer(bench.new_folder()) as server:
        async with bench.run_daemon(model=True, store=server.url) as life:
            await life.exchanges(bench.counts.warm)
            before, began = await spent(server), time.perf_counter()
            await life.exchanges(turns)
            after, took_s = await spent(server), time.perf_counter() - began
            await asyncio.sleep(took_s)
            idle = await spent(server)
            idle_s = time.perf_counter() - began - took_s
            crowd_s = await _of_a_crowd(server, life, users, max(turns // 10, 1))
        bare = await spent(server)
        await _bare_turns(server, turns, took_s / turns)
        bare_s = (await spent(server)).cpu_s - bare.cpu_s
    share = took_s / idle_s
    requests = after.requests - before.requests - (idle.requests - after.requests) * share
    cpu_s = after.cpu_s - before.cpu_s - (idle.cpu_s - after.cpu_s) * share
    return [
        Figure(what="round trips to Redis, a plain turn", value=requests / turns, budget=8),
        Figure(
            what="time of Redis on commands, a plain turn; beside its writes",
            value=cpu_s / turns * US,
            unit="µs",
            floor=bare_s / turns * US,
            budget=250,
            decided=Decision(number="0079", times=1.75, of="floor"),
        ),
        Figure(
            what=f"time of Redis on commands, a turn of {CALLERS} people at once",
            value=crowd_s * US,
            unit="µs",
            budget=250,
        ),
    ]


async def _of_a_crowd(server: RedisServer, life: Life, users: Sequence[str], rounds: int) -> float:
    """Let all talk at once; return the seconds of Redis for a turn of theirs."""
    await life.at_once(users, "hello")
    before = await spent(server)
    for _ in range(rounds):
        await life.at_once(users, "hello")
    return ((await spent(server)).cpu_s - before.cpu_s) / (rounds * len(users))


async def _bare_turns(server: RedisServer, turns: int, each_s: float) -> None:
    """Write what so many turns write, one after the other."""
    client = redis.Redis(port=server.port)
    script = client.register_script(BARE)
    for number in range(turns):
        for commands in _writes(number):
            script(args=[word for words in commands for word in (len(words), *words)])
            await asyncio.sleep(each_s / 3)
    client.close()


def _writes(number: int) -> Iterator[list[tuple[str | int, ...]]]:
    """Yield the writes of a turn's three commits: keys of its kinds, values of its sizes."""
    turn, message, slot, us = f"turn:t{number:016}", f"message:i{number:016}", f"slot:o{number:016}", 10**15 + number
    lane, wake = ("SET", "bare:lane", f"{number} {number} 0", "EX", 2592000), ("PUBLISH", "bare:live", "x" * 60)
    session = ("bare:rev", number, "bare:session", "x" * 620)
    yield [
        ("MSET", *session, f"bare:{turn}", "x" * 330, f"bare:{message}", "x" * 260, "bare:person", "x" * 70),
        ("SET", f"bare:event:{message}", "x" * 40, "EX", 1296000),
        ("ZADD", "bare:by-rev", us, turn, us, message),
        ("ZADD", "bare:by-place", us, turn, us, message),
        wake,
        ("ZADD", "bare:roots", us, "session"),
        ("ZADD", "bare:held", us, turn),
        lane,
    ]
    rows = (f"bare:{turn}", "x" * 330, f"bare:{message}", "x" * 260, f"bare:step:{turn}", "x" * 520)
    yield [
        ("MSET", *session, *rows, f"bare:{slot}", "x" * 560, "bare:spent", "x" * 70),
        ("ZADD", "bare:by-rev", us, turn, us, message, us, f"step:{turn}", us, slot),
        ("ZADD", "bare:ended", us, turn),
        ("ZADD", "bare:by-place", us, f"step:{turn}", us, slot),
        ("ZADD", "bare:unsent", us, slot),
        ("ZADD", "bare:unsent-in", us, slot),
        ("ZADD", "bare:sending", us, slot),
        wake,
        ("ZREM", "bare:held", turn),
        ("ZADD", "bare:unfolded", us, turn),
        lane,
    ]
    yield [
        ("MSET", "bare:rev", number, f"bare:{slot}", "x" * 560),
        ("ZADD", "bare:by-rev", us, slot),
        wake,
        *(("ZREM", f"bare:{name}", slot) for name in ("unsent", "unsent-in", "sending")),
        lane,
    ]


async def _sessions_of_a_command(bench: Bench) -> list[Figure]:
    """Memory of Redis for a session with `/new` and its reply, and for one that keeps nothing of what was said."""
    count = bench.counts.grown[-1]
    async with on_redis(bench) as (server, store):
        await _sessions(store, iter([FIRST]))
        await _all_sent(store)
        before = await spent(server)
        async with asyncio.TaskGroup() as group:
            numbers = iter(range(count))
            for _ in range(CALLERS):
                group.create_task(_sessions(store, numbers), name="sessions")
        await _all_sent(store)
        said = await spent(server)
        for number in range(count):
            await store.trim(_session(number), Keep(turns=0, age=timedelta(0)))
        assert asked(server.port, FORGET_EVENTS).startswith(b":")
        idle = await spent(server)
    return [
        Figure(
            what="memory of Redis, a session with one command",
            value=(said.memory - before.memory) / count,
            unit="bytes",
        ),
        Figure(
            what="memory of Redis, an idle session",
            value=(idle.memory - before.memory) / count,
            unit="bytes",
            budget=1000,
        ),
    ]


async def _folded_turns(bench: Bench) -> list[Figure]:
    """Memory of Redis for a turn in a session of 20, as it is stored at its end, and folded."""
    chats = [_chat(number) for number in range(max(1, bench.counts.grown[-1] // TURNS_EACH))]
    async with on_redis(bench) as (server, store):
        await _ended(store, [_chat(FIRST)])
        before = await spent(server)
        for _ in range(TURNS_EACH):
            await _ended(store, chats)
        stored = await spent(server)
        while await store.fold(timedelta(0)):
            pass
        folded = await spent(server)
    turns = TURNS_EACH * len(chats)
    return [
        Figure(what="memory of Redis, a turn", value=(stored.memory - before.memory) / turns, unit="bytes"),
        Figure(
            what="memory of Redis, a folded turn",
            value=(folded.memory - before.memory) / turns,
            unit="bytes",
            budget=1600,
        ),
    ]


async def _ended(store: Store, chats: Sequence[Conversation]) -> None:
    """A turn of each chat, shown."""
    await fill(store, iter(range(len(chats))), chats)
    await _all_sent(store)


async def _all_sent(store: Store) -> None:
    """Show everything that is due."""
    while slots := await store.claim_slots(NODE, ["telegram"], 50):
        for slot in slots:
            await store.slot_sent(slot, ("1",), unsettled=False)


async def _sessions(store: Store, numbers: Iterator[int]) -> None:
    for number in numbers:
        where = Conversation(channel="telegram", account="main", chat=str(-number - 1))
        await store.control(route(_session(number)), inbound(direct=False, where=where), control())


def _session(number: int) -> SessionId:
    return SessionId(f"chat:{number}")


# --- several nodes ------------------------------------------------------------------------------


async def workers(bench: Bench) -> list[Figure]:
    """Chats of a model of 500 ms at once, answered by one node with room for few turns, and by two."""
    folder, users = bench.new_folder(), people(bench.counts.chats)
    (folder / "key").write_text("a cluster key of more than thirty-two characters")
    first, second = (
        CLUSTER.format(key=folder / "key", node=node, roles=json.dumps(roles), room=ROOM)
        for node, roles in (("first", ["ingress", "worker", "delivery"]), ("second", ["worker"]))
    )
    with RedisServer(bench.new_folder()) as server:
        async with bench.run_daemon(first, model=True, store=server.url) as life:
            await life.at_once(users, "hello")
            alone_s = await life.at_once(users, SLOW)
            async with bench.run_daemon(second, model=True, store=server.url):
                await life.at_once(users, "hello")
                both_s = await life.at_once(users, SLOW)
    count = len(users)
    return [
        Figure(
            what=f"messages in a second on Redis, two nodes of {ROOM} turns; beside one",
            value=count / both_s,
            unit="/s",
            floor=count / alone_s,
            budget=1.8 * count / alone_s,
            at_least=True,
        )
    ]


# --- what grows ---------------------------------------------------------------------------------


async def growth(bench: Bench) -> list[Figure]:
    """One more message and its answer beside many unsent ones, many queued turns, and many children."""
    sizes = bench.counts.grown
    cases: list[tuple[str, Seed, Step, Sequence[int]]] = [
        ("unsent messages of as many chats", _unsent, _sent, sizes),
        ("unsent messages of one chat", _unsent_in_one, _sent, sizes),
        ("queued turns of its chat", _queued, _accepted, sizes),
        ("children that its session had", _children, _answered, [min(size, FAMILY) for size in sizes[::2]]),
    ]
    figures: list[Figure] = []
    for what, seed, step, counts in cases:
        took: list[float] = []
        for size in counts:
            async with on_redis(bench) as (_, store):
                await seed(store, size)
                took.append(await _in_the_middle(store, step, bench.counts.warm))
        figures += _against_first(what, counts, took)
    return figures


def _against_first(what: str, sizes: Sequence[int], seconds: Sequence[float]) -> list[Figure]:
    first = seconds[0] * MS
    return [
        Figure(
            what=f"on Redis, one more beside {size:,} {what}",
            value=took * MS,
            unit="ms",
            floor=first if number else None,
            budget=first * TIMES if number == len(sizes) - 1 else None,
        )
        for number, (size, took) in enumerate(zip(sizes, seconds, strict=True))
    ]


async def _in_the_middle(store: Store, step: Step, count: int) -> float:
    took: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await step(store, number)
        took.append(time.perf_counter() - began)
    return measure.p50(took)


async def _unsent(store: Store, count: int) -> None:
    await _fill_all(store, [_chat(number) for number in range(count)], count)


async def _unsent_in_one(store: Store, count: int) -> None:
    await _fill_all(store, [_chat(0)], count)


async def _fill_all(store: Store, places: Sequence[Conversation], count: int) -> None:
    numbers = iter(range(count))
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(fill(store, numbers, places), name="filler")


async def _sent(store: Store, number: int) -> None:
    """A turn in another chat, and the claims of its messages."""
    await fill(store, iter([FIRST + number]), [_chat(FIRST + number)])
    for slot in await store.claim_slots(NODE, ["telegram"], 1):
        await store.slot_sent(slot, ("1",), unsettled=False)


async def _queued(store: Store, count: int) -> None:
    """The first turn runs, so that the others wait."""
    await _accepted(store, 0)
    await store.claim(NODE)
    for number in range(count):
        await _accepted(store, number)


async def _accepted(store: Store, _number: int) -> None:
    way = route(SessionId("chat:queue"))
    await store.accept(way, inbound(direct=False), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)


async def _children(store: Store, count: int) -> None:
    for number in range(count):
        await _accepted(store, number)
        await after_a_child(store, (await store.claim(NODE))[0].lease)


async def _answered(store: Store, number: int) -> None:
    """A turn of the session with one more child."""
    await _accepted(store, number)
    await after_a_child(store, (await store.claim(NODE))[0].lease)


def _chat(number: int) -> Conversation:
    return Conversation(channel="telegram", account="main", chat=str(number + 1))
