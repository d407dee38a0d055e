"""Calls cancelled during a slow write: the outcome is stored, or given up after a timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.agent.worker import FIRST_LOOK_S
from gateway.domain.audit import StartRecord
from gateway.domain.ids import TurnId, WaitId
from gateway.domain.slots import NewSlot
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import StartOutcome
from gateway.toolcalls.scheduler import WRITTEN_WITHIN_S
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import FailingStore, FakeTool, calls, in_background, until
from tests.support.makers import inbound

A_WHILE_S = 2 * FIRST_LOOK_S
"""Seconds of a slow write, long enough for a stop to be seen."""


class Slow(FailingStore):
    """Store that is slow to confirm a call's start, or to write its result."""

    def __init__(self, *, starts: bool = False, ends_s: float = 0.0) -> None:
        super().__init__(FakeClock())
        self.starts, self.ends_s, self.under_way, self.written = starts, ends_s, asyncio.Event(), asyncio.Event()
        self.start = StartOutcome.STARTED

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Start the step, and return later."""
        started = self.start
        if started is StartOutcome.STARTED:
            started = await super().start_step(lease, n, wait, beginning)
        if self.starts:
            self.under_way.set()
            await asyncio.sleep(A_WHILE_S)
        return started

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Finish the step after a delay."""
        if self.ends_s:
            self.under_way.set()
            await asyncio.sleep(self.ends_s)
        try:
            return await super().finish_step(lease, n, result, slots)
        finally:
            self.written.set()


@pytest.fixture
def write() -> FakeTool:
    return FakeTool(name="write", risk=Risk.WRITE, effect=Effect.UNSAFE, approval={"main": ApprovalMode.ALLOW})


async def _stopped(folder: Path, store: Slow, write: FakeTool) -> tuple[Engine, TurnId]:
    """Return a turn stopped during a write."""
    engine = Engine(folder, [write], store=store)
    engine.model.script = [calls("write:x")]

    async def is_stopped() -> bool:
        return store.turns[turn].turn.state is TurnState.STOPPED

    async with in_background(engine.worker().run()):
        turn = await engine.say()
        await store.under_way.wait()
        await engine.ingress.message(inbound("/stop"))
        await until(is_stopped)
    return engine, turn


async def test_started_call_stopped_before_its_run_is_cancelled(tmp_path: Path, write: FakeTool) -> None:
    engine, turn = await _stopped(tmp_path, Slow(starts=True), write)
    found = await engine.result(turn, 1)
    assert (found.status, found.code, write.calls) == (ResultStatus.CANCELLED, "stop", [])


async def test_unstartable_call_is_cancelled_when_stopped(tmp_path: Path, write: FakeTool) -> None:
    """The stop says what becomes of it."""
    store = Slow(starts=True)
    store.start = StartOutcome.NOT_APPROVED
    engine, turn = await _stopped(tmp_path, store, write)
    assert ((await engine.result(turn, 1)).code, write.calls) == ("cancelled", [])


async def test_a_result_that_is_being_written_is_kept(tmp_path: Path, write: FakeTool) -> None:
    engine, turn = await _stopped(tmp_path, Slow(ends_s=A_WHILE_S), write)
    assert ((await engine.result(turn, 1)).status, len(write.calls)) == (ResultStatus.OK, 1)


async def test_a_store_that_hangs_holds_up_no_stop(tmp_path: Path, write: FakeTool) -> None:
    """Nobody knows then what became of the call, and the result says so; what is written too late changes nothing."""
    store = Slow(ends_s=WRITTEN_WITHIN_S + 2.0)
    began = time.monotonic()
    engine, turn = await _stopped(tmp_path, store, write)
    assert time.monotonic() - began < WRITTEN_WITHIN_S + 1.5
    assert (await engine.result(turn, 1)).status is ResultStatus.UNKNOWN
    await store.written.wait()
    assert ((await engine.result(turn, 1)).status, len(write.calls)) == (ResultStatus.UNKNOWN, 1)
