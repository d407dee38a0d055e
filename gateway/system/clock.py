"""The machine's clock: the only place that reads it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """`ports.Clock` of the operating system."""

    def now(self) -> datetime:
        """Return the wall clock, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()
