"""On the way out: what can be said of Markdown before it is read."""

from __future__ import annotations

import re

BELOW_CHARS = 400
READ_CHARS = 4096

_FENCE = re.compile(r"^[ >]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$", re.MULTILINE)
# A run of ticks as a whole, from its beginning: tried in pieces, 800 ticks took a second and 4,000 two minutes.
_CODE = re.compile(r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_HALF_LINK = re.compile(r"!?\[([^\[\]\n]*)(?:\](?:\([^()\s]*|\[[^\[\]\n]*)?)?\Z")
_HALF_MARK = re.compile(r"(?:(?<!\S)(?:[*_~]{1,3}|`{1,2})|^[ \t]*#{1,6})\Z", re.MULTILINE)
_OPENS = re.compile(r"(?<![\w*\\])\*(?=[^\s*])")
_CLOSES = re.compile(r"(?<=[^\s*\\])\*(?![\w*])")


def output(markdown: str) -> tuple[str, str] | None:
    """Return code and what is said below it, when the text is one fenced block with a few words after it at most.

    That is how the output of a command comes.
    """
    text = markdown.strip()
    begin = _FENCE.match(text)
    if begin is None or begin.start("fence"):
        return None
    end = text.find(f"\n{begin['fence']}", begin.end())
    code, below = text[begin.end() + 1 : end], text[end + 1 + len(begin["fence"]) :].strip("\n")
    return None if end < 0 or len(below) > BELOW_CHARS or _FENCE.search(below) else (code, below)


def closed(markdown: str) -> str:
    """Return the beginning of a text so that it reads well: half-written links and emphasis at its end are closed.

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


def _in_fence(markdown: str) -> bool:
    """Whether the text ends inside of a fence."""
    fence = ""
    for match in _FENCE.finditer(markdown):
        if not fence:
            fence = match["fence"]
        elif match["fence"].startswith(fence) and not match["info"].strip():
            fence = ""
    return bool(fence)
