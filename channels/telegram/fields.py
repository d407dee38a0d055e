"""Typed readers of an update's fields: the shared ones and Telegram's numbers. Used by `inbound`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from channels._shared import fields
from channels._shared.fields import LARGEST, TEXT_AT_MOST, Malformed

__all__ = ["TEXT_AT_MOST", "Malformed", "TelegramFields"]


class TelegramFields(fields.PayloadFields):
    """One object of an update."""

    __slots__ = ()

    whole: ClassVar[str] = "update"

    def present(self) -> Sequence[str]:
        """Return the names of the present fields, in the order of the update."""
        return [key for key, value in self._raw.items() if value is not None]

    def number(self, key: str, *, least: int = -LARGEST, most: int = LARGEST) -> int:
        """Return a whole number. Telegram's ids have at most 52 significant bits."""
        value = self._raw.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, "a whole number is wanted")
        return value

    def need_flag(self, key: str) -> bool:
        """Return a required boolean."""
        if key not in self:
            raise self._wrong(key, "true or false is wanted")
        return self.flag(key)

    def word(self, key: str, *, most: int) -> str:
        """Return a required text of 1 to `most` bytes."""
        value = self.text(key)
        if not 0 < len(value.encode()) <= most:
            raise self._wrong(key, f"text of 1 to {most} bytes is wanted")
        return value
