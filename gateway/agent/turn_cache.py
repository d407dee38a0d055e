"""Before a model is asked: what is worked out of ended turns is kept, because they come again with each question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.domain.ids import TurnId
from gateway.domain.sizes import bytes_of
from gateway.domain.views import TurnView

T = TypeVar("T")

TURNS_KEPT = 160
BYTES_AT_MOST = 16_000
"""Of a turn, such as ten steps and 4,000 characters; what comes of longer ones is not kept, because what it is worked
out of stays with it."""
BYTES_KEPT = 2_000_000
"""Of those turns."""


class PerTurnCache(Generic[T]):
    """One thing that is worked out of each turn by itself.

    It is kept for as long as the turn's messages and steps are the very same objects, which never change: a store that
    gives others has it worked out anew.
    """

    def __init__(self, work_out: Callable[[TurnView], T]) -> None:
        """Know none yet. `work_out` must look at nothing but the turn, and its session's kind."""
        self._work_out = work_out
        self._kept: dict[TurnId, tuple[object, object, int, T]] = {}
        """With the turn's messages and steps, and their bytes."""
        self._bytes = 0

    def of(self, view: TurnView) -> T:
        """Return it, worked out now or before."""
        known = self._kept.get(view.turn.id)
        if known is not None and known[0] is view.inputs and known[1] is view.steps:
            return known[3]
        found = self._work_out(view)
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
