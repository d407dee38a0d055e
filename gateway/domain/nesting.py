"""Nesting depth of JSON and TOML values. Guard in front of parsers: Python's reader accepts more levels than its
writer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

LEVELS_AT_MOST = 100
"""Maximum levels accepted from models. A deeper value could not be serialised, shown or stored."""


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield the members of a value level by level, down to the innermost."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    while level:
        inside = [part for one in level for part in _parts(one)]
        yield inside
        level = [part for part in inside if isinstance(part, dict | list)]


def _parts(value: dict[str, Any] | list[Any]) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value


def is_deeper(value: object, most: int) -> bool:
    """Return whether tables and lists are nested more than `most` levels deep; `{}` is 1 deep."""
    return next(islice(levels(value), most, None), None) is not None


def is_too_deep(text: str | bytes) -> bool:
    """Return whether a JSON text is nested more than 100 levels deep."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"{") + data.count(b"[") <= LEVELS_AT_MOST:  # the usual case: too few brackets to be too deep
        return False
    try:
        return is_deeper(json.loads(data), LEVELS_AT_MOST)
    except RecursionError:  # deeper than Python's own reader can go
        return True
