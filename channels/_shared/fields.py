"""Small typed readers of a payload's fields, for a channel's `inbound`: what cannot be read is refused, by its name.

A channel adds readers of what only its platform has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import ClassVar, Self, cast

from gateway.domain.text import plain

TEXT_AT_MOST = 65_536
"""Characters: more than people may write on any platform."""
LARGEST = 2**53 - 1
"""No platform counts further, and no store need hold a larger number."""
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")  # JSON can name halves of characters; no store can keep them


class Malformed(ValueError):
    """A field is missing, or something else than it should be. The message names it, and repeats nothing of it."""


class PayloadFields:
    """One object of a payload. A field that is null counts as absent."""

    __slots__ = ("_at", "_raw")

    whole: ClassVar[str] = "payload"
    """What the object that has no place in another one is called."""

    def __init__(self, raw: object, at: str = "") -> None:
        """Take an object and its place in the payload (`event.message`). Raises `Malformed` when it is no object."""
        if not isinstance(raw, dict):
            raise Malformed(f"{at or self.whole}: an object is wanted")
        self._raw = cast("dict[str, object]", raw)
        self._at = at

    def __contains__(self, key: str) -> bool:
        """Whether the field is there."""
        return self._raw.get(key) is not None

    def flag(self, key: str) -> bool:
        """Return a truth value; False when it is absent."""
        value = self._raw.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "true or false is wanted")
        return bool(value)

    def text(self, key: str, *, most: int = TEXT_AT_MOST) -> str:
        """Return a text that can be stored; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > most:
            raise self._wrong(key, f"text of at most {most:,} characters is wanted")
        return _NOT_STORABLE.sub("\ufffd", value)

    def label(self, key: str, *, most: int) -> str:
        """Return a text that is only shown: one line of at most `most` characters, those that are seen.

        Empty when it is absent or no text: nothing depends on it, so nothing is refused for it.
        """
        value = self._raw.get(key)
        return plain(value[: 4 * most])[:most].rstrip() if isinstance(value, str) else ""

    def count(self, key: str) -> int:
        """Return a number that somebody says something is large; 0 when it is absent, or cannot be one."""
        value = self._raw.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else 0

    def object(self, key: str) -> Self:
        """Return an object that must be there."""
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
    """Write a payload so that whatever stands in it can be stored: so many characters at most, or all of it."""
    try:
        return json.dumps(payload)[:most]
    except (ValueError, TypeError, RecursionError):
        return ""  # nested deeper, or a number longer, than can be written: no JSON that a platform sent
