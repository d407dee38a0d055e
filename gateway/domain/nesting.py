"""How deep a value of JSON or TOML is nested. Python's own reader goes deeper than its writer, and than people do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

LEVELS_AT_MOST = 100
"""What is nested deeper is not taken from models: it could not be written again, told or stored."""


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield all that stands in a value, level by level, until nothing in it holds anything more."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    while level:
        inside = [part for one in level for part in _parts(one)]
        yield inside
        level = [part for part in inside if isinstance(part, dict | list)]


def _parts(value: dict[str, Any] | list[Any]) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value


def is_deeper(value: object, most: int) -> bool:
    """Whether tables and lists stand in one another more than `most` deep; `{}` is 1 deep."""
    return next(islice(levels(value), most, None), None) is not None


def is_too_deep(text: str | bytes) -> bool:
    """Whether JSON, which the text is, is nested more than 100 deep."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"{") + data.count(b"[") <= LEVELS_AT_MOST:  # as nearly always
        return False
    try:
        return is_deeper(json.loads(data), LEVELS_AT_MOST)
    except RecursionError:  # deeper than Python's own reader goes from here
        return True
