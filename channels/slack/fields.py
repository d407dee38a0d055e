"""Small typed readers of a payload's fields, for `inbound`: a field is what it should be, or the payload is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

TEXT_AT_MOST = 65_536
"""Characters; people may write 12,000, apps 40,000."""
LARGEST = 2**53 - 1
"""No file is larger, and no store need hold a larger number."""
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")  # JSON can name halves of characters; no store can keep them
_ID = re.compile(r"[A-Z][A-Z0-9]{1,31}")
_TS = re.compile(r"[1-9]\d{0,10}\.\d{1,9}", re.ASCII)


class Malformed(ValueError):
    """A field is missing, or something else than it should be. The message names it, and repeats nothing of it."""


class Fields:
    """One object of a payload. A field that is null counts as absent."""

    __slots__ = ("_at", "_raw")

    def __init__(self, raw: object, at: str = "") -> None:
        """Take an object and its place in the payload (`event.message`). Raises `Malformed` when it is no object."""
        if not isinstance(raw, dict):
            raise Malformed(f"{at or 'payload'}: an object is wanted")
        self._raw = cast("dict[str, object]", raw)
        self._at = at

    def __contains__(self, key: str) -> bool:
        """Whether the field is there."""
        return self._raw.get(key) is not None

    def flag(self, key: str) -> bool:
        """Return a truth value; False when it is absent."""
        value = self._raw.get(key)
        if value is not None and not isinstance(value, bool):
            raise Malformed(f"{self._place(key)}: true or false is wanted")
        return bool(value)

    def text(self, key: str, *, most: int = TEXT_AT_MOST) -> str:
        """Return a text that can be stored; empty when it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > most:
            raise Malformed(f"{self._place(key)}: text of at most {most:,} characters is wanted")
        return _NOT_STORABLE.sub("\ufffd", value)

    def word(self, key: str, *, most: int) -> str:
        """Return a text that must be there."""
        value = self.text(key, most=most)
        if not value:
            raise Malformed(f"{self._place(key)}: text of 1 to {most:,} characters is wanted")
        return value

    def label(self, key: str, *, most: int) -> str:
        """Return a text that is only shown: one line of at most `most` characters, those that are seen.

        Empty when it is absent or no text: nothing depends on it, so nothing is refused for it.
        """
        value = self._raw.get(key)
        text = value[: 4 * most] if isinstance(value, str) else ""
        words = ("".join(char for char in word if char.isprintable()) for word in text.split())
        return " ".join(filter(None, words))[:most].rstrip()

    def is_true(self, key: str) -> bool:
        """Whether it is there and true; whatever else it is, is a no."""
        return self._raw.get(key) is True

    def count(self, key: str) -> int:
        """Return a number that somebody says something is large; 0 when it is absent, or cannot be one."""
        value = self._raw.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else 0

    def id(self, key: str, kinds: str) -> str:
        """Return an id that must be there and begin with one of `kinds`: `C` for a channel, `UW` for a person."""
        value = self.text(key, most=64)
        if not _ID.fullmatch(value) or value[0] not in kinds:
            raise Malformed(f"{self._place(key)}: an id of Slack is wanted ({', '.join(kinds)}…)")
        return value

    def maybe_id(self, key: str, kinds: str) -> str:
        """Return an id; empty when it is absent, or empty itself."""
        return self.id(key, kinds) if self.text(key, most=64) else ""

    def ts(self, key: str) -> str:
        """Return a message's timestamp, which must be there: seconds with a fraction that is part of the id."""
        value = self.text(key, most=64)
        if not _TS.fullmatch(value):
            raise Malformed(f"{self._place(key)}: a timestamp like 1795248720.000100 is wanted")
        return value

    def maybe_ts(self, key: str) -> str:
        """Return a timestamp; empty when it is absent."""
        return self.ts(key) if key in self else ""

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
