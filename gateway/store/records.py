"""Rows of a store as plain records, the same from every backend: what is copied from store to store, and its tally.

A record holds the stored columns of a row (`gateway.store.columns`) as plain values, and behind them the lists that a
backend may derive from other rows. Used by `gateway.store.copying`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

from gateway.store import columns
from gateway.store.codec import dump_json
from gateway.store.columns import RowColumns

T = TypeVar("T")

TABLES: dict[str, RowColumns[Any]] = {
    "session": columns.SESSIONS,
    "turn": columns.TURNS,
    "message": columns.MESSAGES,
    "step": columns.STEPS,
    "wait": columns.WAITS,
    "slot": columns.SLOTS,
    "grant": columns.GRANTS,
}
"""Kinds of records that have the columns of a table."""
KINDS = (*TABLES, "cards", "event", "fact", "spent", "audit", "poison")
"""Kinds of records. A row stands behind those that it names."""
ROWS_AT_ONCE = 500
"""Records that are written together."""
MODULUS = 1 << 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of a store."""

    kind: str
    key: str
    """Different for different rows of a kind: an id, or a JSON array."""
    values: list[Any]
    """Columns, revisions as they are; then derived lists."""
    place: int = 0
    """For a child: its place among the children of its parent. Larger ones came later; gaps mean nothing."""


class Snapshot(Protocol):
    """A store at one moment."""

    @property
    def rev(self) -> int:
        """Return its last revision."""
        ...

    def records(self) -> Iterator[Record]:
        """Yield all rows. Those of the audit come in their order, behind all facts."""
        ...


@dataclass(slots=True)
class Tally:
    """Count of the records of each kind, and a sum of their hashes that shows any difference of a row."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def add(self, record: Record) -> None:
        """Count a record. Lists that a backend derives are left out: they follow from the other rows."""
        table = TABLES.get(record.kind)
        values = record.values if table is None else record.values[: len(table.names)]
        text = f"{record.kind}\0{record.key}\0{dump_json(values)}"
        self.counts[record.kind] += 1
        self.sums[record.kind] = (self.sums[record.kind] + int(hashlib.sha256(text.encode()).hexdigest(), 16)) % MODULUS

    @property
    def total(self) -> int:
        """Return the number of records."""
        return sum(self.counts.values())

    @property
    def digest(self) -> str:
        """Return one hash over all records."""
        text = dump_json([[kind, self.counts[kind], f"{self.sums[kind]:x}"] for kind in KINDS])
        return hashlib.sha256(text.encode()).hexdigest()

    def difference(self, other: Tally) -> str:
        """Name a kind of which the two do not hold the same records; empty when they do."""
        for kind in KINDS:
            if (self.counts[kind], self.sums[kind]) != (other.counts[kind], other.sums[kind]):
                return kind
        return ""


def list_key(words: Sequence[str]) -> str:
    """Return the key of a record that several words name."""
    return dump_json(list(words))


def batches(items: Iterable[T], size: int = ROWS_AT_ONCE) -> Iterator[list[T]]:
    """Yield the items in lists of so many."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch
