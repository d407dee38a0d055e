"""Limits of a store's own work, and sets of states that its indexes know. A rule of the product is beside its use."""

from __future__ import annotations

from gateway.domain.turns import TurnState
from gateway.domain.waits import WaitState

AT_ONCE = 500
"""Rows per call of a sweep."""
HELD = frozenset({TurnState.RUNNING, TurnState.STOPPING})
"""States of a turn that a node holds by a lease."""
UNDECIDED = frozenset({WaitState.OPEN, WaitState.APPROVED})
"""States of a wait that time or a stop may still end."""
