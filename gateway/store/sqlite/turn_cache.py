"""Cache of ended turns for the SQLite store: every prompt contains the last ones again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.domain.messages import Received
from gateway.domain.sessions import Session
from gateway.domain.sizes import bytes_of
from gateway.domain.steps import Step
from gateway.domain.turns import Turn
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait, WaitState

TURNS_KEPT = 160
"""Turns: the histories of four sessions. Full within ten minutes, so that memory does not grow over hours."""
BYTES_KEPT = 3_000_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """A cached turn without its session, whose summary may be long and changes."""

    turn: Turn
    inputs: tuple[Received, ...]
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    size: int


class TurnCache:
    """LRU cache of ended turns by their place in the store. Threads read it; the event loop adds committed turns.

    Ended turns never change. Reading and decoding 40 of them takes 2 ms of CPU.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._turns: OrderedDict[int, _Kept] = OrderedDict()
        self._bytes = 0

    def find(self, places: Iterable[int], session: Session) -> dict[int, TurnView]:
        """Return the cached turns at these places, with the current session."""
        found: dict[int, _Kept] = {}
        with self._lock:
            for place in places:
                if place in self._turns:
                    self._turns.move_to_end(place)
                    found[place] = self._turns[place]
        return {
            place: TurnView(turn=one.turn, session=session, inputs=one.inputs, steps=one.steps, waits=one.waits)
            for place, one in found.items()
        }

    def unknown(self, places: Iterable[int]) -> int:
        """Return how many of these places are not cached."""
        with self._lock:
            return sum(place not in self._turns for place in places)

    def keep(self, turns: Mapping[int, TurnView]) -> None:
        """Cache these turns and evict the least recently used."""
        with self._lock:
            for place, view in turns.items():
                if place not in self._turns and not any(map(_may_change, view.waits)):
                    kept = _Kept(view.turn, view.inputs, view.steps, view.waits, bytes_of(view))
                    self._turns[place] = kept
                    self._bytes += kept.size
            while len(self._turns) > TURNS_KEPT or self._bytes > BYTES_KEPT:
                _, forgotten = self._turns.popitem(last=False)
                self._bytes -= forgotten.size


def _may_change(wait: Wait) -> bool:
    """Return whether a wait may still change: a timer outlives its turn by up to a minute."""
    return wait.state in (WaitState.OPEN, WaitState.APPROVED)
