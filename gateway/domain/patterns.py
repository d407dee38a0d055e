"""Patterns of rules: `*` is any text, `?` one character. Used by `policy.rules` and `config.rule_checks`."""

from __future__ import annotations

import re
from functools import lru_cache

_ANY, _ONE = "\x00\x00", "\x01"
"""Stand-ins for the wildcards of a pattern that is itself compared: no pattern has these characters."""


def fits(pattern: str, text: str) -> bool:
    """Return whether a pattern fits the whole text. A ` *` at its end also fits without: `ls *` and `ls`."""
    return expression(pattern).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def expression(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern: it fits a text that the expression matches whole."""
    pattern = pattern.replace("\\", "/")
    ends = (pattern, pattern[:-2]) if pattern.endswith(" *") else (pattern,)
    return re.compile("|".join(map(_one_expression, ends)), re.DOTALL)


def _one_expression(pattern: str) -> str:
    """Return a pattern as an expression. Atomic groups: without them, `*a*a*b` takes minutes for a long text."""
    first, *rest = ("".join("." if char == "?" else re.escape(char) for char in part) for part in pattern.split("*"))
    if not rest:
        return first
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return f"{first}{middle}.*{rest[-1]}"


def covers(wide: str, narrow: str) -> bool:
    """Return whether `wide` surely fits every text that `narrow` fits. False where that is not certain."""
    if _ANY[0] in f"{wide}{narrow}" or _ONE in f"{wide}{narrow}":
        return False
    ends = [narrow, narrow[:-2]] if narrow.endswith(" *") else [narrow]
    return all(fits(wide, one.replace("*", filled).replace("?", _ONE)) for one in ends for filled in ("", _ANY))
