"""Accessors for untrusted JSON."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.llm.json_access import as_object, as_objects, as_text

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("value", "found", "listed", "text"),
    [
        (None, {}, [], ""),
        (True, {}, [], ""),
        (5, {}, [], ""),
        ("text", {}, [], "text"),
        ({"a": 1}, {"a": 1}, [], ""),
        (["a", {"b": 1}, [{"c": 2}], {}], {}, [{"b": 1}, {}], ""),
    ],
)
def test_json_of_another_kind_reads_as_nothing(value: object, found: Object, listed: list[Object], text: str) -> None:
    assert (as_object(value), as_objects(value), as_text(value)) == (found, listed, text)
