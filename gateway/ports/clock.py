"""The only source of time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The only source of time. Tests move it."""

    def now(self) -> datetime:
        """Return the wall clock, aware UTC: for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back: for durations."""
        ...
