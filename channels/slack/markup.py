"""Conversion and division of Markdown for Slack's markdown blocks. Used by `outbound`; never fails.

Slack's markdown block parses Markdown itself, so the text stays as it is, except for mentions that would notify.
Without blocks, in notifications and after blocks were refused, it loses its formatting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it.token import Token

from channels._shared.markdown import parser
from channels.slack.plain import Walk, clean
from channels.slack.splitting import Cutter, Fence

WORD_JOINER = "\u2060"
"""Zero-width character; within a mention it prevents a notification."""
READ_CHARS = 16_384
"""Characters of Markdown parsed at once, at most: the parser's time can grow faster than the text."""
BELOW_CHARS = 400
"""Characters below a command's output block, at most."""
FENCE_CHARS = 60
"""Characters of an opening fence, indentation included, that is repeated at a cut."""
INLINE_CHARS = 2048
"""Characters of a paragraph that is parsed for inline formatting, at most."""
BRACKETS = 100
"""Opening brackets of such a paragraph, at most."""

# `<@U…`, `<!channel`, `<#C…`, however they are escaped. One letter is enough: so an insertion depends only on the text
# before it, and a converted partial text stays a prefix of the whole.
_NAMES = re.compile(
    r"((?:<|&lt;?|&LT;?|&#0{0,5}60;?|&#[xX]0{0,5}3[cC];?)\\?"
    r"(?:(?:@|&commat;|&#0{0,5}64;?|&#[xX]0{0,5}40;?)\\?[UWBS]"
    r"|(?:!|&excl;|&#0{0,5}33;?|&#[xX]0{0,5}21;?)\\?[cehsgd]"
    r"|(?:#|&num;|&#0{0,5}35;?|&#[xX]0{0,5}23;?)\\?[CGD]))"
)
# A link's target up to the colon after its scheme, or up to the first character of an escape that may hide one.
_SCHEME = re.compile(
    r"(?P<begin>\](?:\(|:)\s{0,99}<?|<(?=[A-Za-z]))(?P<scheme>[^\s()<>:/?&\\]{0,64})(?=(?P<end>[:&\\]))"
)
_SCHEMES = frozenset({"http", "https", "mailto"})
_FENCE = re.compile(r"(?P<fence>`{3,}(?=[^`]*\Z)|~{3,})")  # not indented: in a list it would end where that ends
_INLINE = re.compile(r"[\\`*_~\[\]<&]|  \n")
_CODE = re.compile(r"(?P<ticks>`+)(?P<code>[^`]+)(?P=ticks)(?!`)")
_HALF_LINK = re.compile(r"!?\[([^\[\]\n]*)(?:\](?:\([^()\s]*)?)?\Z")
_HALF_MARK = re.compile(r"(?:(?<!\S)(?:[*_~]{1,3}|`{1,2})|^[ \t]*#{1,6})\Z", re.MULTILINE)


def safe(markdown: str) -> str:
    """Return Markdown for a markdown block: mentions notify nobody, and links lead only to the web or a mailbox.
    Fenced code is copied without a search for links: it has none.

    The result for a prefix is a prefix of the result for the whole.
    """
    text = _NAMES.sub(rf"\1{WORD_JOINER}", clean(markdown))
    if "](" not in text and "]:" not in text and "<" not in text:
        return text
    return "".join(part if is_code else _SCHEME.sub(_checked_link, part) for is_code, part in _apart(text))


def _checked_link(link: re.Match[str]) -> str:
    """Return the beginning of a link; one with another scheme is broken after it."""
    leads = link["end"] == ":" and link["scheme"].lower() in _SCHEMES
    return link[0] if leads else f"{link[0]}{WORD_JOINER}"


def _apart(text: str) -> Iterator[tuple[bool, str]]:
    """Yield fenced code and the text between; an opening fence belongs to the text: it may still be incomplete."""
    fence, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line.rstrip("\n"))
        lines.append(line)
        if not fence and found is not None:
            yield False, "".join(lines)
            fence, lines = found["fence"], []
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            yield True, "".join(lines)
            fence, lines = "", []
    yield bool(fence), "".join(lines)


class SlackMarkup:
    """Converter of Markdown. Create one and keep it: making the parser costs more than using it."""

    def __init__(self) -> None:
        """Create the parser."""
        self._parser = parser()

    def split(self, markdown: str, room: int) -> Iterator[str]:
        """Yield pieces of at most `room` characters (200 or more), cut between blocks, else lines, else words.

        Together they contain the whole text. A cut code block is closed and reopened; one open at the end is closed.
        """
        lines = markdown.split("\n")
        fences = self._fences(markdown)
        cutter = Cutter(room)
        for number, line in enumerate(lines):
            fence = next((f for f in fences if f.begin <= number < f.end), None)
            last = fence is None or (fence.closed and number == fence.end - 1)
            spare = 0 if fence is None or last else len(fence.closes) + 1
            yield from cutter.take(line, fence if fence and number > fence.begin else None, spare)
        if fences and not fences[-1].closed and fences[-1].end >= len(lines):
            yield from cutter.take(fences[-1].closes, fences[-1], 0)
        yield from cutter.rest()

    def closed(self, markdown: str) -> str:
        """Return a partial text with unfinished links and marks at its end closed."""
        start = markdown.rfind("\n\n") + 1
        fences = self._fences(markdown)
        if len(markdown) - start > INLINE_CHARS or (fences and not fences[-1].closed):
            return markdown
        last = _HALF_MARK.sub("", _HALF_LINK.sub(r"\1", markdown[start:].rstrip())).rstrip()
        words = _CODE.sub("", last)
        if "`" in words:
            return f"{markdown[:start]}{last}`"
        return markdown[:start] + last + "".join(mark for mark in ("**", "~~", "__") if words.count(mark) % 2)

    def output(self, markdown: str) -> tuple[str, str] | None:
        """Return the code and the text below it, if the text is one code block with at most a few words after it.

        Command output has this form.
        """
        text = markdown.strip("\n")
        found = self._fences(text) if text.startswith(("```", "~~~")) else ()
        if len(found) != 1 or found[0].begin != 0:
            return None
        lines = text.split("\n")
        below = "\n".join(lines[found[0].end :]).strip()
        return None if len(below) > BELOW_CHARS else ("\n".join(lines[1 : found[0].end - 1]), below)

    def _fences(self, markdown: str) -> Sequence[Fence]:
        found: list[Fence] = []
        lines = markdown.split("\n")
        for token in self._parser.parse(markdown, {}):
            if token.type == "fence" and token.map:
                begin, end = token.map
                first = lines[begin] if begin < len(lines) else token.markup
                indent = first[: len(first) - len(first.lstrip(" >"))]
                quoted = indent if ">" in indent else " " * len(indent)
                last = lines[end - 1].strip(" >") if begin < end - 1 < len(lines) else ""
                closed = last.startswith(token.markup) and not last.strip(token.markup[0])
                closes = f"{quoted}{token.markup}"
                if len(closes) <= FENCE_CHARS:  # a longer fence is cut like text: repeated, it would fill every piece
                    found.append(Fence(begin, end, closed, f"{closes}{token.info[:FENCE_CHARS]}", closes))
        return found

    # --- without formatting ---------------------------------------------------------------------

    def plain(self, markdown: str) -> str:
        """Return the text without formatting and escapes; an overlong text unchanged."""
        text = clean(markdown)
        if len(text) > READ_CHARS:
            return text
        walk = Walk(self._inline)
        for token in self._parser.parse(text, {}):
            walk.take(token)
        return walk.text()

    def _inline(self, content: str) -> list[Token]:
        if not _INLINE.search(content) or len(content) > INLINE_CHARS or content.count("[") > BRACKETS:
            return [Token("text", "", 0, content=content)]
        found: list[Token] = []
        env: dict[str, Any] = {}
        self._parser.inline.parse(content, self._parser, env, found)
        return found
