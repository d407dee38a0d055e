"""Small typed readers of a payload's fields, for `inbound`: a field is what it should be, or the payload is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

LARGEST = 2**53 - 1
"""Telegram's ids have at most 52 significant bits; what is larger is none, and no store need hold it."""
TEXT_AT_MOST = 65_536
"""Characters; Telegram's own limit is 4,096 UTF-16 units."""
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")  # JSON can name halves of characters; no store can keep them


class Malformed(ValueError):
    """A field is missing, or something else than it should be. The message names it, and repeats nothing of it."""


class Fields:
    """One object of a payload. A field that is null counts as absent."""

    __slots__ = ("_at", "_raw")

    def __init__(self, raw: object, at: str = "") -> None:
        """Take an object and its place in the payload (`message.from`). Raises `Malformed` when it is no object."""
        if not isinstance(raw, dict):
            raise Malformed(f"{at or 'update'}: an object is wanted")
        self._raw = cast("dict[str, object]", raw)
        self._at = at

    def __contains__(self, key: str) -> bool:
        """Whether the field is there."""
        return self._raw.get(key) is not None

    def present(self) -> Sequence[str]:
        """The fields that are there, in the order of the payload."""
        return [key for key, value in self._raw.items() if value is not None]

    def number(self, key: str, *, least: int = -LARGEST, most: int = LARGEST) -> int:
        """Return a whole number."""
        value = self._raw.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Malformed(f"{self._place(key)}: a whole number is wanted")
        return value

    def flag(self, key: str) -> bool:
        """Return a truth value; False when it is absent."""
        value = self._raw.get(key)
        if value is not None and not isinstance(value, bool):
            raise Malformed(f"{self._place(key)}: true or false is wanted")
        return bool(value)

    def need_flag(self, key: str) -> bool:
        """Return a truth value that must be there."""
        if key not in self:
            raise Malformed(f"{self._place(key)}: true or false is wanted")
        return self.flag(key)

    def text(self, key: str) -> str:
        """Return a text that can be stored; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > TEXT_AT_MOST:
            raise Malformed(f"{self._place(key)}: text of at most {TEXT_AT_MOST:,} characters is wanted")
        return _NOT_STORABLE.sub("\ufffd", value)

    def word(self, key: str, *, most: int) -> str:
        """Return a text that must be there."""
        value = self.text(key)
        if not 0 < len(value.encode()) <= most:
            raise Malformed(f"{self._place(key)}: text of 1 to {most} bytes is wanted")
        return value

    def label(self, key: str, *, most: int) -> str:
        """Return a text that is only shown: one line of at most `most` characters, those that are seen.

        Empty when it is absent or no text: nothing depends on it, so nothing is refused for it.
        """
        value = self._raw.get(key)
        text = value[: 4 * most] if isinstance(value, str) else ""
        words = ("".join(char for char in word if char.isprintable()) for word in text.split())
        return " ".join(filter(None, words))[:most].rstrip()

    def count(self, key: str) -> int:
        """Return a number that somebody says something is large; 0 when it is absent, or cannot be one."""
        value = self._raw.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else 0

    def object(self, key: str) -> Fields:
        """Return an object that must be there."""
        return Fields(self._raw.get(key), self._place(key))

    def maybe(self, key: str) -> Fields | None:
        """Return an object, or None when it is absent."""
        return self.object(key) if key in self else None

    def objects(self, key: str, *, most: int) -> Sequence[Fields]:
        """Return a list of objects; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(cast("list[object]", value)) > most:
            raise Malformed(f"{self._place(key)}: a list of at most {most} is wanted")
        return [Fields(one, self._place(key)) for one in cast("list[object]", value)]

    def _place(self, key: str) -> str:
        return f"{self._at}.{key}" if self._at else key
