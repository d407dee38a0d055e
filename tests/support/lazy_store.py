"""The memory store behind rows that are loaded one by one, as a server's are: a transition runs until it is complete.

No part of the path of a message. A transition that did anything but read and put rows would do it several times here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from gateway.domain.ids import mint
from gateway.store.kernel.part import Missing, Part, Source
from gateway.store.memory import MemoryStore

T = TypeVar("T")
MISSES = 100
"""A transition that misses more rows gets the others at once: so many runs are enough."""
IDS = 50
"""New ids of one transition, at most."""


class LazyRows:
    """`kernel.part.Source` of one transition: what was loaded for it, and `Missing` for the rest."""

    def __init__(self, rows: Source) -> None:
        """Start with nothing loaded."""
        self._rows = rows
        self._loaded: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of `Source` that answers from what is loaded."""

        def ask(*key: Any, **named: Any) -> Any:
            place = f"{name}{key}{named}"
            if place not in self._loaded:
                if len(self._loaded) < MISSES:
                    raise Missing(name, *key, **named)
                self.load(Missing(name, *key, **named))
            return self._loaded[place]

        return ask

    def load(self, missing: Missing) -> None:
        """Load what a transition missed."""
        place = f"{missing.rows}{missing.key}{missing.named}"
        self._loaded[place] = getattr(self._rows, missing.rows)(*missing.key, **missing.named)


class LazyStore(MemoryStore):
    """The memory store, each row of a transition loaded when it was missed."""

    runs = 0
    """Runs of transitions so far, those that missed a row included."""

    def change(self, transition: Callable[[Part], T]) -> T:
        """Run a transition until it misses no row."""
        rows, minted = LazyRows(self), [mint("") for _ in range(IDS)]
        while True:
            part = Part(cast(Source, rows), self.clock.now(), self.rev, minted=iter(minted))
            self.runs += 1
            try:
                result = transition(part)
            except Missing as missing:
                rows.load(missing)
            else:
                self.commit(part)
                return result
