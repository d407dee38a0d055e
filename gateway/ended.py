"""Before a model is asked: what is worked out of ended turns is kept, because they come again with each question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.model.ids import TurnId
from gateway.model.views import TurnView

T = TypeVar("T")

TURNS_KEPT = 500
CHARS_AT_MOST = 4_000
"""Of a turn; what comes of longer ones is not kept, so that all of it together is no more than 2 MB."""


class OfEnded(Generic[T]):
    """One thing that is worked out of each turn by itself.

    It is kept for as long as the turn's messages and steps are the very same objects, which never change: a store that
    gives others has it worked out anew.
    """

    def __init__(self, work_out: Callable[[TurnView], T]) -> None:
        """Know none yet. `work_out` must look at nothing but the turn, and its session's kind."""
        self._work_out = work_out
        self._kept: dict[TurnId, tuple[object, object, T]] = {}
        """With the turn's messages and steps."""

    def of(self, view: TurnView) -> T:
        """Return it, worked out now or before."""
        known = self._kept.get(view.turn.id)
        if known is not None and known[0] is view.inputs and known[1] is view.steps:
            return known[2]
        found = self._work_out(view)
        if _chars(view) <= CHARS_AT_MOST:
            self._kept[view.turn.id] = view.inputs, view.steps, found
            if len(self._kept) > TURNS_KEPT:
                del self._kept[next(iter(self._kept))]
        return found


def _chars(view: TurnView) -> int:
    chars = sum(len(one.message.text) + len(one.message.quoted) for one in view.inputs)
    for step in view.steps:
        chars += len(step.answer.text) if step.answer else 0
        chars += len(str(step.answer.opaque)) if step.answer and step.answer.opaque else 0
        chars += len(step.call.arguments) if step.call else 0
        chars += len(step.result.text) if step.result else 0
    return chars
