"""F10: a node is cut off from Redis, while it still reaches Telegram and the model; another node has a link of its own.

Redis lives in a network namespace. Each node reaches it through a link of its own, which the test takes down.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.domain.views import Item
from tests.fault.nodes_rig import Fleet, fleet, runs_of
from tests.fault.oracle import every_turn_ended_with_one_answer
from tests.fault.rig import until
from tests.fault.telegram_rig import ANN, judge_chats, slots_of
from tests.fault.test_three_nodes import evidence_of, in_order, taken
from tests.support.daemon import Daemon
from tests.support.model_server import Reply, Rule
from tests.support.proof import LOST, RAN_TWICE, TWICE, figure, times
from tests.support.redis_server import RedisServer, asked

CUTS_S = times((1, 10, 16), (1, 10, 16, 60))
"""One is as long as a lease and a little: it heals while the other node takes over."""
HEALED_WITHIN_S, TAKEOVER_S = 10.0, 20.0
SLOW, NEW = range(3001, 3004), range(3011, 3015)
"""People whose turns the node holds when it is cut off, and people who write meanwhile."""
RULES = [Rule(text="^slow", reply=Reply(text="You said: slow", think_s=3))]
SHELL = '[tools.shell]\npermission = "always"\napproval = "allow"'


def ip(*words: str) -> None:
    """Change the network."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Links:
    """A namespace, and links from here to it."""

    def __init__(self, count: int) -> None:
        """Take their number."""
        self.name, self._count = f"cut-{os.getpid()}", count
        self._net = f"198.18.{os.getpid() % 250}"

    def make(self) -> None:
        """Make them."""
        ip("netns", "add", self.name)
        for number in range(self._count):
            near, far = self._ends(number)
            ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
            ip("address", "add", f"{self._net}.{4 * number + 1}/30", "dev", near)
            ip("link", "set", near, "up")
            ip("-n", self.name, "address", "add", f"{self.host(number)}/30", "dev", far)
            self.set(number, "up")

    def host(self, number: int) -> str:
        """The address behind a link."""
        return f"{self._net}.{4 * number + 2}"

    def set(self, number: int, state: str) -> None:
        """Take a link `down`, at its far end: nobody is told, and nothing goes another way. Or bring it `up`."""
        ip("-n", self.name, "link", "set", self._ends(number)[1], state)

    def _ends(self, number: int) -> tuple[str, str]:
        return f"near{number}-{os.getpid()}", f"far{number}"

    def remove(self) -> None:
        """Remove the links, and the namespace, which would remove them later."""
        made = [name for name in os.listdir("/sys/class/net") if name in self._near()]
        for name in made:
            ip("link", "delete", name)
        ip("netns", "delete", self.name)

    def _near(self) -> list[str]:
        return [self._ends(number)[0] for number in range(self._count)]


@contextmanager
def linked(count: int) -> Generator[Links]:
    """So many links, for one test. Without root the test fails, as without a Redis."""
    assert os.geteuid() == 0, "Links between network namespaces are root's to make: run this test as root."
    links = Links(count)
    try:
        links.make()
        yield links
    finally:
        links.remove()


async def begin(two: Fleet, links: Links, number: int) -> Daemon:
    """Start a node that reaches Redis through its own link."""
    node = two.nodes[number]
    url = f"redis://{links.host(number)}:{two.redis.port}/0"
    await node.start({**two.env, "DRAGOMAN_STORE__URL": url})
    return node


@pytest.mark.by_the_clock  # and no browser beside it: Chromium breaks its requests off when the machine's links change
@pytest.mark.whole("waits for cuts; what two nodes do when one is frozen or killed stays")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cut_s", CUTS_S)
async def test_a_node_is_cut_off_from_redis(cut_s: float, tmp_path: Path) -> None:
    """It polls, sends and holds turns. Nothing is owned by both nodes; all is answered 10 s after the link is back."""
    with linked(2) as links:
        server = RedisServer(
            tmp_path / "redis",
            *("--bind", "*", "--protected-mode", "no"),
            host=links.host(1),
            prefix=("ip", "netns", "exec", links.name),
        )
        async with fleet(tmp_path, 0, mode="polling", rules=RULES, more=SHELL, spare=2, server=server) as two:
            node = await begin(two, links, 0)
            said = {who: ["first", "slow"] for who in SLOW} | {who: list[str]() for who in NEW}
            for who in SLOW:
                two.telegram.say(who, "first")
                await two.telegram.see(who, "You said: first")
            two.telegram.say(ANN, "/shell echo x >> ran; sleep 3; echo did")
            for who in SLOW:
                two.telegram.say(who, "slow")
            await two.model.until(lambda: len(two.model.requests) == 2 * len(SLOW))
            await until(lambda: runs_of(two, "ran") == 1)
            await begin(two, links, 1)
            links.set(0, "down")
            cut = time.monotonic()
            await write_for(two, said, cut_s)
            assert asked(server.port, "PING", links.host(0)) == b"", "it is cut off"
            links.set(0, "up")
            healed = time.monotonic()
            await two.settled(60)
            figure("F10", "from the heal until all is answered", time.monotonic() - healed, HEALED_WITHIN_S, "s")
            await node.until_ready()
            figure("F10", "from the heal until the node is ready", time.monotonic() - healed, HEALED_WITHIN_S, "s")
            await two.stop()
            rows = await two.everything()
    if cut_s > TAKEOVER_S:
        figure("F10", "from the cut until the other node answers", answered(two) - cut, TAKEOVER_S, "s")
    judge(two, said, rows)


async def write_for(two: Fleet, said: Mapping[int, list[str]], seconds: float) -> None:
    """Let people write for so long."""
    over = time.monotonic() + seconds
    while (left := over - time.monotonic()) > 0:
        for who in NEW:
            said[who].append(text := f"message {len(said[who])}")
            two.telegram.say(who, text)
        await asyncio.sleep(min(left, 0.5))


def answered(two: Fleet) -> float:
    """When the first of those who wrote after the cut was answered."""
    return min(call.at_s for who in NEW for call in two.telegram.calls("sendMessage", who) if call.acted)


def judge(two: Fleet, said: Mapping[int, Sequence[str]], rows: Mapping[str, Sequence[Item]]) -> None:
    """Nothing was lost, and nothing was done by both nodes."""
    found = [evidence_of(texts, rows.get(f"dm:telegram/main/{who}", ())) for who, texts in said.items()]
    every = sum(map(len, said.values()))
    figure("F10", LOST, sum((Counter(each.said) - taken(each)).total() for each in found), 0, of=every)
    again = sum((taken(each) - Counter(each.said)).total() for each in found)
    figure("F10", TWICE, again + len(judge_chats(two.telegram, slots_of(rows))), 0, of=every)
    for each in found:
        every_turn_ended_with_one_answer(each)
    owned = [each for each in found if not in_order(each)]
    figure("F10", "sessions with turns of two owners at once", len(owned), 0, of=len(found))
    figure("F10", RAN_TWICE, runs_of(two, "ran") - 1, 0, of=1)
