"""Store failures during a call: nothing runs twice, and no result is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.domain.audit import StartRecord
from gateway.domain.ids import WaitId
from gateway.domain.slots import NewSlot
from gateway.domain.tools import ApprovalMode, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.domain.waits import StartOutcome
from gateway.errors import StoreError
from gateway.toolcalls.decide import not_approved
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import FailingStore, FakeTool, done, in_background

OK = ResultStatus.OK


class Brittle(FailingStore):
    """Store whose writes about calls fail too; an approval may be gone when its call starts."""

    not_approved = False

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Fail, or start the step."""
        self._maybe("start_step")
        if self.not_approved:
            return StartOutcome.NOT_APPROVED
        return await super().start_step(lease, n, wait, beginning)

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Fail, or finish the step."""
        self._maybe("finish_step")
        return await super().finish_step(lease, n, result, slots)


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        ("start_step", {"event": "the store failed beside a call"}),
        ("finish_step", {"event": "result not stored", "n": 1}),
    ],
)
async def test_call_runs_once_and_the_log_names_the_failed_write(
    tmp_path: Path, failing: str, line: Mapping[str, Any]
) -> None:
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(tmp_path, [read], store=Brittle(FakeClock()))
    lease = await engine.planned("read:a")
    engine.store.failing[failing] = 1

    with capture_logs() as logs:
        assert await engine.settle(lease)
    said = {"log_level": "error", "module": "scheduler", "turn": lease.turn, "error": f"The store failed: {failing}."}
    assert [one for one in logs if one["log_level"] == "error"] == [{**line, **said}]
    assert read.calls == ["a"]
    assert await engine.result(lease.turn, 1) == done("read a")


async def test_call_without_its_approval_at_start_runs_nothing(tmp_path: Path) -> None:
    shell, store = FakeTool(name="shell", risk=Risk.EXECUTE), Brittle(FakeClock())
    engine = Engine(tmp_path, [shell], store=store)
    lease = await engine.planned("shell:ls")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    store.not_approved = True

    assert await engine.settle(lease)
    assert await engine.result(lease.turn, 1) == not_approved()
    assert shell.calls == []


async def test_failed_first_read_of_the_turn_raises(tmp_path: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [shell])
    lease = await engine.planned("shell:ls")
    assert not await engine.settle(lease)
    view = await engine.store.turn(lease.turn)
    engine.store.failing["turn"] = 1

    with pytest.raises(ExceptionGroup) as failed:
        await engine.settle_telling(view, lease)
    assert failed.group_contains(StoreError)


async def test_running_call_continues_when_the_turn_cannot_be_read(tmp_path: Path) -> None:
    slow = FakeTool(name="slow", risk=Risk.READ, hold=True)
    trusted = FakeTool(name="trusted", risk=Risk.EXECUTE, approval={"main": ApprovalMode.ALLOW})
    engine = Engine(tmp_path, [slow, trusted])
    lease = await engine.planned("slow", "trusted:a", "trusted:b")
    with capture_logs() as logs:
        async with in_background(engine.settle(lease)) as settling:
            await slow.until_begun()
            engine.store.failing["turn"] = 1  # read when the first of the others has ended
            await trusted.until_begun(2)
            slow.release.set()
            await settling

    assert [one["error"] for one in logs if one["log_level"] == "error"] == ["The store failed: turn."]
    assert await engine.results(lease.turn) == [OK, OK, OK]
    assert (len(slow.calls), trusted.calls) == (1, ["a", "b"])
    assert engine.store.failing["turn"] == 0
