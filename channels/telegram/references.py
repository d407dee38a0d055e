"""On the way out: links of Markdown that are defined apart from their text: `[text][label]`, `[label]: url`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from channels._shared.markdown import label_key

DEFINITIONS = 500
"""Definitions of one text that are read."""
_DEFINITION = re.compile(
    r"^ {0,3}\[(?P<label>[^\[\]\\\n]{1,200})\]:[ \t]*+<?(?P<url>https?://[^\s<>]{1,2048}+)>?"
    r"(?:[ \t]++(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*+$",
    re.IGNORECASE | re.MULTILINE,
)
"""Nothing but web addresses: `[ERROR]: timeout` is a text."""

References: TypeAlias = Mapping[str, Mapping[str, str]]
"""By label, as the parser looks them up."""


def references(texts: Iterable[str]) -> References:
    """Return the definitions in these texts; of several with one label the first counts."""
    found: dict[str, Mapping[str, str]] = {}
    for text in texts:
        for match in _DEFINITION.finditer(text) if "]:" in text else ():
            if len(found) >= DEFINITIONS:
                return found
            found.setdefault(label_key(match["label"]), {"href": match["url"], "title": ""})
    return found


def defines(text: str) -> set[str] | None:
    """Return the labels that a paragraph defines; None when it says anything else."""
    if "]:" not in text:
        return None
    found = [_DEFINITION.fullmatch(line) for line in text.split("\n")]
    labels = {label_key(match["label"]) for match in found if match}
    return labels if all(found) else None
