"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """`ports.Clock` under the test's hand."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Begin at `start`."""
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Return the time the test set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds the test let pass."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Put the wall clock forward or back; no time passes."""
        self._now += timedelta(seconds=seconds)
