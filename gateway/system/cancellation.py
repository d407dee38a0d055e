"""Cancellation reasons of a running turn. Set by the turn worker before it cancels the turn's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


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


HALTED_TEXT: Mapping[CancelReason, str] = MappingProxyType(
    {
        CancelReason.STOP: "cancelled by /stop",
        CancelReason.SHUTDOWN: "cancelled by shutdown",
        CancelReason.LIMIT: "cancelled: the turn's time is over",
    }
)
"""Hint in the result of a cancelled call. `LOST` has none: a holder that lost the turn may write no result.

Nor has `RELEASE`: when it is set, the work has failed and none of its calls runs any more.
"""
