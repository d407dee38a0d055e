"""Rows that the SQLite store keeps in memory: bounded by number and by size, and the last used ones stay."""

from __future__ import annotations

import pytest

from gateway.store.sqlite.row_cache import BYTES_KEPT, ROWS_KEPT, RowCache

MORE = ROWS_KEPT + 10


LOADED = BYTES_KEPT // 3
LOADER = {3: LOADED, 4: 4}.get


def kept_after(rows: RowCache[int, int], size: int) -> list[int]:
    """Put more rows of a size than are kept, each twice, and return those that stay."""
    for key in range(2 * MORE):
        rows.put(key % MORE, size)
    rows.trim()
    return list(rows.rows)


@pytest.mark.parametrize(
    ("size", "kept"), [(0, ROWS_KEPT), (BYTES_KEPT // 10, 10), (BYTES_KEPT, 1), (BYTES_KEPT + 1, 0)]
)
def test_there_are_never_more_rows_than_fit(size: int, kept: int) -> None:
    rows = RowCache[int, int](LOADER, lambda row: row)
    for _ in range(2):  # what went away counts no longer
        assert kept_after(rows, size) == list(range(MORE - kept, MORE))
        rows.clear()
    assert kept_after(RowCache(LOADER), size) == list(range(10, MORE))


def test_the_row_that_was_used_last_stays() -> None:
    rows = RowCache[int, int](LOADER, lambda row: row)
    for key in (1, 2, 3):
        rows.put(key, LOADED)
    assert rows.get(1) == LOADED
    assert (rows.get(4), rows.get(5)) == (4, None)
    rows.trim()
    assert list(rows.rows) == [3, 1, 4]
    rows.drop(3)
    assert (rows.get(3), [*rows.rows]) == (LOADED, [1, 4, 3])
    rows.trim()
    assert [*rows.rows] == [1, 4, 3]
