"""On the way in and out: which characters of a text anybody would see."""

from __future__ import annotations

import unicodedata

from gateway.model.text import FILLERS


def visible(text: str) -> bool:
    """Whether somebody would see anything; platforms refuse a message of blanks."""
    return any(
        not char.isspace() and char not in FILLERS and unicodedata.category(char) not in {"Cc", "Cf", "Mn", "Me"}
        for char in text
    )
