"""Cancellation reasons of a running turn. Set by the turn worker before it cancels the turn's work.

`toolcalls.execution` has the text that a model reads for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CancelReason(StrEnum):
    """Reason why a turn's work is cancelled."""

    STOP = "stop"
    SHUTDOWN = "shutdown"
    RELEASE = "release"
    """The turn goes back to the queue: no memory, or the store failed."""
    LIMIT = "limit"
    """The turn has reached its maximum time of work."""
    LOST = "lost"
    """Another holder has the turn; nothing may be written."""


@dataclass(slots=True)
class Cancellation:
    """Cancellation of one turn. Set before the work is cancelled, so that cancelled code can read the reason."""

    why: CancelReason | None = None
