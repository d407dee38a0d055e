"""Typed readers of payload fields. Used by each channel's `inbound`; an unreadable field is refused by its name.

A channel adds readers for fields that only its platform has. `object_of` and `json_object` read answers leniently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from gateway.domain.text import plain

TEXT_AT_MOST = 65_536
"""Characters in a text field, at most; more than any platform lets people write."""
LARGEST = 2**53 - 1
"""Largest accepted number; no platform counts further, and no store need hold a larger one."""
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")  # JSON can name halves of characters; no store can keep them


class Malformed(ValueError):
    """Error for a missing or invalid field. The message names the field and repeats nothing of its content."""


class PayloadFields:
    """One object of a payload. A null field counts as absent."""

    __slots__ = ("_at", "_raw")

    whole: ClassVar[str] = "payload"
    """Name of the top-level object in error messages."""

    def __init__(self, raw: object, at: str = "") -> None:
        """Take an object and its path in the payload (`event.message`). Raises `Malformed` when it is no object."""
        if not isinstance(raw, dict):
            raise Malformed(f"{at or self.whole}: an object is wanted")
        self._raw = cast("dict[str, object]", raw)
        self._at = at

    def __contains__(self, key: str) -> bool:
        """Return True if the field is present."""
        return self._raw.get(key) is not None

    def flag(self, key: str) -> bool:
        """Return a boolean; False when it is absent."""
        value = self._raw.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "true or false is wanted")
        return bool(value)

    def text(self, key: str, *, most: int = TEXT_AT_MOST) -> str:
        """Return a storable text; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > most:
            raise self._wrong(key, f"text of at most {most:,} characters is wanted")
        return _NOT_STORABLE.sub("\ufffd", value)

    def label(self, key: str, *, most: int) -> str:
        """Return a display-only text: one line of at most `most` visible characters.

        Empty when it is absent or no text: nothing depends on it, so nothing is refused for it.
        """
        value = self._raw.get(key)
        return plain(value[: 4 * most])[:most].rstrip() if isinstance(value, str) else ""

    def count(self, key: str) -> int:
        """Return a claimed size; 0 when it is absent or invalid."""
        value = self._raw.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else 0

    def object(self, key: str) -> Self:
        """Return a required object."""
        return type(self)(self._raw.get(key), self._place(key))

    def maybe(self, key: str) -> Self | None:
        """Return an object, or None when it is absent."""
        return self.object(key) if key in self else None

    def objects(self, key: str, *, most: int) -> Sequence[Self]:
        """Return a list of objects; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(cast("list[object]", value)) > most:
            raise self._wrong(key, f"a list of at most {most} is wanted")
        return [type(self)(one, self._place(key)) for one in cast("list[object]", value)]

    def _wrong(self, key: str, wanted: str) -> Malformed:
        return Malformed(f"{self._place(key)}: {wanted}")

    def _place(self, key: str) -> str:
        return f"{self._at}.{key}" if self._at else key


def as_ascii(payload: object, most: int | None) -> str:
    """Return a payload as storable ASCII JSON, cut to `most` characters; None means no limit."""
    try:
        return json.dumps(payload)[:most]
    except (ValueError, TypeError, RecursionError):
        return ""  # nested deeper, or a number longer, than can be written: no JSON that a platform sent


def object_of(value: object) -> dict[str, Any]:
    """Return an object of a payload; anything else counts as empty."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; anything else counts as empty."""
    try:
        return object_of(json.loads(text))
    except (ValueError, RecursionError):
        return {}
