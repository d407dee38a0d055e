"""Links between three nodes and their Redis that lose packets both ways, or delay, stall and break in mid-reply.

For packets Redis lives in a network namespace, whose filter drops or resets at random; else a proxy is between.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from tests.fault.nodes_rig import Fleet, Proxy, fleet
from tests.fault.oracle import every_turn_ended_with_one_answer
from tests.fault.telegram_rig import judge_chats, slots_of
from tests.fault.test_network_cuts import begin, linked
from tests.fault.test_three_nodes import Writers, evidence_of, in_order, taken
from tests.support.proof import LOST, TWICE, dice, figure, times
from tests.support.redis_server import RedisServer

MESSAGES = times(300, 2_000)
SETTLE_S = times(120.0, 600.0)
FILTER = """
table inet lossy {{
  chain to_redis {{
    type filter hook input priority 0
    {rule}
    counter
  }}
  chain from_redis {{
    type filter hook output priority 0
    {rule}
    counter
  }}
}}
"""
DROPS = "numgen random mod 100 < {} counter drop"
DELAY_S, STALL_S = 0.05, 12.0
STALLS, TEARS = 0.002, 0.004
"""Shares of pieces."""
RESETS = "tcp flags & (syn | rst) == 0 numgen random mod 1000 < {} counter reject with tcp reset"
"""A request that does not arrive, or a reply that does not; the connection is over for one side."""


@contextmanager
def lossy(namespace: str, rule: str) -> Generator[None]:
    """Let the packet filter of a namespace do this to packets that come, and to those that go."""
    assert shutil.which("nft"), "nftables is missing (Debian: apt install nftables)."
    nft(namespace, "-f", "-", given=FILTER.format(rule=rule))
    try:
        yield
        rules = nft(namespace, "list", "table", "inet", "lossy")
        took = [int(count) for count in re.findall(r"counter packets (\d+) bytes \d+ (?:drop|reject)", rules)]
        sys.stdout.write(f"packets taken on their way to Redis and back: {took}\n")
        assert len(took) == 2
        assert min(took) > 0
    finally:
        nft(namespace, "delete", "table", "inet", "lossy")


def nft(namespace: str, *words: str, given: str = "") -> str:
    """Ask the packet filter of a namespace."""
    command = ["ip", "netns", "exec", namespace, "nft", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class BadLine(Proxy):
    """A line to Redis that delays each piece, stalls for long, and breaks in the middle of a piece."""

    def __init__(self, redis: int, chance: random.Random) -> None:
        """Take the port of Redis."""
        super().__init__([redis])
        self._chance, self.is_good = chance, False
        self.stalled = self.torn = 0

    async def carry(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Pass a piece on, or a part of it."""
        if self.is_good:
            return await super().carry(data, writer)
        await asyncio.sleep(self._chance.random() * DELAY_S)
        fate = self._chance.random()
        if fate < STALLS:
            self.stalled += 1
            await asyncio.sleep(STALL_S)
        elif fate < STALLS + TEARS:
            self.torn += 1
            writer.write(data[: self._chance.randrange(len(data))])
            return False
        return await super().carry(data, writer)


@pytest.mark.whole("waits for stalls; a store that is away for long stays")
@pytest.mark.timeout(times(600, 1_800))
async def test_lines_delay_stall_and_tear(tmp_path: Path) -> None:
    """A stall is longer than the silence after which a node gives a connection up. The same holds."""
    chance = dice("bad lines")
    async with fleet(tmp_path, 0, spare=3) as three, AsyncExitStack() as stack:
        lines = [BadLine(three.redis.port, chance) for _ in three.nodes]
        for node, line in zip(three.nodes, lines, strict=True):
            await stack.enter_async_context(line.serve())
            await node.start({**three.env, "DRAGOMAN_STORE__URL": f"redis://127.0.0.1:{line.port}/0"})
        people = Writers(three, chance, messages=MESSAGES)
        three.telegram.script(people.saw)
        await people.write()
        await three.settled(SETTLE_S)
        for line in lines:
            line.is_good = True
        await three.stop()
        counts = [(line.stalled, line.torn) for line in lines]
        sys.stdout.write(f"{MESSAGES} messages; stalls and tears of each line: {counts}\n")
        assert min(map(sum, counts)) > 0
        await judge(three, people)


@pytest.mark.by_the_clock  # and no browser beside it, as in test_network_cuts.py
@pytest.mark.whole("waits for packets that are sent again; a node that is cut off stays")
@pytest.mark.timeout(times(600, 1_800))
@pytest.mark.parametrize(
    ("rule", "messages"),
    [(DROPS.format(5), MESSAGES), (DROPS.format(20), MESSAGES // 3), (RESETS.format(5), MESSAGES)],
    ids=["5 %", "20 %", "reset"],
)
async def test_links_lose_packets(rule: str, messages: int, tmp_path: Path) -> None:
    """Nothing is lost, doubled or out of order, whichever node takes, runs and sends a message."""
    with linked(3) as links:
        server = RedisServer(
            tmp_path / "redis",
            *("--bind", "*", "--protected-mode", "no"),
            host=links.host(1),
            prefix=("ip", "netns", "exec", links.name),
        )
        async with fleet(tmp_path, 0, spare=3, server=server) as three:
            for number in range(3):
                await begin(three, links, number)
            people, began = Writers(three, dice("lossy links"), messages=messages), time.monotonic()
            three.telegram.script(people.saw)
            with lossy(links.name, rule):
                await people.write()
                await three.settled(SETTLE_S)
                took_s = time.monotonic() - began
            await three.stop()
            sys.stdout.write(f"{messages} messages, {messages / took_s:.0f} a second\n")
            await judge(three, people)


async def judge(three: Fleet, people: Writers) -> None:
    """Compare what was said and shown with what is stored."""
    rows = await three.everything()
    found = [evidence_of(texts, rows.get(f"dm:telegram/main/{who}", ())) for who, texts in people.said.items()]
    figure("F10", LOST, sum((Counter(one.said) - taken(one)).total() for one in found), 0, of=people.messages)
    again = sum((taken(one) - Counter(one.said)).total() for one in found)
    figure("F10", TWICE, again + len(judge_chats(three.telegram, slots_of(rows))), 0, of=people.messages)
    figure("F10", "sessions out of order on lossy links", sum(not in_order(one) for one in found), 0, of=len(found))
    for one in found:
        every_turn_ended_with_one_answer(one)
