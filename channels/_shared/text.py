"""On the way in and out: which characters of a text anybody would see."""

from __future__ import annotations

import unicodedata

_BLANKS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc")
"""Characters that nobody sees, besides white space and those of the categories that `visible` knows."""


def visible(text: str) -> bool:
    """Whether somebody would see anything; platforms refuse a message of blanks."""
    return any(
        not char.isspace() and char not in _BLANKS and unicodedata.category(char) not in {"Cc", "Cf", "Mn", "Me"}
        for char in text
    )


def seen(text: str, most: int) -> str:
    """Return the characters of a text that are seen, on one line: names reorder and hide text around them."""
    words = ("".join(char for char in word if char.isprintable()) for word in text.split())
    return " ".join(filter(None, words))[:most].rstrip()
