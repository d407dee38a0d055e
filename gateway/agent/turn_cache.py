"""Cache of values derived from ended turns, which recur in every prompt. Used by `prompt` and `transcript`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.domain.ids import TurnId
from gateway.domain.sizes import bytes_of
from gateway.domain.views import TurnView

T = TypeVar("T")

TURNS_KEPT = 160
"""Turns in one cache."""
BYTES_AT_MOST = 16_000
"""Bytes of a cached turn, such as ten steps and 4,000 characters. Longer ones are not cached: an entry keeps its turn's
messages and steps in memory."""
BYTES_KEPT = 2_000_000
"""Bytes of all turns in one cache."""


class PerTurnCache(Generic[T]):
    """Cache of one value for each turn, derived from that turn alone. Evicts the oldest entries.

    An entry is valid while the turn's messages and steps are the very same objects, which never change. A store that
    returns other objects causes a new computation.
    """

    def __init__(self, compute: Callable[[TurnView], T]) -> None:
        """Start empty. `compute` must read nothing but the turn and its session's kind."""
        self._compute = compute
        self._kept: dict[TurnId, tuple[object, object, int, T]] = {}
        """The turn's messages and steps, their bytes, and the value."""
        self._bytes = 0

    def of(self, view: TurnView) -> T:
        """Return the turn's value, cached or computed now."""
        known = self._kept.get(view.turn.id)
        if known is not None and known[0] is view.inputs and known[1] is view.steps:
            return known[3]
        found = self._compute(view)
        self._forget(view.turn.id)
        size = bytes_of(view)
        if size <= BYTES_AT_MOST:
            self._kept[view.turn.id] = view.inputs, view.steps, size, found
            self._bytes += size
            while len(self._kept) > TURNS_KEPT or self._bytes > BYTES_KEPT:
                self._forget(next(iter(self._kept)))
        return found

    def _forget(self, turn: TurnId) -> None:
        known = self._kept.pop(turn, None)
        self._bytes -= known[2] if known is not None else 0
