"""Anywhere on the path: words that somebody else chose, made fit to stand in a line of ours. Pure."""

from __future__ import annotations

# Not even `str.isprintable` knows them: letters and signs that have no shape, and signs that only choose a shape, of
# which hundreds hide a text behind one letter. U+FE0E and U+FE0F stay: common emoji are written with them.
FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Characters that nobody sees, besides white space and those that are no text at all."""


def plain(text: str) -> str:
    """Return the text as one line with nothing in it that cannot be seen; empty when there is nothing else.

    The guard against forged lines: a line break of any kind, a control character, what turns text around or hides in
    it parts words, as a space does. Taken out, it would join what stood around it to something nobody wrote.
    """
    if not text.isascii() or not text.isprintable():
        text = "".join(char if char.isprintable() and char not in FILLERS else " " for char in text)
    return " ".join(text.split())


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning with `…`, in at most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def one_line(text: str, limit: int) -> str:
    """Return the text as one plain line of at most `limit` characters; more than ten times as many are not read."""
    return cut(plain(text[: 10 * limit]), limit)
