"""F01 for workflows: kill -9 at every step of a graph. Each step is done once, and each result is used once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.domain.waits import Wait
from tests.fault.family_rig import CHILD, Tree, asks, done, family_of, tree, works
from tests.fault.oracle import FINAL
from tests.fault.rig import lines_of, stored
from tests.support.model_server import Call, Reply, Rule

ASK, NAMES = "Run the graph", ("a", "b", "c", "d")
NEEDS = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def graph() -> list[Rule]:
    """A diamond of four sub-sessions, and the question that runs it."""
    steps = [{"name": name, "task": f"do {name}", "needs": NEEDS[name]} for name in NAMES]
    steps[3]["task"] = "do d with {{b}} and {{c}}"
    workers = [Rule(text=rf"\bdo {name}\b", system=CHILD, reply=Reply(text=f"Done: {name}.")) for name in NAMES]
    return [*asks(ASK, Call(name="workflow", arguments=json.dumps({"steps": steps}))), *workers]


async def judge(found: Tree) -> None:
    """Everything that holds wherever the daemon died."""
    assert await found.daemon.stop() == 0, found.daemon.log[-3000:]
    lines = await family_of(found.daemon.state)
    assert sorted(line.session.title for line in lines) == ["do a", "do b", "do c", "do d with {{b}} and {{c}}"]
    assert {line.turn.state.value for line in lines} == {"done"}
    waits = [item for item in await stored(found.daemon.state, "main:ann") if isinstance(item, Wait)]
    assert all(wait.state in FINAL for wait in waits)
    (result,) = found.results(ASK)
    assert [f"## {name}: done\n> Done: {name}." in result for name in NAMES] == [True] * 4
    assert len(found.asked(ASK, 0)) == 1
    last = found.asked("do d")[-1]
    assert "Done: b." in json.dumps(last)
    assert "Done: c." in json.dumps(last)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("point", "passage"),
    [
        ("J13", 1),  # the graph is stored, and its caller does not know
        ("J15", 2),  # a step ends, which begins two
        ("J4", 3),
        ("J5", 2),
        ("J6", 4),
        ("J10", 1),
        ("J11", 1),
        ("J12", 1),
        ("J15", 1),
        ("J15", 4),
        ("J20", 3),
        ("PARKED", 1),
        ("WOKEN", 1),
        ("J7", 1),
        *((f"J{n}", 1) for n in (16, 17, 18, 19)),
    ],
)
async def test_workflow_killed_at(point: str, passage: int, tmp_path: Path) -> None:
    """The graph goes on where it was, and its steps are there once."""
    async with tree(tmp_path, graph(), armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death(ASK, "Summed up")
        await judge(found)


@pytest.mark.whole("a step that asks; the points of the graph itself stay")
@pytest.mark.parametrize(
    ("point", "passage"), [("J7", 2), ("J8", 1), ("J9", 1), *((f"J{n}", 1) for n in (16, 17, 18, 19))]
)
async def test_workflow_with_a_card_killed_at(point: str, passage: int, tmp_path: Path) -> None:
    """A step whose command is asked for runs it once, and the step after it has its result."""
    steps = [{"name": "a", "task": "do a"}, {"name": "b", "task": "do b with {{a}}", "needs": ["a"]}]
    last = Rule(text=r"\bdo b\b", system=CHILD, reply=Reply(text="Done: b."))
    rules = [*asks(ASK, Call(name="workflow", arguments=json.dumps({"steps": steps}))), *works("a"), last]
    async with tree(tmp_path, rules, armed=f"{point}:kill:{passage}") as found:
        await found.through_a_death(ASK, "Summed up")
        assert await found.daemon.stop() == 0, found.daemon.log[-3000:]
        assert len(lines_of(found.daemon.state, "ran-a")) == 1
        (result,) = found.results(ASK)
        assert f"## a: done\n> {done('a')}" in result
        assert "## b: done\n> Done: b." in result
        assert done("a") in json.dumps(found.asked("do b")[-1])
