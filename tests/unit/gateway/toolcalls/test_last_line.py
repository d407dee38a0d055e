"""Last line of a call's output, as its turn reports it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.domain.events import Activity
from gateway.domain.tools import Risk, ToolResult
from gateway.domain.views import TurnView
from gateway.ports import ToolContext
from gateway.system.cancellation import Cancellation
from gateway.toolcalls.last_line import KEPT_CHARS, LastLine, last_line
from tests.support.engine import Engine
from tests.support.fakes import Body, FakeTool, Text, done
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one\ntwo\n", "two"),
        ("one\n\n  two  \n\n \n", "two"),
        ("one\ntw", "tw"),
        ("10 %\r20 %\r30 %", "30 %"),
        ("30 %\r", "30 %"),
        ("a\x1b[31mred\x1b[0m\n\x1b[2K\x1b[1G", "ared"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("one\u2028two", "two"),
    ],
)
def test_the_last_line_with_text(text: str, line: str) -> None:
    assert last_line(text) == line


async def test_lines_are_reported_now_and_then() -> None:
    found: list[str] = []
    reported = asyncio.Event()

    def report(text: str) -> None:
        found.append(text)
        reported.set()

    line = LastLine(report, every_s=0.05)
    for n in range(100):
        line.add(f"line {n}\n")
    assert found == ["line 0"]
    reported.clear()
    async with asyncio.timeout(PATIENCE_S):
        await reported.wait()
    assert found == ["line 0", "line 99"]
    await asyncio.sleep(0.1)
    line.add("line 99\n")  # nothing new
    assert found == ["line 0", "line 99"]
    line.add("x" * 10 * KEPT_CHARS)
    assert found[2:] == ["x" * KEPT_CHARS]
    line.close()
    line.close()


async def test_nothing_is_reported_after_the_end() -> None:
    found: list[str] = []
    line = LastLine(found.append, every_s=0.01)
    line.add("one\n")
    line.add("two\n")
    line.close()
    await asyncio.sleep(0.05)
    assert found == ["one"]


async def test_the_activity_of_a_turn_has_the_line_of_its_first_call(tmp_path: Path) -> None:
    async def body(ctx: ToolContext, args: Text) -> ToolResult:
        for n in range(3):
            ctx.output.write(f"{args.text} {n}: hush-hush-42\n".encode())
            await asyncio.sleep(0)
        return done()

    found, _ = await _two_calls(tmp_path, body)

    assert [one.tail for one in found if one.calls == ("read: a", "read: b")] == ["", "a 0: [hidden]"]
    assert not [one for one in found if "hush" in one.tail or (one.tail.startswith("b") and one.calls[0] == "read: a")]


async def test_progress_of_a_call_is_its_line_and_no_result(tmp_path: Path) -> None:
    async def body(ctx: ToolContext, args: Text) -> ToolResult:
        ctx.progress(f"{ctx.session} {args.text}\u202e hush-hush-42\nforged")
        await asyncio.sleep(0)
        ctx.output.write(b"printed")
        return done("")

    found, view = await _two_calls(tmp_path, body)

    tails = [one.tail for one in found if one.calls == ("read: a", "read: b")]
    assert tails == ["", f"{view.session.id} a [hidden] forged"]
    assert [step.result.text for step in view.steps if step.result] == ["printed", "printed"]


async def _two_calls(tmp_path: Path, body: Body) -> tuple[list[Activity], TurnView]:
    """Run two calls of one turn. Return what the turn reported, and how it was in the end."""
    read = FakeTool(name="read", risk=Risk.READ, body=body)
    engine = Engine(tmp_path, [read], secrets=["hush-hush-42"])
    lease = await engine.planned("read:a", "read:b")
    found: list[Activity] = []
    view = await engine.store.turn(lease.turn)
    await engine.calls.settle(view, engine.registry.snapshot(), lease, Cancellation(), found.append)
    return found, await engine.store.turn(lease.turn)
