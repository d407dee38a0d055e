"""The context of a call of an own tool: in a contained worker, and in the daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from config.own_files import read_file
from gateway.domain.ids import SessionId
from gateway.errors import BadRequest
from gateway.ports import ToolContext
from tests.support.calls import BareCall
from tests.support.fakes import NO_SANDBOX
from tests.support.patience import PATIENCE_S
from tests.support.surroundings import until
from tests.unit.gateway.app.own_tools_rig import Place, place

TELLS = '''
import os, time
from pathlib import Path
from agent_tools.own import Context, tool

@tool(risk="read", effect="pure")
def tells(ctx: Context, code: str = "''") -> object:
    """Tell what an expression is."""
    return eval(code)

def stops(ctx):
    print("begun", flush=True)
    ctx.progress("waiting")
    while not ctx.cancelled:
        time.sleep(0.01)
    (ctx.workspace / "cleaned").write_text("up")
    print("cleaned up")
'''


def test_a_context_is_no_argument_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text(TELLS)
    (one,) = read_file(tmp_path / "tells.py", trusted=False).tools

    assert one.context == "ctx"
    assert list(one.schema["properties"]) == ["code"]
    assert "required" not in one.schema


@pytest.mark.parametrize(
    ("parameters", "context"),
    [
        ("a: int", ""),
        ("call: own.Context", "call"),
        ("*, call: 'own.Context', a: int = 1", "call"),
        ("ctx: str", ""),
    ],
)
def test_a_context_is_known_by_its_type(tmp_path: Path, parameters: str, context: str) -> None:
    (tmp_path / "a.py").write_text(f"@tool\ndef a({parameters}):\n    'A.'\n")
    read = read_file(tmp_path / "a.py", trusted=False)

    assert [one.context for one in read.tools] == [context]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("a: Context, b: Context", "takes 2 contexts. Leave one of a and b out"),
        ("a: Context = None", "has a default. Write `a: Context` alone"),
        ("ctx", "has no type"),
        ("ctx: Context | None", "is not known"),
    ],
)
def test_a_wrong_context_is_told(tmp_path: Path, parameters: str, problem: str) -> None:
    (tmp_path / "a.py").write_text(f"@tool\ndef a({parameters}):\n    'A.'\n")

    assert problem in read_file(tmp_path / "a.py", trusted=False).problem


# --- in a worker ----------------------------------------------------------------------------------


async def test_a_worker_gives_session_and_workspace(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("tells.py", TELLS)

        told = await at.call("tells", {"code": "[ctx.session, str(ctx.workspace), ctx.cancelled]"})

        assert told == f'["main:ann", "{at.workspace}", false]'


async def test_progress_is_reported_and_is_no_result(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("tells.py", TELLS)

        assert await at.call("tells", {"code": "(ctx.progress('one'), ctx.progress('x' * 999)) and 'done'"}) == "done"
        assert (at.told, at.printed.data) == (["one", "x" * 200], b"")
        kept = "globals().setdefault('kept', ctx) and 'kept'"
        await at.call("tells", {"code": kept})
        assert await at.call("tells", {"code": "[kept.cancelled, kept.progress('late')]"}) == "[true, null]"
        assert len(at.told) == 2


async def test_a_flood_of_progress_ends_with_its_call(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("tells.py", TELLS)

        assert await at.call("tells", {"code": "[*map(ctx.progress, map(str, range(2_000)))] and 'done'"}) == "done"
        assert at.told[-1] == "1999"
        with pytest.raises(BadRequest, match="no usable answer"):
            await at.call("tells", {"code": "ctx._show('x' * 10_000)"})


async def test_a_cancelled_call_may_clean_up(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("tells.py", TELLS)

        await _cancel_when_told(at, "stops(ctx)")

        assert (at.workspace / "cleaned").read_text() == "up"
        assert at.printed.data == b"begun\ncleaned up\n"
        assert not at.workers.count


async def test_a_call_that_does_not_look_is_ended(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("tells.py", TELLS)

        await _cancel_when_told(at, "(ctx.progress('waiting'), time.sleep(600))")

        assert not at.workers.count


async def _cancel_when_told(at: Place, code: str) -> None:
    """Cancel a call once it tells its progress."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        calling = group.create_task(at.call("tells", {"code": code}))
        await until(lambda: at.told == ["waiting"], within_s=20)
        calling.cancel()


# --- in the daemon --------------------------------------------------------------------------------


async def test_a_trusted_file_gets_the_same_context(tmp_path: Path) -> None:
    ctx = BareCall(tmp_path)
    async with place(tmp_path, NO_SANDBOX, trusts_all=True) as at:
        at.save("tells.py", TELLS)
        (tool,) = at.source.snapshot()

        async def call(code: str) -> Any:
            return await tool.run(cast("ToolContext", ctx), {"code": code})

        facts = await call("(ctx.progress('one'), [ctx.session, str(ctx.workspace), ctx.cancelled])[1]")
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            calling = group.create_task(call("stops(ctx)"))
            await until(lambda: ctx.told == ["one", "waiting"], within_s=20)
            calling.cancel()
        await until((tmp_path / "cleaned").exists, within_s=20)

    assert facts.text == f'["{SessionId("main:ann")}", "{tmp_path}", false]'
