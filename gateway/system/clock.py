"""System clock: the only module that reads it. Passed in by `gateway.app`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """`ports.Clock` of the operating system."""

    def now(self) -> datetime:
        """Return the wall clock, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()
