"""Write-ahead: nothing starts and nobody is told before the store has it; no outcome is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gateway.domain.audit import StartRecord
from gateway.domain.ids import TurnId, WaitId
from gateway.domain.messages import Inbound
from gateway.domain.routes import Accepted, Route, WhileRunning
from gateway.domain.slots import NewSlot
from gateway.domain.steps import StepState
from gateway.domain.tools import ApprovalMode, Effect, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, TurnKind
from gateway.domain.views import TurnView
from gateway.domain.waits import StartOutcome
from gateway.errors import StoreError
from gateway.ports import ToolContext, Waiting
from tests.support.clock import FakeClock
from tests.support.engine import Engine, served
from tests.support.fakes import FailingStore, FakeTool, Text, done
from tests.support.patience import PATIENCE_S


class NotBegun(FailingStore):
    """Store that fails the first start of a call."""

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Fail the first time, then store."""
        self._maybe("start_step")
        return await super().start_step(lease, n, wait, beginning)


class NotKept(FailingStore):
    """Store that fails the first write of a result."""

    async def finish_step(
        self, lease: Lease, n: int, result: ToolResult, slots: Sequence[NewSlot] = ()
    ) -> TurnView | None:
        """Fail the first time, then store."""
        self._maybe("finish_step")
        return await super().finish_step(lease, n, result, slots)


class Full(FailingStore):
    """Store without room for a message."""

    async def accept(
        self, route: Route, message: Inbound, kind: TurnKind, *, running: WhileRunning, say_if_waiting: Waiting | None
    ) -> Accepted:
        """Fail."""
        raise StoreError("The disk is full.")


async def test_a_call_runs_only_when_it_is_stored_that_it_began(tmp_path: Path) -> None:
    store = NotBegun(FakeClock())
    store.failing["start_step"] = 1
    seen: list[StepState] = []
    turn: list[TurnId] = []

    async def look(_ctx: ToolContext, _args: Text) -> ToolResult:
        view = await store.turn(turn[0])
        seen.append(view.steps[1].state)
        return done("did it")

    write = FakeTool(
        name="write", risk=Risk.WRITE, effect=Effect.UNSAFE, body=look, approval={"main": ApprovalMode.ALLOW}
    )
    engine = Engine(tmp_path, [write], store=store)
    lease = await engine.planned("write")
    turn.append(lease.turn)

    assert await engine.settle(lease)
    assert seen == [StepState.STARTED]
    assert await engine.results(lease.turn) == [ResultStatus.OK]


async def test_unstored_result_is_stored_later_and_the_call_runs_once(tmp_path: Path) -> None:
    store = NotKept(FakeClock())
    store.failing["finish_step"] = 1
    write = FakeTool(name="write", risk=Risk.WRITE, effect=Effect.UNSAFE, approval={"main": ApprovalMode.ALLOW})
    engine = Engine(tmp_path, [write], store=store)
    lease = await engine.planned("write:it")

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert (found.status, found.text) == (ResultStatus.OK, "write it")
    assert write.calls == ["it"]


async def test_page_confirms_a_message_only_when_stored(tmp_path: Path) -> None:
    async with (
        served(Engine(tmp_path, store=Full(FakeClock()))) as page,
        page.client(await page.cookie()) as client,
        client.ws_connect(f"{page.url}/ws") as socket,
        asyncio.timeout(PATIENCE_S),
    ):
        await socket.send_json({"op": "say", "id": "say-00001", "text": "hello"})
        while (frame := await socket.receive_json())["op"] != "said":
            pass

    assert (frame["id"], frame["ok"]) == ("say-00001", False)
    assert "The disk is full." in frame["error"]
