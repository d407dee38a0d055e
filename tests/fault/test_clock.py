"""F20: the clock jumps, there and back, while a card is open and while a command runs. Two machines, one store."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gateway.domain.turns import ENDED, Turn
from gateway.domain.waits import PressResult, Wait
from gateway.system.clock import SystemClock
from tests.fault.rig import lines_of, until
from tests.fault.two import Pair, pair
from tests.support.patience import PATIENCE_S
from tests.support.proof import RAN_TWICE, figure, times

HOUR_S, DAY_S = 3600.0, 86_400.0
JUMPS_S = times((-DAY_S, 600.0, DAY_S), (-DAY_S, -HOUR_S, -1.0, 600.0, HOUR_S + 1, DAY_S), small=(-DAY_S, DAY_S))
"""An open card expires after an hour, a lease after 15 s."""


class JumpingClock(SystemClock):
    """The machine's clock as it shows when somebody sets it; durations go on as they do."""

    def __init__(self) -> None:
        """Begin with the right time."""
        self._off_s = 0.0

    def now(self) -> datetime:
        """Return what the clock on the wall shows."""
        return super().now() + timedelta(seconds=self._off_s)

    def jump(self, seconds: float) -> None:
        """Set it forward, or back."""
        self._off_s += seconds


async def ended(two: Pair, turns: int) -> list[Turn]:
    """Wait until so many turns have ended."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [item for item in await two.items() if isinstance(item, Turn)]
            if len(found) == turns and all(turn.state in ENDED for turn in found):
                return found
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_clock_jump_with_an_open_card(jump_s: float, tmp_path: Path) -> None:
    """Its button works, unless its hour has passed by the clock; and the next one works after a jump back."""
    clock = JumpingClock()
    async with pair(tmp_path, clock) as two:
        await two.say(0, "/shell echo x >> ran")
        wait = await two.asked()
        clock.jump(jump_s)
        pressed = await two.press(1, wait)
        await ended(two, 1)
        expired = jump_s >= HOUR_S
        figure(
            "F20", "cards that expired too early or too late", (pressed is not PressResult.APPROVED) != expired, 0, of=1
        )
        assert len(lines_of(tmp_path, "ran")) == (0 if expired else 1)
        clock.jump(-jump_s)
        await two.say(1, "/shell echo x >> again")
        assert await two.press(0, await two.asked()) is PressResult.APPROVED
        turns = await ended(two, 2)
        figure("F20", "turns that were stuck", sum(turn.state not in ENDED for turn in turns), 0, of=len(turns))
        assert lines_of(tmp_path, "again") == ["x"]
        waits = [item for item in await two.items() if isinstance(item, Wait) and item.approval]
        assert len(waits) == 2


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_clock_jump_during_a_command(jump_s: float, tmp_path: Path) -> None:
    """It runs once, and its turn ends, whoever holds the lease afterwards."""
    clock = JumpingClock()
    async with pair(tmp_path, clock) as two:
        await two.say(0, "/shell echo x >> ran; sleep 1")
        assert await two.press(1, await two.asked()) is PressResult.APPROVED
        await until(lambda: lines_of(tmp_path, "ran"))
        clock.jump(jump_s)
        await ended(two, 1)
        clock.jump(-jump_s)
        await two.say(1, "hello")
        turns = await ended(two, 2)
        figure("F20", "turns that were stuck", sum(turn.state not in ENDED for turn in turns), 0, of=len(turns))
        ran = len(lines_of(tmp_path, "ran"))
        figure("F20", RAN_TWICE, ran - 1, 0, of=1)
