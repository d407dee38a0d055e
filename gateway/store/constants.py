"""Limits of a store's own work, and sets of states that its indexes know. A rule of the product is beside its use."""

from __future__ import annotations

from datetime import timedelta

from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState

AT_ONCE = 500
"""Rows per call of a sweep."""
SENDING_AT_MOST = timedelta(seconds=60)
"""Timeout of sending a slot; then it is taken back from its sender."""
FILE_SENDING_AT_MOST = timedelta(minutes=15)
"""Limit for a slot with a file, whose upload may take as long as `file_may_take_s` returns."""
HELD = frozenset({TurnState.RUNNING, TurnState.STOPPING})
UNDECIDED = frozenset({WaitState.OPEN, WaitState.APPROVED})
