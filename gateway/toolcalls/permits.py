"""Permit to run one exact action. Only `scheduler` makes one, after the decision; `execution` demands it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.ids import TurnId
from gateway.domain.turns import Lease


@dataclass(frozen=True, slots=True)
class Permit:
    """Permit to run one exact action as one step under one lease. Made when the step is stored as started."""

    lease: Lease
    n: int
    action_sha: str

    def is_for(self, turn: TurnId, n: int, action_sha: str) -> bool:
        """Return whether the permit is for exactly this step and action."""
        return (self.lease.turn, self.n, self.action_sha) == (turn, n, action_sha)
