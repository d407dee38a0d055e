"""F01 for sub-sessions: kill -9 at every step of a family. Each result reaches the parent once, each command runs once.

The same owner is asked for all of them, in her chat. She presses, and does not know that the daemon dies.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fault.family_rig import (
    CHAT,
    CHILD,
    CONFIG,
    Tree,
    asks,
    done,
    family_of,
    judge_family,
    spawn,
    told,
    tree,
    works,
)
from tests.fault.rig import lines_of
from tests.support.daemon import Daemon
from tests.support.model_server import Reply, Rule, ScriptedModel, unmarked
from tests.support.platform import FakePlatform
from tests.support.proof import dice, figure, times

ASK, NAMES = "Ask three sub-sessions", ("a", "b", "c")
TASKS = [f"do {name}" for name in NAMES]
FAMILIES = range(times(2, 40))
"""So many families die at random."""
POINTS = ("J4", "J5", "J6", "J7", "J8", "J9", "J10", "J11", "J12", "J13", "J14", "J15", "J20", "PARKED", "WOKEN")


def three() -> list[Rule]:
    """Three children that run a command each."""
    rules = asks(ASK, *(spawn(task) for task in TASKS))
    return [*rules, *(rule for name in NAMES for rule in works(name))]


def results_in(body: dict[str, Any]) -> list[str]:
    """The results in a question."""
    return [unmarked(message["content"]) for message in body["messages"] if message["role"] == "tool"]


async def judge_three(found: Tree) -> None:
    """Everything that holds wherever the daemon died."""
    await judge_family(found, [ASK], NAMES, TASKS)
    assert {results for _, text, results in found.questions() if text == ASK} == {0, 3}
    assert all(results_in(body) == [done(name) for name in NAMES] for body in found.asked(ASK, 3))
    ran = [len(lines_of(found.daemon.state, f"ran-{name}")) for name in NAMES]
    asked, deaths = len(found.questions()), len(found.births) - 1
    assert max(ran) <= 1
    figure("F01", "questions of a family of three that were asked again, a death", (asked - 8) / max(deaths, 1), 3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("point", "passage"),
    [
        ("J13", 3),  # the parent's spawning steps
        ("J5", 3),  # children ask their model
        ("J11", 4),  # a child's command: 1 to 3 were the parent's
        ("J13", 4),  # it ran, and nobody knows
        ("J15", 3),  # the last child has ended: its parent is woken
        ("J11", 1),
        ("J12", 3),
        ("J13", 1),
        ("J8", 2),
        ("J10", 2),
        ("J14", 1),
        ("J15", 1),
    ],
)
async def test_killed_at(point: str, passage: int, tmp_path: Path) -> None:
    """Each child's result reaches the parent exactly once, each command ran at most once, and the answer comes."""
    async with tree(tmp_path, three(), armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death(ASK, "Summed up")
        assert len(found.asked(ASK, 0)) == 1
        await judge_three(found)


@pytest.mark.whole("a kill at each passage of a child stays")
async def test_killed_while_they_stream(tmp_path: Path) -> None:
    """Half an answer of a child is no answer: each is asked once more, and its parent is told the whole one."""
    slow = [
        Rule(text=f"do {name}", system=CHILD, results=1, times=1, reply=Reply(text="Half of it", chunks=9, delay_s=2))
        for name in NAMES
    ]
    async with tree(tmp_path, [*slow, *three()]) as found:
        await found.say(ASK)
        pressing = asyncio.create_task(found.press_all(), name="ann presses")
        await found.model.until(lambda: sum(len(found.asked(task, 1)) for task in TASKS) == 3)
        pressing.cancel()
        await asyncio.sleep(0.1)
        await found.killed()
        await found.answer("Summed up")
        assert [len(found.asked(task, 1)) for task in TASKS] == [2, 2, 2]
        assert [len(found.asked(task, 0)) for task in TASKS] == [1, 1, 1]
        await judge_three(found)


async def test_killed_while_their_cards_are_open(tmp_path: Path) -> None:
    """Nothing is asked of a model or a person again; the buttons that were shown before work, once."""
    async with tree(tmp_path, three()) as found:
        await found.say(ASK)
        await found.platform.until(lambda: len(found.handles("once")) == 3)
        asked = len(found.model.requests)
        await found.killed()
        await asyncio.sleep(0.3)  # time to do what it must not
        assert len(found.model.requests) == asked
        await found.answer("Summed up")
        assert len([card for card in found.platform.in_chat(CHAT, "card") if not card.repeated]) == 3
        for handle in list(found.pressed):
            again = await found.platform.press("1001", handle)
            assert (await found.platform.acked(again))["result"] == "already"
        await judge_three(found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("point", "passage"), [("WOKEN", 1), ("J5", 5), ("J15", 4)])
@pytest.mark.whole("kills at the passages of a child stay")
async def test_killed_when_the_parent_wakes(point: str, passage: int, tmp_path: Path) -> None:
    """Children that only answer. One that still thinks when the first of them wakes their parent is asked once more."""
    short = [Rule(text=f"do {name}", system=CHILD, reply=Reply(text=done(name), think_s=0.8)) for name in NAMES]
    async with tree(tmp_path, [*short, *three()], armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death(ASK, "Summed up")
        assert {len(found.asked(task)) for task in TASKS} <= {1, 2}
        await judge_three(found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.whole("a kill at each passage of a child stays")
async def test_killed_again_and_again(family: int, tmp_path: Path) -> None:
    """Several deaths in one family, anywhere and at any moment."""
    rules = [one.model_copy(update={"reply": one.reply.model_copy(update={"think_s": 0.1})}) for one in three()]
    async with tree(tmp_path, rules) as found:
        pressing = asyncio.create_task(found.press_all(), name="ann presses")
        await found.platform.say("1001", ASK)
        came = await found.die_again_and_again(POINTS, dice(f"family {family}"), times=3)
        pressing.cancel()
        began = time.monotonic()
        await found.answer("Summed up")
        figure("F01", "deaths of one family", came + 1, 4, least=True)
        figure("F01", "from the last life to the answer of a family", time.monotonic() - began, times(10, 5), "s")
        await judge_three(found)


async def test_no_family_loses_a_member(tmp_path: Path) -> None:
    """Many families of five that are spawned side by side, and nobody dies: every child does its task.

    One in twelve lost some: a child that was begun while its turn was being read was taken for one that was not. Long
    tasks make the reading long.
    """
    families, names = times(30, 30, small=8), ("a", "b", "c", "d", "e")
    quick = [Rule(text=f"do {name}", system=CHILD, reply=Reply(text=done(name))) for name in names]
    calls = [spawn(f"do {name}, and do it well" + " and well" * 1_000) for name in names]
    async with tree(tmp_path, [*quick, *asks("Family", *calls)]) as found:
        for n in range(1, families + 1):
            await found.say(f"Family {n}")
            await found.platform.see(CHAT, "answer", "Summed up", count=n)
        wanted = "\n".join(["Summed up:", *(done(name) for name in names)])
        lost = [one.text for one in found.platform.in_chat(CHAT, "answer") if one.text != wanted]
        figure("F01", "families that lost a member without any death", len(lost), 0, of=families)
        assert lost == []


# --- a sub-session of a sub-session, and one that nobody waits for ---------------------------------


@pytest.mark.parametrize(("point", "passage"), [("J13", 2), ("J15", 1)])
@pytest.mark.sampled(1)
@pytest.mark.whole("kills at the passages of a child stay")
async def test_a_grandchild(point: str, passage: int, tmp_path: Path) -> None:
    """The grandchild is spawned, and ends: each result goes up one step, once."""
    above = asks("Have it done", spawn("have it done below"))
    between = asks("have it done below", spawn("do a"), then="From below: {results}", system=CHILD)
    async with tree(tmp_path, [*above, *between, *works("a")], armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death("Have it done", "Summed up")
        assert found.results("have it done below") == [done("a")]
        assert found.results("Have it done") == [f"From below: {done('a')}"]
        await judge_family(found, ["Have it done"], ["a"], ["have it done below", "do a"])
        family = await family_of(found.daemon.state)
        assert [line.session.lineage.depth for line in family if line.session.lineage] == [1, 2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("point", "passage"), [("J13", 1), ("J15", 2), ("J4", 4), ("J6", 5)])
@pytest.mark.sampled(1)
@pytest.mark.whole("the store's own test of a child's end, and kills at its passages, stay")
async def test_an_end_that_comes_as_a_message(point: str, passage: int, tmp_path: Path) -> None:
    """Mode session: one message tells the end, one turn answers it, and the child's words stand in it as data."""
    begin = asks("Begin it", spawn("do a", mode="session"), then="It has begun.")
    told_of = Rule(text="has ended: done", reply=Reply(text="I heard of it."))
    async with tree(tmp_path, [*works("a"), told_of, *begin], armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death("Begin it", "I heard of it")
        [child] = await family_of_stopped(found)
        assert found.results("Begin it")[0].startswith(f"{child} has begun.")
        end = f"The sub-session `{child}` has ended: done."
        items = await judge_family(found, ["Begin it", end], ["a"], ["do a"])
        assert told(items) == [f"Task: do a\n\n{done('a')}"]
        for said in ("It has begun", "I heard of it"):
            shown = [message for message in found.platform.in_chat(CHAT, "answer") if said in message.text]
            # One that was on its way at the kill may have been shown by the next life alone, which marks it.
            assert shown
            assert sum(not message.repeated for message in shown) <= 1
        last = found.asked("has ended: done")[-1]["messages"][-1]["content"]
        assert last.index(end) < last.index("never instructions to you") < last.index(done("a"))


async def family_of_stopped(found: Tree) -> list[str]:
    """The ids of the sub-sessions. Stops the daemon."""
    assert await found.daemon.stop() == 0
    return [line.session.id for line in await family_of(found.daemon.state)]


# --- without a model ------------------------------------------------------------------------------


async def test_spawned_by_hand_without_a_model(tmp_path: Path) -> None:
    """`/spawn /shell …` runs that command in a sub-session; to other words it says how a model is attached."""
    async with FakePlatform().serve() as platform, ScriptedModel() as nobody:
        found = Tree(Daemon(folder=tmp_path, warm=True, config=CONFIG.format(port=platform.port)), platform, nobody)
        await found.begin()
        try:
            await found.say("/spawn /shell echo x >> ran-a; echo it was $((6 * 7))")
            assert "it was 42" in await found.answer("it was 42")
            await found.say("/spawn how full is the disk?")
            assert "No model is attached" in await found.answer("No model is attached")
            assert await found.daemon.stop() == 0
        finally:
            await found.daemon.kill()
        assert lines_of(found.daemon.state, "ran-a") == ["x"]
        assert [line.turn.state for line in await family_of(found.daemon.state)] == ["done", "done"]
