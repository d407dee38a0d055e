"""Beside a model's answer: reading JSON of others, in which anything may stand anywhere. Pure."""

from __future__ import annotations

from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    """The object, or an empty one for what is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list, in order; none for what is no list."""
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def as_text(value: object) -> str:
    """The text, or an empty one for what is none."""
    return value if isinstance(value, str) else ""
