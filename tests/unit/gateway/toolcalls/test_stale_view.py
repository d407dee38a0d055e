"""Stale view: a call that ends during a read of its turn is decided again, not started again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.domain.children import SpawnMode
from gateway.domain.ids import TurnId
from gateway.domain.tools import Effect, Park, Risk, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import WaitKind, WaitState
from gateway.ports import Task, ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, calls


@dataclass
class SlowViews:
    """Store that reads a turn and returns it late."""

    store: Any

    async def turn(self, turn: TurnId) -> TurnView:
        view: TurnView = await self.store.turn(turn)
        await asyncio.sleep(0.05)
        return view


async def test_a_child_begun_while_its_turn_is_read(tmp_path: Path) -> None:
    async def body(ctx: ToolContext, args: Text) -> ToolResult | Park:
        await asyncio.sleep(0.02 if args.text == "second" else 0)
        return await ctx.sessions.spawn(Task(text=args.text, mode=SpawnMode.RUN))

    engine = Engine(tmp_path, [FakeTool(name="sessions_spawn", risk=Risk.NONE, effect=Effect.IDEMPOTENT, body=body)])
    engine.calls.queries = SlowViews(engine.store)  # type: ignore[assignment] - all that calls read of it
    engine.model.script = [calls("sessions_spawn:first", "sessions_spawn:second")]
    await engine.say("hello")
    lease = await engine.claim()
    await engine.run(lease)
    assert (await engine.store.turn(lease.turn)).turn.state is TurnState.PARKED
    waits = [one.state for one in await engine.waits(lease.turn) if one.kind is WaitKind.CHILD]
    assert waits == [WaitState.OPEN, WaitState.OPEN]
