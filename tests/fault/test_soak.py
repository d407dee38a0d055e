"""F31: people who never stop writing, and trouble that never ends: half a minute of it, and an hour with `--large`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.bars import FAULT
from tests.soak.soak import Plan, soaked
from tests.support.proof import KILLS, counted, figure, seed, times

AN_HOUR = Plan(minutes=60, seed=0)
HALF_A_MINUTE = Plan(
    minutes=0.35,
    seed=0,
    per_s=2,
    limited=False,
    sample_s=0.5,
    gust_s=3,
    expiry_s=3,
    still_s=0,
    lives=(0.55, 0.35),
    short_lives=(0.1,),
)
"""The same in small: how its memory grows cannot be told from so little, and is not judged."""


@pytest.mark.timeout(times(240, 2 * 3600))
@pytest.mark.whole("half a minute of load; each of its faults has tests of its own beside it")
async def test_a_soak(tmp_path: Path) -> None:
    """Nothing is lost, doubled or left over, whatever happens meanwhile, and what it holds at rest does not grow."""
    plan = replace(times(HALF_A_MINUTE, AN_HOUR), seed=seed())
    async with soaked(plan, tmp_path, lambda text: None) as outcome:
        counted(KILLS, outcome.kills, FAULT)
        missed = [bar.told() for bar in outcome.misses()]
        sys.stdout.write("\n".join([*missed, str(outcome.counts)]))
        for bar in outcome.bars:
            if bar.held:
                figure(FAULT, bar.what, bar.value, bar.bar, bar.unit, of=bar.of)
        for bar in outcome.misses():
            figure(FAULT, bar.what, bar.value, bar.bar, bar.unit, of=bar.of)
