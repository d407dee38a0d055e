"""Nesting depth of values."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from gateway.domain.nesting import LEVELS_AT_MOST, is_deeper, is_too_deep, levels


def nested(depth: int) -> object:
    """Return nested lists and tables, alternating; the innermost is empty."""
    nothing: dict[str, object] = {}
    return reduce(_around, range(depth - 1), nothing)


def _around(value: object, n: int) -> object:
    table: dict[str, object] = {"a": value, "b": 5}
    listed: list[object] = [5, value, table["b"]]
    return table if n % 2 else listed


@pytest.mark.parametrize("depth", [1, 2, 3, 99, 100])
def test_depth_at_the_limit_is_accepted(depth: int) -> None:
    assert not is_deeper(nested(depth), depth)
    assert is_deeper([nested(depth)], depth)


def test_depth_beyond_the_json_writer_is_counted() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert is_deeper(value, 100)


def test_levels_yields_members_level_by_level() -> None:
    assert list(levels({"a": [1, {"b": 2}], "c": 3})) == [[[1, {"b": 2}], 3], [1, {"b": 2}], [2]]
    assert list(levels([])) == [[]]
    for value in (5, "text", None):
        assert list(levels(value)) == []
        assert not is_deeper(value, 0)


@pytest.mark.parametrize(("depth", "too_deep"), [(1, False), (LEVELS_AT_MOST - 1, False), (LEVELS_AT_MOST, True)])
@pytest.mark.parametrize("beside", ["", "{[" * 100])
def test_json_is_accepted_up_to_a_hundred_levels(beside: str, depth: int, *, too_deep: bool) -> None:
    """Only nesting counts, not the number of brackets."""
    text = json.dumps([nested(depth), beside])
    assert is_too_deep(text) is too_deep
    assert is_too_deep(text.encode()) is too_deep
