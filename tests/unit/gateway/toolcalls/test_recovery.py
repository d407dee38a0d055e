"""Recovery of calls interrupted by a crash, a stop or a failure."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.steps import StepState
from gateway.domain.tools import Effect, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.errors import BadRequest
from gateway.ports import CheckContext, ToolContext
from gateway.system.cancellation import Cancellation, CancelReason
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, ToolBox, done
from tests.support.makers import inbound

OK, DENIED, ERROR, EXPIRED, CANCELLED, UNKNOWN = (
    ResultStatus.OK,
    ResultStatus.DENIED,
    ResultStatus.ERROR,
    ResultStatus.EXPIRED,
    ResultStatus.CANCELLED,
    ResultStatus.UNKNOWN,
)


@pytest.fixture
def tools() -> ToolBox:
    return ToolBox()


@pytest.fixture
def engine(tmp_path: Path, tools: ToolBox) -> Engine:
    return Engine(tmp_path, tools.all)


async def parked(engine: Engine, *named: str) -> Lease:
    """Return a parked turn whose calls are settled as far as possible."""
    lease = await engine.planned(*named)
    assert not await engine.settle(lease)
    assert await engine.store.park(lease)
    return lease


async def woken(engine: Engine, lease: Lease) -> Lease:
    """Claim the same turn again."""
    again = await engine.claim()
    assert again.turn == lease.turn
    return again


@pytest.mark.parametrize(
    ("effect", "status", "runs"),
    [
        (Effect.PURE, OK, 2),
        (Effect.IDEMPOTENT, OK, 2),
        (Effect.UNSAFE, UNKNOWN, 1),
    ],
)
async def test_a_call_that_a_crash_cut_in_half(tmp_path: Path, effect: Effect, status: ResultStatus, runs: int) -> None:
    tool = FakeTool(name="tool", risk=Risk.READ, effect=effect, hold=True)
    engine = Engine(tmp_path, [tool])
    lease = await engine.planned("tool:a")
    work = asyncio.create_task(engine.settle(lease, Cancellation(why=CancelReason.LOST)))
    await tool.until_begun()
    work.cancel()
    await asyncio.wait([work])
    assert (await engine.step(lease.turn, 1)).state is StepState.STARTED

    engine.clock.advance(16)
    await engine.store.reclaim()
    again = await woken(engine, lease)
    tool.release.set()
    assert await engine.settle(again)
    found = await engine.result(lease.turn, 1)
    assert (found.status, len(tool.calls)) == (status, runs)
    assert len(set(tool.keys)) == 1  # the same key, for a tool that can use it
    assert ("Do not assume success or failure" in found.hint) == (status is UNKNOWN)


@pytest.mark.parametrize(
    ("told", "status", "runs"),
    [(ToolResult(status=OK, text="it is done"), OK, 1), (None, OK, 2), (BadRequest("nobody knows"), UNKNOWN, 1)],
)
async def test_a_checkable_call_is_asked_what_became_of_it(
    tmp_path: Path, told: ToolResult | BadRequest | None, status: ResultStatus, runs: int
) -> None:
    async def check(_ctx: CheckContext, args: Text) -> ToolResult | None:
        assert args.text == "a"
        if isinstance(told, BadRequest):
            raise told
        return told

    tool = FakeTool(name="tool", risk=Risk.READ, effect=Effect.CHECKABLE, hold=True)
    engine = Engine(tmp_path, [replace(tool.tool(), check=check)])
    lease = await engine.planned("tool:a")
    work = asyncio.create_task(engine.settle(lease, Cancellation(why=CancelReason.LOST)))
    await tool.until_begun()
    work.cancel()
    await asyncio.wait([work])
    engine.clock.advance(16)
    await engine.store.reclaim()

    tool.release.set()
    assert await engine.settle(await woken(engine, lease))
    assert ((await engine.result(lease.turn, 1)).status, len(tool.calls)) == (status, runs)


async def test_approved_unsafe_call_cut_short_is_not_run_again(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned("shell:rm")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    tools.shell.hold = True
    work = asyncio.create_task(engine.settle(lease, Cancellation(why=CancelReason.LOST)))
    await tools.shell.until_begun()
    work.cancel()
    await asyncio.wait([work])
    engine.clock.advance(16)
    await engine.store.reclaim()

    assert await engine.settle(await woken(engine, lease))
    assert (await engine.result(lease.turn, 1)).status is UNKNOWN
    assert tools.shell.calls == ["rm"]


async def test_stop_while_a_call_runs_keeps_what_it_printed(tmp_path: Path) -> None:
    async def prints(ctx: ToolContext, _args: Text) -> ToolResult:
        ctx.output.write(b"half")
        await asyncio.sleep(3600)
        return done()

    tool = FakeTool(name="tool", risk=Risk.READ, body=prints)
    engine = Engine(tmp_path, [tool])
    lease = await engine.planned("tool", "tool")
    halt = Cancellation()
    work = asyncio.create_task(engine.settle(lease, halt))
    await tool.until_begun(2)
    await engine.ingress.message(inbound("/stop"))
    halt.why = CancelReason.STOP
    work.cancel()
    await asyncio.wait([work])

    assert await engine.results(lease.turn) == [CANCELLED, CANCELLED]
    assert (await engine.result(lease.turn, 1)).text == "half"


async def test_nothing_starts_in_a_turn_that_was_stopped(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned("trusted:a", "read")
    await engine.ingress.message(inbound("/stop"))
    assert await engine.store.renew(lease) is TurnState.STOPPING
    await engine.settle(lease)

    assert tools.trusted.calls == tools.read.calls == []
    assert await engine.results(lease.turn) == [CANCELLED, CANCELLED]


async def test_a_tool_that_is_lost_in_the_middle_fails_alone(tmp_path: Path) -> None:
    async def raises(_ctx: ToolContext, _args: Text) -> ToolResult:
        raise OSError("no such device")

    bad, good = FakeTool(name="bad", body=raises), FakeTool(name="good")
    engine = Engine(tmp_path, [bad, good])
    lease = await engine.planned("bad", "good", "bad")

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [ERROR, OK, ERROR]
