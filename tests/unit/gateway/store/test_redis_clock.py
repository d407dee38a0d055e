"""The time of the Redis server, as a node counts it on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.store.redis.clock import SURE_S, ServerClock
from gateway.system.clock import SystemClock
from tests.support.clock import FakeClock

SERVER = datetime(2026, 1, 1, tzinfo=UTC)


class _Machine(SystemClock):
    """A machine whose wall clock is set while it runs."""

    def __init__(self) -> None:
        self.wall, self.up_s = datetime(2020, 1, 1, tzinfo=UTC), 100.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.up_s


def test_a_set_wall_clock_does_not_move_the_time() -> None:
    """Else this node would take leases that others still hold."""
    machine = _Machine()
    clock = ServerClock(machine)
    clock.set(int(SERVER.timestamp()), 0)
    for step_s in (30, -90):
        machine.wall += timedelta(seconds=step_s)
        assert clock.now() == SERVER
    machine.up_s += 2 * SURE_S
    assert clock.now() == SERVER + timedelta(seconds=2 * SURE_S)
    assert clock.is_old()


@pytest.mark.parametrize(
    ("took_s", "told_s", "now_s"),
    [
        pytest.param(3.0, 1.0, 3.0, id="late answers change nothing"),
        pytest.param(0.5, 4.0, 4.0, id="the server is ahead"),
        pytest.param(0.5, 1.0, 1.5, id="the server was set back"),
    ],
)
def test_a_late_answer_does_not_set_the_time_back(took_s: float, told_s: float, now_s: float) -> None:
    """Else a turn may seem to begin, on another node, before the one before it ended."""
    machine = _Machine()
    clock, start = ServerClock(machine), int(SERVER.timestamp())
    clock.set(start, 0)
    machine.up_s += 3.0
    clock.set(start + int(told_s), 0, machine.up_s - took_s)
    assert clock.now() == SERVER + timedelta(seconds=now_s)


def test_a_clock_of_a_test_stands_instead() -> None:
    own = FakeClock()
    clock = ServerClock(own)
    clock.set(0, 0)
    assert clock.now() == own.now()
    assert not clock.is_old()
