from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.system.failpoints import ENVIRONMENT, POINTS, FailPoint, FailPoints

ROOT = Path(__file__).resolve().parents[4]
HIT = re.compile(r"""(?:points\.hit|fail_point)\(\s*["']([A-Z0-9]+)["']""")


def test_every_journal_point_is_named() -> None:
    """A8: no point disappears in a refactoring."""
    assert set(POINTS) == {*(f"J{n}" for n in range(1, 21)), "WAITS", "PARKED", "WOKEN"}
    assert len(set(POINTS.values())) == len(POINTS)


def test_every_point_is_used_and_no_other() -> None:
    sources = [*ROOT.glob("gateway/**/*.py"), *ROOT.glob("channels/**/*.py"), ROOT / "tests/support/channel.py"]
    hit = {name for path in sources for name in HIT.findall(path.read_text())}

    assert hit == set(POINTS)


async def test_hit_does_nothing_when_unarmed() -> None:
    points = FailPoints.read({})

    await points.hit("J1")
    assert points.passed == {}


async def test_point_fires_only_at_its_passage() -> None:
    points = FailPoints.read({ENVIRONMENT: "J12:raise:2"})

    await points.hit("J12")
    await points.hit("J11")
    with pytest.raises(FailPoint, match="J12"):
        await points.hit("J12")
    await points.hit("J12")


async def test_several_points_are_armed() -> None:
    points = FailPoints.read({ENVIRONMENT: "J1:raise,,PARKED:raise:1"})

    for name in ("J1", "PARKED"):
        with pytest.raises(FailPoint, match=name):
            await points.hit(name)


async def test_unknown_point_raises_when_any_is_armed() -> None:
    with pytest.raises(ValueError, match="no such fail point: J99"):
        await FailPoints.read({ENVIRONMENT: "J1:sleep"}).hit("J99")


BAD = ["J99:kill", "J1", "J1:explode", "J1:raise:many", "j1:raise", "J1:raise:1:2", ":", "J1:"]


@pytest.mark.parametrize("value", BAD)
def test_invalid_setting_raises_at_start(value: str) -> None:
    with pytest.raises(ValueError, match=r"fail point|invalid literal"):
        FailPoints.read({ENVIRONMENT: value})
