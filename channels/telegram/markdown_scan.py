"""Regular-expression scans of Markdown source. Used by `outbound` before parsing, and by `markup` for link definitions.

Link definitions are `[text][label]` with `[label]: url` elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from channels._shared.markdown import label_key

BELOW_CHARS = 400
"""Characters below a command's output block, at most."""
READ_CHARS = 4096
"""Characters of a last paragraph in which open markup is closed, at most."""
DEFINITIONS = 500
"""Link definitions read per text, at most."""

_FENCE = re.compile(r"^[ >]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$", re.MULTILINE)
# A run of backticks is matched whole, from its start: with backtracking, 800 took a second and 4,000 two minutes.
_CODE = re.compile(r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_HALF_LINK = re.compile(r"!?\[([^\[\]\n]*)(?:\](?:\([^()\s]*|\[[^\[\]\n]*)?)?\Z")
_HALF_MARK = re.compile(r"(?:(?<!\S)(?:[*_~]{1,3}|`{1,2})|^[ \t]*#{1,6})\Z", re.MULTILINE)
_OPENS = re.compile(r"(?<![\w*\\])\*(?=[^\s*])")
_CLOSES = re.compile(r"(?<=[^\s*\\])\*(?![\w*])")
_DEFINITION = re.compile(
    r"^ {0,3}\[(?P<label>[^\[\]\\\n]{1,200})\]:[ \t]*+<?(?P<url>https?://[^\s<>]{1,2048}+)>?"
    r"(?:[ \t]++(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*+$",
    re.IGNORECASE | re.MULTILINE,
)
"""A link definition with a web address; `[ERROR]: timeout` is plain text."""

References: TypeAlias = Mapping[str, Mapping[str, str]]
"""Link definitions by label, as the parser looks them up."""


def output(markdown: str) -> tuple[str, str] | None:
    """Return the code and the text below it, if the text is one fenced block with at most a few words after it.

    Command output has this form.
    """
    text = markdown.strip()
    begin = _FENCE.match(text)
    if begin is None or begin.start("fence"):
        return None
    end = text.find(f"\n{begin['fence']}", begin.end())
    code, below = text[begin.end() + 1 : end], text[end + 1 + len(begin["fence"]) :].strip("\n")
    return None if end < 0 or len(below) > BELOW_CHARS or _FENCE.search(below) else (code, below)


def closed(markdown: str) -> str:
    """Return a partial text with unfinished links and emphasis at its end closed.

    The parser itself closes a fence.
    """
    start = markdown.rfind("\n\n") + 1
    if _in_fence(markdown) or len(markdown) - start > READ_CHARS:
        return markdown
    last = _HALF_MARK.sub("", _HALF_LINK.sub(r"\1", markdown[start:])).rstrip()
    words = _CODE.sub("", last)
    if "`" in words:
        return f"{markdown[:start]}{last}`"
    last += "*" * (len(_OPENS.findall(words)) > len(_CLOSES.findall(words)))
    last += "".join(mark for mark in ("**", "~~", "__") if words.count(mark) % 2)
    return markdown[:start] + last


def references(texts: Iterable[str]) -> References:
    """Return the link definitions in these texts; the first of one label counts."""
    found: dict[str, Mapping[str, str]] = {}
    for text in texts:
        for match in _DEFINITION.finditer(text) if "]:" in text else ():
            if len(found) >= DEFINITIONS:
                return found
            found.setdefault(label_key(match["label"]), {"href": match["url"], "title": ""})
    return found


def defines(text: str) -> set[str] | None:
    """Return the labels that a paragraph defines; None when it contains anything else."""
    if "]:" not in text:
        return None
    found = [_DEFINITION.fullmatch(line) for line in text.split("\n")]
    labels = {label_key(match["label"]) for match in found if match}
    return labels if all(found) else None


def _in_fence(markdown: str) -> bool:
    """Return True if the text ends inside a fence."""
    fence = ""
    for match in _FENCE.finditer(markdown):
        if not fence:
            fence = match["fence"]
        elif match["fence"].startswith(fence) and not match["info"].strip():
            fence = ""
    return bool(fence)
