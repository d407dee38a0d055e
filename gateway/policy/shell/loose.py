"""Readings of a script that cannot be parsed without doubt: too many rather than too few. For deny and ask rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

READINGS_AT_MOST = 5_000
"""Readings of one script that are compared."""
CHARS_AT_MOST = 500_000
"""Characters of all of them."""
_SEPARATOR = re.compile(r"[;|&\n(){}<>`$!]+")
_QUOTES = re.compile(r"""["'\\]""")


def loose_readings(script: str) -> tuple[str, ...] | None:
    """Return the script, and each run of words in it that may be a command; None when there are too many."""
    found: list[str] = []
    left = CHARS_AT_MOST
    for reading in _readings(script):
        left -= len(reading)
        if left < 0 or len(found) == READINGS_AT_MOST:
            return None
        found.append(reading)
    return tuple(found)


def _readings(script: str) -> Iterator[str]:
    yield script
    for part in _SEPARATOR.split(_QUOTES.sub("", script.replace("\\\n", ""))):
        words = part.split()
        for n in range(len(words)):
            rest = words[n:]
            yield " ".join(rest)
            if "/" in rest[0]:
                yield " ".join([rest[0].rpartition("/")[2], *rest[1:]])
