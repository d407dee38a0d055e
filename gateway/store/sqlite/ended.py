"""Ended turns that the SQLite store keeps in memory: a model is given the last ones again with each question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from gateway.model.tools import Step
from gateway.model.views import TurnView
from gateway.model.waits import Wait, WaitState
from gateway.store.codec import ANSWER, CALL, RESULT

TURNS_KEPT = 500
"""About 4 KB each, besides their texts."""
CHARS_KEPT = 2_000_000
AROUND = 150
"""Characters of a stored answer that says nothing."""


class EndedTurns:
    """The ended turns that were asked for last, by their place in the store. Threads look into it; the event loop fills
    it, with what is committed.

    They never change again, but for their session, which whoever takes them from here reads anew. Reading and decoding
    40 turns takes 2 ms of CPU.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._turns: OrderedDict[int, tuple[TurnView, int]] = OrderedDict()
        self._chars = 0

    def find(self, places: Iterable[int]) -> dict[int, TurnView]:
        """Return those that are kept."""
        found: dict[int, TurnView] = {}
        with self._lock:
            for place in places:
                if place in self._turns:
                    self._turns.move_to_end(place)
                    found[place] = self._turns[place][0]
        return found

    def keep(self, turns: Mapping[int, TurnView]) -> None:
        """Keep these, and forget those that nobody asked for the longest."""
        with self._lock:
            for place, view in turns.items():
                if place not in self._turns and not any(map(_may_change, view.waits)):
                    self._turns[place] = view, _chars(view)
                    self._chars += self._turns[place][1]
            while len(self._turns) > TURNS_KEPT or self._chars > CHARS_KEPT:
                _, (_, forgotten) = self._turns.popitem(last=False)
                self._chars -= forgotten


def _may_change(wait: Wait) -> bool:
    """A timer outlives its turn; it is decided within a minute."""
    return wait.state in (WaitState.OPEN, WaitState.APPROVED)


def _chars(view: TurnView) -> int:
    """About how long it is as it is stored."""
    said = sum(len(one.message.text) + len(one.message.quoted) for one in view.inputs)
    return said + sum(_chars_of_step(step) for step in view.steps)


def _chars_of_step(step: Step) -> int:
    answer = 0 if step.answer is None else AROUND + len(step.answer.text)
    if step.answer is not None and (step.answer.calls or step.answer.opaque):
        answer = len(ANSWER.dump(step.answer))
    call = 0 if step.call is None else len(CALL.dump(step.call))
    return answer + call + (0 if step.result is None else len(RESULT.dump(step.result)))
