from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import model_validator

from gateway.domain.tools import Risk
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, in_background


async def test_others_have_their_turn_between_the_calls_of_one_answer(tmp_path: Path) -> None:
    """A model may make 50 calls of 64 KiB in one answer, and each takes 13 ms to decide."""
    turns = 0
    seen: list[int] = []

    class Slow(Text):
        @model_validator(mode="after")
        def look(self) -> Slow:
            seen.append(turns)
            return self

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, arguments=Slow)])
    lease = await engine.planned(*(f"shell:{n}" for n in range(20)))
    seen.clear()
    async with in_background(others()):
        assert not await engine.settle(lease)
    assert len(await engine.waits(lease.turn)) == 20
    assert len(set(seen)) == 20
