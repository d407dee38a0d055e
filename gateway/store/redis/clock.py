"""Clock of the Redis server, so that all nodes agree on when a lease ends."""

from __future__ import annotations

from datetime import datetime, timedelta

from gateway.ports import Clock
from gateway.store.codec import from_us
from gateway.system.clock import SystemClock

SURE_S = 1.0
"""Seconds for which the server's time is counted on without asking again."""


class ServerClock:
    """`ports.Clock` by the last known time of the server, counted on by the monotonic clock of this process.

    Its wall clock may be set while it runs: a lease must not end by that. A test's own clock stands instead of both.
    """

    def __init__(self, clock: Clock) -> None:
        """Take the clock of this process."""
        self._clock = clock
        self._is_real = isinstance(clock, SystemClock)
        self._known = clock.now(), clock.monotonic()

    def is_old(self) -> bool:
        """Return whether the next commit should ask for the time."""
        return self._is_real and self._clock.monotonic() - self._known[1] > SURE_S

    def set(self, seconds: int, micros: int, asked_at: float | None = None) -> None:
        """Take the server's time. `asked_at`: when it was asked for, in monotonic seconds; None: it is not known.

        An answer is late, by an unknown part of its round trip. So the time that is counted on stands while it may be
        right: nodes that wait long for an answer then agree with those that do not.
        """
        if not self._is_real:
            return
        told, at = from_us(seconds * 1_000_000 + micros), self._clock.monotonic()
        if asked_at is not None:
            latest = told + timedelta(seconds=at - asked_at)
            told = min(max(self.now(), told), latest)
        self._known = told, at

    def now(self) -> datetime:
        """Return the time of the server."""
        if not self._is_real:
            return self._clock.now()
        time, known_at = self._known
        return time + timedelta(seconds=self._clock.monotonic() - known_at)

    def monotonic(self) -> float:
        """Return monotonic seconds of this process."""
        return self._clock.monotonic()
