"""Activity of a turn while its calls are settled, one line for each change."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.events import Activity
from gateway.domain.ids import TurnId, WaitId, main_session
from gateway.domain.tools import Risk
from gateway.domain.turns import Lease
from gateway.domain.waits import Verb, Wait, WaitKind, WaitState
from gateway.outbound.status_line import CALL_CHARS, activity_text
from gateway.system.redaction import READ_CHARS, Redactor
from gateway.toolcalls.scheduler import waits_for
from tests.support.engine import Engine
from tests.support.fakes import FakeTool
from tests.support.makers import ANN, EPOCH
from tests.support.turns import turn_view

A, C, T = WaitKind.APPROVAL, WaitKind.CHILD, WaitKind.TIMER


def of_kind(kind: WaitKind, state: WaitState) -> Wait:
    return Wait(
        id=WaitId("w0123456789abcdef"),
        kind=kind,
        session=main_session(ANN),
        turn=TurnId("t"),
        n=1,
        state=state,
        approval=None,
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
    )


@pytest.mark.parametrize(
    ("kinds", "line"),
    [
        ([], ""),
        ([T], ""),
        ([A], "waits for a decision"),
        ([A, A], "waits for 2 decisions"),
        ([C], "waits for a sub-session"),
        ([C, C, C], "waits for 3 sub-sessions"),
        ([C, A, C], "waits for a decision"),
    ],
)
def test_decisions_are_what_is_waited_for_first(kinds: list[WaitKind], line: str) -> None:
    waits = [of_kind(kind, WaitState.OPEN) for kind in kinds]
    over = [of_kind(kind, state) for kind in (A, C) for state in WaitState if state is not WaitState.OPEN]

    found = waits_for(turn_view(waits=[*over, *waits]))

    assert found == Activity(waits=tuple(kind for kind in kinds if kind is not T))
    assert activity_text(found, Redactor()) == line


async def told(engine: Engine, tool: FakeTool, lease: Lease) -> list[str]:
    """Return the activity shortly after the calls have started."""
    lines: list[str] = []
    view = await engine.store.turn(lease.turn)
    work = asyncio.create_task(engine.settle_telling(view, lease, lines.append))
    await tool.until_begun()
    await asyncio.sleep(0.02)
    tool.release.set()
    await work
    return lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "read"),
        (" \t", "read"),
        ("a.txt", "read: a.txt"),
        ("a\n b\x07\u2028c", "read: a b c"),
        ("x" * 114, "read: " + "x" * 114),
        ("x" * 115, "read: " + "x" * 113 + "…"),
        ("x" * 112 + " " + "y" * 9, "read: " + "x" * 112 + "…"),
        ("the key hush-hush-42", "read: the key [hidden]"),
        (" " * READ_CHARS + "z", "read:"),  # nobody looks through more
    ],
)
async def test_activity_shows_tool_and_argument_of_call(tmp_path: Path, text: str, line: str) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = Engine(tmp_path, [read], secrets=["hush-hush-42"])

    assert await told(engine, read, await engine.planned(f"read:{text}")) == [line, ""]
    assert len(line) <= CALL_CHARS == 120


@pytest.mark.parametrize(
    ("named", "line"),
    [
        (["read:a"], "read: a"),
        (["read:a", "read:b"], "read: a (and 1 more)"),
        (["read:a", "read:b", "read:c"], "read: a (and 2 more)"),
    ],
)
async def test_calls_beside_the_first_are_counted(tmp_path: Path, named: list[str], line: str) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = Engine(tmp_path, [read])
    lease = await engine.planned(*named)
    lines = await told(engine, read, lease)

    assert (lines[0], lines[-1]) == (line, "")
    assert len(set(lines)) == len(lines)


async def test_activity_line_says_that_a_decision_is_awaited(tmp_path: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [shell])
    lease = await engine.planned("shell:ls")
    lines: list[str] = []

    assert await engine.settle_telling(await engine.store.turn(lease.turn), lease, lines.append) is None
    assert lines == ["waits for a decision"]


async def test_the_same_is_not_said_twice(tmp_path: Path) -> None:
    read, shell = FakeTool(name="read", risk=Risk.READ, hold=True), FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [read, shell])
    lease = await engine.planned("read:a", "shell:ls")
    lines: list[str] = []
    view = await engine.store.turn(lease.turn)
    work = asyncio.create_task(engine.settle_telling(view, lease, lines.append))
    await read.until_begun()
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.DENY)
    await asyncio.sleep(0.02)  # what was denied has its result, and the other one still runs
    read.release.set()
    await work

    assert lines == ["read: a", ""]
