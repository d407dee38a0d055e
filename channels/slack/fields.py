"""Typed readers of a payload's fields: the shared ones and Slack's ids. Used by `inbound`."""

from __future__ import annotations

import re

from channels._shared import fields
from channels._shared.fields import Malformed
from channels.slack import ids

__all__ = ["Malformed", "SlackFields"]

_ID = re.compile(r"[A-Z][A-Z0-9]{1,31}")


class SlackFields(fields.PayloadFields):
    """One object of a Slack payload."""

    __slots__ = ()

    def word(self, key: str, *, most: int) -> str:
        """Return a required, non-empty text."""
        value = self.text(key, most=most)
        if not value:
            raise self._wrong(key, f"text of 1 to {most:,} characters is wanted")
        return value

    def is_true(self, key: str) -> bool:
        """Return True only if the field is present and exactly `true`."""
        return self._raw.get(key) is True

    def id(self, key: str, kinds: str) -> str:
        """Return a required id that begins with one of `kinds`: `C` for a channel, `UW` for a person."""
        value = self.text(key, most=64)
        if not _ID.fullmatch(value) or value[0] not in kinds:
            raise self._wrong(key, f"an id of Slack is wanted ({', '.join(kinds)}…)")
        return value

    def maybe_id(self, key: str, kinds: str) -> str:
        """Return an id; empty when it is absent or empty."""
        return self.id(key, kinds) if self.text(key, most=64) else ""

    def ts(self, key: str) -> str:
        """Return a required message timestamp: seconds with a fraction that is part of the id."""
        value = self.text(key, most=64)
        if not ids.is_ts(value):
            raise self._wrong(key, "a timestamp like 1795248720.000100 is wanted")
        return value

    def maybe_ts(self, key: str) -> str:
        """Return a timestamp; empty when it is absent."""
        return self.ts(key) if key in self else ""
