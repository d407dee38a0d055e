"""F01 for messages to sub-sessions: kill -9 at each point between asking again and the answer, which comes once."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.domain.turns import Turn
from gateway.domain.waits import Wait
from tests.fault.family_rig import CHILD, ROOT, Tree, asks, family_of, spawn, told, tree
from tests.fault.oracle import FINAL
from tests.fault.rig import stored
from tests.support.model_server import Call, Reply, Rule
from tests.support.patience import PATIENCE_S

ASK, AGAIN, FIRST, MORE = "Count the files", "Ask it again", "count all files", "and the folders"
RULES = [
    *asks(ASK, spawn(FIRST)),
    Rule(text=FIRST, system=CHILD, reply=Reply(text="Nine files.")),
    Rule(text=MORE, system=CHILD, reply=Reply(text="Three folders.")),
    Rule(text="has ended", reply=Reply(text="Told later.")),
]


async def child_of(found: Tree) -> str:
    """Let the sub-session answer once. Return its id, which stands below its answer."""
    await found.say(ASK)
    await found.answer("Summed up")
    named = re.search(r"From (child:t\w+\.\d+)\.", json.dumps(found.asked(ASK, 1)[-1]))
    assert named is not None
    return named[1]


async def judge(found: Tree, child: str, *, waits: bool) -> None:
    """Everything that holds wherever the daemon died."""
    assert await found.daemon.stop() == 0, found.daemon.log[-3000:]
    (line,) = await family_of(found.daemon.state)
    below, above = await stored(found.daemon.state, child), await stored(found.daemon.state, ROOT)
    assert line.session.id == child
    assert [turn.state.value for turn in below if isinstance(turn, Turn)] == ["done", "done"]
    assert [one.message.text for one in below if isinstance(one, Received)] == [FIRST, MORE]
    assert all(wait.state in FINAL for wait in above if isinstance(wait, Wait))
    if waits:
        assert found.results(AGAIN) == ["Three folders."]
        assert told(above) == []
    else:
        assert told(above) == [f"Task: {FIRST}\n\nThree folders."]


async def asked_again(folder: Path, point: str, passage: int, *, wait_s: int) -> None:
    """Ask a sub-session that has ended again, and die at this passage of a point."""
    async with tree(folder, RULES) as found:
        child = await child_of(found)
        arguments = json.dumps({"session": child, "message": MORE, "wait_s": wait_s})
        found.model.rules += asks(AGAIN, Call(name="sessions_send", arguments=arguments), then="Asked:\n{results}")
        await found.daemon.kill()
        await found.begin(f"{point}:kill:{passage}")
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(found.come_back())
            await found.say(AGAIN)
            group.create_task(found.answer("Three folders" if wait_s else "Told later"))
        await judge(found, child, waits=bool(wait_s))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("point", "passage"),
    [
        ("J13", 1),  # the message and the wait are stored, and the caller does not know
        ("J4", 2),  # the further task is claimed
        ("J5", 2),
        ("J6", 2),
        ("J8", 1),
        ("J10", 1),
        ("J11", 1),
        ("J12", 1),
        ("J15", 1),  # the further task ends, which wakes its parent
        ("J15", 2),
        ("J20", 1),
        ("PARKED", 1),
        ("WOKEN", 1),
    ],
)
async def test_asking_again_outlives_a_kill(point: str, passage: int, tmp_path: Path) -> None:
    """The message arrives once, and its answer is the result of the call."""
    await asked_again(tmp_path, point, passage, wait_s=3600)


@pytest.mark.whole("a message whose answer is waited for stays")
@pytest.mark.parametrize(
    ("point", "passage"),
    [("J13", 1), ("J14", 1), ("J4", 2), ("J5", 3), ("J15", 1), ("J15", 2), ("J20", 1), ("J11", 1), ("J12", 1)],
)
async def test_message_for_later_outlives_a_kill(point: str, passage: int, tmp_path: Path) -> None:
    """The call returns at once, and the answer is one message."""
    await asked_again(tmp_path, point, passage, wait_s=0)


@pytest.mark.whole("the store's own test of a message that is sent again stays")
@pytest.mark.parametrize("point", ["J11", "J12", "J13", "J14"])
async def test_message_to_the_parent_outlives_a_kill(point: str, tmp_path: Path) -> None:
    """The second call of the family is the child's: its message reaches the parent once, before its end does."""
    says = Call(name="sessions_send", arguments=json.dumps({"session": "parent", "message": "Half of it."}))
    rules = [
        *asks("look", spawn("count all files", mode="session"), then="It looks."),
        *asks("count all", says, then="Nine files.", system=CHILD),
        Rule(text="is at work", reply=Reply(text="Half is there.")),
        Rule(text="has ended", reply=Reply(text="All is there.")),
    ]
    async with tree(tmp_path, rules) as found:
        await found.daemon.kill()
        await found.begin(f"{point}:kill:2")
        async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(found.come_back())
            await found.say("look")
            group.create_task(found.answer("is there"))
        await found.answer("All is there.")
        assert await found.daemon.stop() == 0, found.daemon.log[-3000:]
        above = await stored(found.daemon.state, ROOT)
        assert told(above) == ["Half of it.", "Task: count all files\n\nNine files."]
