"""The wall clock may be set at any time: durations must not depend on it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gateway.domain.tools import ToolResult
from gateway.ports import ToolContext
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import FailingStore, FakeTool, Text, done


class Wall(FakeClock):
    """A clock that can be set."""

    def __init__(self) -> None:
        """Begin right."""
        super().__init__()
        self.off = timedelta()

    def now(self) -> datetime:
        """Return the time that it shows."""
        return super().now() + self.off


@pytest.mark.parametrize("hours", [-3, 3])
async def test_a_call_takes_as_long_as_it_takes_when_the_clock_is_set(tmp_path: Path, hours: int) -> None:
    clock = Wall()

    async def work(_ctx: ToolContext, _args: Text) -> ToolResult:
        clock.advance(2)
        clock.off = timedelta(hours=hours)
        return done("worked")

    engine = Engine(tmp_path, [FakeTool(name="work", body=work)], store=FailingStore(clock))
    lease = await engine.planned("work")
    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).duration_ms == 2000
