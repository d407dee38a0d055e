"""Clock protocol. The only source of time for every other room."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Source of the wall clock and of a monotonic clock. Tests replace it and move it."""

    def now(self) -> datetime:
        """Return the wall clock, aware UTC: for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds: for durations."""
        ...
