"""Beside a running turn: why its work is cut short. Whoever ends it says so before the work is cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class CancelReason(StrEnum):
    """Why a turn's work is cut short."""

    STOP = "stop"
    SHUTDOWN = "shutdown"
    LIMIT = "limit"
    """The turn has worked for as long as it may."""
    LOST = "lost"
    """Another holder has the turn; nothing may be written."""


@dataclass(slots=True)
class Cancellation:
    """Set before a turn's work is cancelled, so that what is cut can say why."""

    why: CancelReason | None = None


HALTED_TEXT: Mapping[CancelReason, str] = MappingProxyType(
    {
        CancelReason.STOP: "cancelled by /stop",
        CancelReason.SHUTDOWN: "cancelled by shutdown",
        CancelReason.LIMIT: "cancelled: the turn's time is over",
    }
)
"""What the result of a call says that was cut. Whoever lost the turn may write none."""
