"""Characters that make a command look like another one: hidden, reordering and look-alike ones. Pure."""

from __future__ import annotations

import re
import unicodedata

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WORD = re.compile(r"[^\s'\"/=:,;|&<>()]+")
_LOOK_LATIN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_LETTERS = ("\u115f", "\u1160", "\u3164", "\uffa0", "\u2800")
"""Letters and signs that are shown as nothing."""


def why_unclear(text: str) -> str:
    """Return the reason why people may misread a script, in one sentence; empty when there is none."""
    if _CONTROL.search(text):
        return "It contains control characters, which can hide what a person reads."
    if text.isascii():
        return ""
    if any(char in _LETTERS or (not char.isascii() and unicodedata.category(char) in _HIDDEN) for char in text):
        return "It contains hidden or reordering characters, which can hide what a person reads."
    if any(_imitates_ascii(char) for char in text if not char.isascii()):
        return "It contains characters that look like others, so it may not be what a person reads."
    if any(_mixes(word) for word in _WORD.findall(text)):
        return "It mixes alphabets in one word, so it may not be what a person reads."
    return ""


def _imitates_ascii(char: str) -> bool:
    """Return whether a character beyond ASCII is one of ASCII in another form: fullwidth, a dash, a quote."""
    if unicodedata.category(char) in ("Pd", "Pi", "Pf") or char in "\u2044\u2215\u2236\ua789\u2223\u01c0":
        return True
    return unicodedata.normalize("NFKC", char).isascii()


def _mixes(word: str) -> bool:
    """Return whether a word has ASCII letters beside letters of an alphabet that looks like Latin."""
    if not any(char.isascii() and char.isalpha() for char in word):
        return False
    return any(unicodedata.name(char, "").startswith(_LOOK_LATIN) for char in word if not char.isascii())
