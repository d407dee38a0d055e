"""How deep values are nested."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from gateway.domain.nesting import LEVELS_AT_MOST, is_deeper, is_too_deep, levels


def nested(depth: int) -> object:
    """Lists and tables in one another, by turns; the innermost holds nothing."""
    nothing: dict[str, object] = {}
    return reduce(_around, range(depth - 1), nothing)


def _around(value: object, n: int) -> object:
    table: dict[str, object] = {"a": value, "b": 5}
    listed: list[object] = [5, value, table["b"]]
    return table if n % 2 else listed


@pytest.mark.parametrize("depth", [1, 2, 3, 99, 100])
def test_as_deep_as_is_allowed_is_not_too_deep(depth: int) -> None:
    assert not is_deeper(nested(depth), depth)
    assert is_deeper([nested(depth)], depth)


def test_deeper_than_python_writes_is_counted_all_the_same() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert is_deeper(value, 100)


def test_all_that_stands_in_a_value_comes_level_by_level() -> None:
    assert list(levels({"a": [1, {"b": 2}], "c": 3})) == [[[1, {"b": 2}], 3], [1, {"b": 2}], [2]]
    assert list(levels([])) == [[]]
    for value in (5, "text", None):
        assert list(levels(value)) == []
        assert not is_deeper(value, 0)


@pytest.mark.parametrize(("depth", "too_deep"), [(1, False), (LEVELS_AT_MOST - 1, False), (LEVELS_AT_MOST, True)])
@pytest.mark.parametrize("beside", ["", "{[" * 100])
def test_json_of_a_hundred_levels_is_taken(beside: str, depth: int, *, too_deep: bool) -> None:
    """What counts is what stands in one another, not how many brackets there are."""
    text = json.dumps([nested(depth), beside])
    assert is_too_deep(text) is too_deep
    assert is_too_deep(text.encode()) is too_deep
