"""Durability of a store, and its replicas: the terms on which it is used. Shown by `/readyz`, `check` and the page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Durability(StrEnum):
    """Part of what it acknowledged that a store may lose when its server or machine dies."""

    ALWAYS = "always"
    """Nothing, as long as the disk stays."""
    ONE_SECOND = "one-second"
    """The last second or two."""
    NONE = "none"
    """Everything."""

    @property
    def warning(self) -> str:
        """Return the warning for people; empty when nothing is lost."""
        return _WARNINGS[self]


_WARNINGS = {
    Durability.ALWAYS: "",
    Durability.ONE_SECOND: "The store is a Redis that may lose the last seconds of what it acknowledged.",
    Durability.NONE: "The store is a Redis that may lose all that it acknowledged.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTerms:
    """Terms on which a store is used, as the operator wrote them or as they were found."""

    durability: Durability | None = None
    """None: only a store that loses nothing is good enough."""
    replicas: int = 0
    """Replicas that must have a write before it counts."""

    def keeps(self, *, restarted: bool, took_over: bool) -> bool:
        """Return whether a server knows all that was acknowledged, once it restarted, or took over as a replica."""
        return not ((restarted and self.durability is not Durability.ALWAYS) or (took_over and not self.replicas))

    @property
    def warning(self) -> str:
        """Return the text for people about a store that may lose something."""
        return "" if self.durability is None else self.durability.warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Progress of a store on a server, as far as a node knows."""

    life: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedStore:
    """The store that a node worked on last, as it noted."""

    store: str
    """Id of the store; empty when it noted none."""
    note: str
    """File with the node's note of it."""
    reached: Reached = Reached()
    """Revision at the node's last note; a lower one in the store means a loss."""


STRICT = StoreTerms()
"""Terms of a store that loses nothing and has no replicas to wait for."""
