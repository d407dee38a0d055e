"""F09: the primary of Redis is killed and its replica takes over, while a daemon works for people on Telegram."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateway.domain.views import Item
from tests.contract.test_redis_sentinel import sentinel
from tests.fault.nodes_rig import Fleet, fleet, runs_of
from tests.fault.oracle import every_turn_ended_with_one_answer
from tests.fault.rig import figures, until
from tests.fault.telegram_rig import ANN, judge_chats, slots_of
from tests.fault.test_redis_nodes import ready
from tests.fault.test_three_nodes import evidence_of, taken
from tests.support import redis_server
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.proof import LOST, RAN_TWICE, TWICE, dice, figure, times
from tests.support.redis_server import until_linked
from tests.support.telegram import Shown

SHELL = '[tools.shell]\npermission = "always"'
PROMOTIONS = times(5, 40, small=1)
PEOPLE = range(3001, 3009)
WRITES_EACH = 3
"""Messages of each person between two promotions."""
BEHIND = range(3101, 3104)
"""People who write while the replica is cut off."""
TOLD = "Redis lost its last changes, at least"
Said = dict[int, list[str]]


@asynccontextmanager
async def one_daemon(folder: Path, replicas: int) -> AsyncGenerator[Fleet]:
    """A daemon that waits for so many replicas of its Redis; it does not live yet."""
    async with fleet(folder, 0, mode="polling", more=SHELL, spare=1) as one:
        one.env = {**one.env, "DRAGOMAN_STORE__REPLICAS": str(replicas)}
        yield one


async def asked(one: Fleet, name: str) -> Shown:
    """Ask for a command that leaves a trace; return its card."""
    one.telegram.say(ANN, f"/shell echo x >> {name}")
    return await one.telegram.see(ANN, name, button="Once")


# --- a replica that has everything ----------------------------------------------------------------


@pytest.mark.timeout(times(120, 1800))
async def test_promotion_with_a_replica_loses_nothing(tmp_path: Path) -> None:
    """People write on while the replica is cut off and the primary dies. What was approved right before runs once."""
    chance, said = dice("F09"), Said()
    async with one_daemon(tmp_path, replicas=1) as one:
        with ExitStack() as servers:
            primary = one.redis
            replica = servers.enter_context(primary.replica(tmp_path / "redis-0"))
            until_linked(replica.port)
            await one.start(one.nodes[0])
            for number in range(PROMOTIONS):
                card = await asked(one, f"ran-{number}x")
                one.telegram.press(ANN, card, "Once")
                async with asyncio.TaskGroup() as group:
                    group.create_task(write(one, said, number, chance), name="people")
                    await asyncio.sleep(chance.uniform(0.05, 0.3))
                    replica.follow(free_port())
                    await asyncio.sleep(chance.uniform(0, 0.3))
                    primary.kill()
                    replica.take_over(primary.port)
                primary = replica
                replica = servers.enter_context(primary.replica(tmp_path / f"redis-{number + 1}"))
            await one.settled(60)
            assert (await ready(one.nodes[0]))[1]["lost"] == ""
            await one.stop()
            rows = await one.everything()
    judge(one, said, rows)
    runs = [runs_of(one, f"ran-{number}x") for number in range(PROMOTIONS)]
    figure("F09", RAN_TWICE, sum(count > 1 for count in runs), 0, of=PROMOTIONS)
    figure("F09", "approved commands that did not run", runs.count(0), 0, of=PROMOTIONS)


@pytest.mark.whole("promotions by hand stay, and Sentinels that name the primary")
async def test_a_failover_by_sentinels_loses_nothing(tmp_path: Path) -> None:
    """One of three Sentinels dies with the primary. The others agree, and choose the replica, under another address."""
    chance, said = dice("F09 with Sentinels"), Said()
    async with one_daemon(tmp_path, replicas=1) as one:
        with one.redis.replica(tmp_path / "redis-0") as second, ExitStack() as lives, ExitStack() as dies:
            until_linked(second.port)
            every = [each.enter_context(sentinel(tmp_path, one.redis.port, agree=2)) for each in (dies, lives, lives)]
            places = ",".join(f"127.0.0.1:{port}" for port in every)
            one.env = {**one.env, "DRAGOMAN_STORE__URL": f"redis+sentinel://{places}/gateway"}
            await one.start(one.nodes[0])
            await until(lambda: all(knows_all(port, second.port) for port in every), 30)
            async with asyncio.TaskGroup() as group:
                group.create_task(write(one, said, 0, chance), name="people")
                await asyncio.sleep(0.2)
                dies.close()
                one.redis.kill()
                killed = time.monotonic()
            await until(lambda: b"master" in redis_server.asked(second.port, "ROLE"), 30)
            with second.replica(tmp_path / "redis-1"):
                await one.settled(60)
                took_s = time.monotonic() - killed
                assert (await ready(one.nodes[0]))[1]["lost"] == ""
                await one.stop()
            one.redis = second
            rows = await one.everything()
    figure("F09", "with Sentinels: from the death of the primary until all is answered", took_s, 30, "s")
    judge(one, said, rows)


def knows_all(port: int, replica: int) -> bool:
    """Return True if a Sentinel knows the replica of the primary, and the two others."""
    knows = redis_server.asked(port, "SENTINEL master gateway")
    return (
        str(replica).encode() in redis_server.asked(port, "SENTINEL replicas gateway")
        and b"num-other-sentinels\r\n$1\r\n2" in knows
    )


async def write(one: Fleet, said: Said, number: int, chance: random.Random) -> None:
    """Each person writes a few messages, in a mixed order."""
    for who in chance.sample([*PEOPLE] * WRITES_EACH, len(PEOPLE) * WRITES_EACH):
        texts = said.setdefault(who, [])
        texts.append(text := f"message {number}.{len(texts)}")
        one.telegram.say(who, text)
        await asyncio.sleep(chance.uniform(0, 0.03))


def judge(one: Fleet, said: Said, rows: Mapping[str, Sequence[Item]]) -> None:
    """Everything that was said was taken once and answered once, in the chats too."""
    found = [evidence_of(texts, rows.get(f"dm:telegram/main/{who}", ())) for who, texts in said.items()]
    every = sum(map(len, said.values()))
    figure("F09", LOST, sum((Counter(each.said) - taken(each)).total() for each in found), 0, of=every)
    again = sum((taken(each) - Counter(each.said)).total() for each in found)
    figure("F09", TWICE, again + len(judge_chats(one.telegram, slots_of(rows))), 0, of=every)
    for each in found:
        every_turn_ended_with_one_answer(each)


# --- a replica that lags --------------------------------------------------------------------------


async def test_a_loss_by_a_replica_that_lags_is_reported(tmp_path: Path) -> None:
    """Nothing waits for the replica, and it is cut off: what it has not got is counted, and is not run again."""
    async with one_daemon(tmp_path, replicas=0) as one:
        with one.redis.replica(tmp_path / "redis-0") as replica:
            until_linked(replica.port)
            [node] = one.nodes
            await one.start(node)
            await say_to_all(one, "before")
            card = await asked(one, "ran")
            await until_copied(one)
            replica.follow(free_port())
            one.telegram.press(ANN, card, "Once")
            await until(lambda: runs_of(one, "ran") == 1)
            await say_to_all(one, "behind")
            await one.settled()
            one.redis.kill()
            replica.take_over(one.redis.port)
            await say_to_all(one, "after")
            again = await one.telegram.see(ANN, "ran", button="Once")
            assert again.id > card.id
            one.telegram.press(ANN, again, "Deny")
            await one.telegram.see(ANN, TOLD)
            await one.settled()
            assert TOLD in (await ready(node))[1]["lost"]
            revisions = (await figures(node))["lost_revisions"]
            await one.stop()
            rows = await one.everything()
    told = [shown for shown in one.telegram.shown(ANN) if TOLD in shown.text]
    figure("F09", "a loss without WAIT: times that it was told", len(told), 1)
    figure("F09", "a loss without WAIT: revisions counted", revisions, 1, least=True)
    figure("F09", RAN_TWICE, runs_of(one, "ran") - 1, 0, of=1)
    judge_loss(one, rows)


async def until_copied(one: Fleet) -> None:
    """Wait until nothing is due any more, but for the card that waits, and the replica has it all."""
    await one.telegram.until(lambda: not one.telegram.updates.pending())
    async with asyncio.timeout(PATIENCE_S):
        while True:
            now = await figures(one.nodes[0])
            if not now["due_slots"] and not now["running_turns"]:
                break
            await asyncio.sleep(0.05)
    assert redis_server.asked(one.redis.port, "WAIT 1 5000").startswith(b":1")


async def say_to_all(one: Fleet, text: str) -> None:
    """Each of them says it, and is answered."""
    for who in BEHIND:
        one.telegram.say(who, text)
    for who in BEHIND:
        await one.telegram.see(who, f"You said: {text}")


def judge_loss(one: Fleet, rows: Mapping[str, Sequence[Item]]) -> None:
    """Only what the replica had not got is missing; nobody was answered twice."""
    texts = ["before", "behind", "after"]
    kept = [taken(evidence_of(texts, rows[f"dm:telegram/main/{who}"])) for who in BEHIND]
    missing = sum((Counter(texts) - each).total() for each in kept)
    others = sum((Counter(["before", "after"]) - each).total() for each in kept)
    figure("F09", "a loss without WAIT: messages lost of those that lagged", missing - others, len(BEHIND))
    figure("F09", "a loss without WAIT: messages lost that the replica had", others, 0, of=2 * len(BEHIND))
    shown = [Counter(one.text for one in one.telegram.shown(who)) for who in BEHIND]
    again = sum(each[f"You said: {text}"] - 1 for each in shown for text in texts)
    figure("F09", TWICE, again, 0, of=len(BEHIND) * len(texts))
