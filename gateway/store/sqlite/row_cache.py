"""Rows that the SQLite store keeps in memory between transitions: the last used ones of each kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

ROWS_KEPT = 500
"""Maximum kept rows of each kind, the last used ones."""
BYTES_KEPT = 1_000_000
"""Maximum characters in the texts of kept rows of one kind."""


class RowCache(Generic[K, R]):
    """Stored rows of one kind, the last used ones last, bounded by number and by size."""

    __slots__ = ("_bytes", "_load", "_size", "rows")

    def __init__(self, load: Callable[[K], R | None], size: Callable[[R], int] | None = None) -> None:
        """Start empty. `load` reads a row. `size` returns the characters of its texts; None: none to speak of."""
        self.rows: dict[K, R] = {}
        self._load = load
        self._size = size
        self._bytes = 0

    def get(self, key: K) -> R | None:
        """Return a kept row, or load and keep it."""
        found = self.rows.pop(key, None)
        if found is not None:
            self.rows[key] = found
            return found
        found = self._load(key)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: K, row: R) -> None:
        """Keep a row, in place of an older version of it."""
        before = self.rows.pop(key, None)
        self.rows[key] = row
        if self._size is not None:
            self._bytes += self._size(row) - (0 if before is None else self._size(before))

    def drop(self, key: K) -> None:
        """Forget a row."""
        before = self.rows.pop(key, None)
        if before is not None and self._size is not None:
            self._bytes -= self._size(before)

    def trim(self) -> None:
        """Forget the rows that were not used for the longest."""
        while len(self.rows) > ROWS_KEPT or self._bytes > BYTES_KEPT:
            self.drop(next(iter(self.rows)))

    def clear(self) -> None:
        """Forget all rows."""
        self.rows.clear()
        self._bytes = 0
