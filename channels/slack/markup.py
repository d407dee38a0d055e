"""On the way out: Markdown becomes what Slack shows, cut into messages. Never fails, whatever the text is.

Slack's markdown block reads Markdown itself, so the text stays as it is, but for what would ring somebody. Only where
no block can be, in notifications and when blocks were refused, it loses its formatting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it.token import Token

from channels._shared.markdown import parser
from channels.slack.plain import Walk, clean
from gateway.domain.text import visible

WORD_JOINER = "\u2060"
"""Has no width; within a name it leaves text that names somebody without ringing their phone."""
READ_CHARS = 16_384
"""Markdown that is read for formatting at once: the parser's time can grow faster than the text."""
BELOW_CHARS = 400
FENCE_CHARS = 60
"""Of what opens a block of code that is closed and opened again at a cut, its indentation included."""
INLINE_CHARS = 2048
BRACKETS = 100
"""Characters, and opening brackets, of one paragraph that is read for formatting."""

# `<@U…`, `<!channel`, `<#C…`, however they are escaped. One letter is enough: so what is added follows from what came
# before it, and the beginning of a text that is still being written stays the beginning of the whole.
_NAMES = re.compile(
    r"((?:<|&lt;?|&LT;?|&#0{0,5}60;?|&#[xX]0{0,5}3[cC];?)\\?"
    r"(?:(?:@|&commat;|&#0{0,5}64;?|&#[xX]0{0,5}40;?)\\?[UWBS]"
    r"|(?:!|&excl;|&#0{0,5}33;?|&#[xX]0{0,5}21;?)\\?[cehsgd]"
    r"|(?:#|&num;|&#0{0,5}35;?|&#[xX]0{0,5}23;?)\\?[CGD]))"
)
# Where a link leads, as far as the colon behind its scheme, or the first character of an escape that may hide one.
_SCHEME = re.compile(
    r"(?P<begin>\](?:\(|:)\s{0,99}<?|<(?=[A-Za-z]))(?P<scheme>[^\s()<>:/?&\\]{0,64})(?=(?P<end>[:&\\]))"
)
_SCHEMES = frozenset({"http", "https", "mailto"})
_FENCE = re.compile(r"(?P<fence>`{3,}(?=[^`]*\Z)|~{3,})")  # not indented: in a list it would end where that ends
_INLINE = re.compile(r"[\\`*_~\[\]<&]|  \n")
_CODE = re.compile(r"(?P<ticks>`+)(?P<code>[^`]+)(?P=ticks)(?!`)")
_HALF_LINK = re.compile(r"!?\[([^\[\]\n]*)(?:\](?:\([^()\s]*)?)?\Z")
_HALF_MARK = re.compile(r"(?:(?<!\S)(?:[*_~]{1,3}|`{1,2})|^[ \t]*#{1,6})\Z", re.MULTILINE)
_FAR_ENOUGH = 0.5
"""Share of a message that must be full before a better place to cut is preferred to a fuller message."""


def safe(markdown: str) -> str:
    """Return Markdown for a markdown block or a stream: as it is, but nobody named in it is rung, and links lead to the
    web or a mailbox alone. Fenced code has no links, and what stands there is copied: no link is looked for in it.

    What it makes of a beginning is the beginning of what it makes of the whole.
    """
    text = _NAMES.sub(rf"\1{WORD_JOINER}", clean(markdown))
    if "](" not in text and "]:" not in text and "<" not in text:
        return text
    return "".join(part if is_code else _SCHEME.sub(_led, part) for is_code, part in _apart(text))


def _led(link: re.Match[str]) -> str:
    """The beginning of a link; one that leads elsewhere is broken behind its scheme."""
    leads = link["end"] == ":" and link["scheme"].lower() in _SCHEMES
    return link[0] if leads else f"{link[0]}{WORD_JOINER}"


def _apart(text: str) -> Iterator[tuple[bool, str]]:
    """Yield fenced code, and what stands between; the line that opens a fence stands between: it may be none yet."""
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


# --- cutting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fence:
    """A block of code: its lines, and what opens and closes it."""

    begin: int
    end: int
    """The line behind it."""
    closed: bool
    """Whether its last line closes it; the end of a text, or of a list, does that too."""
    opens: str
    closes: str


class SlackMarkup:
    """Reads Markdown. Make one and keep it: making the parser costs more than using it."""

    def __init__(self) -> None:
        """Make the parser."""
        self._parser = parser()

    def split(self, markdown: str, room: int) -> Iterator[str]:
        """Yield pieces of at most `room` characters, at least 200: cut between blocks, else lines, else words.

        Joined, they say the same. Code that is cut is closed, and opened again; code that is open at the end is closed.
        """
        lines = markdown.split("\n")
        fences = self._fences(markdown)
        cutter = _Cutter(room)
        for number, line in enumerate(lines):
            fence = next((f for f in fences if f.begin <= number < f.end), None)
            last = fence is None or (fence.closed and number == fence.end - 1)
            spare = 0 if fence is None or last else len(fence.closes) + 1
            yield from cutter.take(line, fence if fence and number > fence.begin else None, spare)
        if fences and not fences[-1].closed and fences[-1].end >= len(lines):
            yield from cutter.take(fences[-1].closes, fences[-1], 0)
        yield from cutter.rest()

    def closed(self, markdown: str) -> str:
        """Return the beginning of a text so that it reads well: half-written links and marks at its end are closed."""
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
        """Return code and what is said below it, when the text is one block of code with a few words after it at most.

        That is how the output of a command comes.
        """
        text = markdown.strip("\n")
        found = self._fences(text) if text.startswith(("```", "~~~")) else ()
        if len(found) != 1 or found[0].begin != 0:
            return None
        lines = text.split("\n")
        below = "\n".join(lines[found[0].end :]).strip()
        return None if len(below) > BELOW_CHARS else ("\n".join(lines[1 : found[0].end - 1]), below)

    def _fences(self, markdown: str) -> Sequence[_Fence]:
        found: list[_Fence] = []
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
                if len(closes) <= FENCE_CHARS:  # a longer one is cut like any text: it would fill every piece
                    found.append(_Fence(begin, end, closed, f"{closes}{token.info[:FENCE_CHARS]}", closes))
        return found

    # --- without formatting ---------------------------------------------------------------------

    def plain(self, markdown: str) -> str:
        """Return what it says, without formatting and without escapes; a text that is too long to be read, as it is."""
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


class _Cutter:
    """Collects lines until a piece is full."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._piece: list[str] = []
        self._size = 0
        self._best = 0
        """How many lines of the piece end at a blank line outside of code."""

    def take(self, line: str, fence: _Fence | None, spare: int) -> Iterator[str]:
        """Add a line that stands in `fence`, and leave so much room behind it; yield what is full."""
        while self._size + len(line) + 1 + spare > self._room:
            if self._piece and not self._just_opened(fence):
                yield from self._cut(fence)
                continue
            closing = len(fence.closes) + 1 if fence else 0  # also where the line that is cut closes the block itself
            at = self._within(line, self._room - self._size - 1 - max(spare, closing))
            self._add(line[:at])
            line = line[at:]
            yield from self._cut(fence)
        self._add(line)
        if fence is None and not line.strip():
            self._best = len(self._piece)

    def rest(self) -> Iterator[str]:
        """Yield what is left."""
        if visible("".join(self._piece)):
            yield "\n".join(self._piece)

    def _add(self, line: str) -> None:
        self._piece.append(line)
        self._size += len(line) + 1

    def _just_opened(self, fence: _Fence | None) -> bool:
        return fence is not None and self._piece == [fence.opens]

    def _cut(self, fence: _Fence | None) -> Iterator[str]:
        """Yield the piece, cut at its best place; what stands behind that begins the next one."""
        kept: list[str] = []
        at = self._best
        if sum(map(len, self._piece[:at])) >= self._room * _FAR_ENOUGH:
            kept, self._piece = self._piece[at:], self._piece[:at]
        elif fence is not None and len(self._piece) > 1 and self._piece[-1] == fence.opens:
            kept = [self._piece.pop()]
        elif fence is not None:
            self._piece.append(fence.closes)
            kept = [fence.opens]
        if visible("".join(self._piece)):
            yield "\n".join(self._piece)
        self._piece, self._best = kept, 0
        self._size = sum(len(line) + 1 for line in kept)

    @staticmethod
    def _within(line: str, room: int) -> int:
        """Where to cut a line that is too long by itself: behind a word, when that is not too far back."""
        room = max(room, 1)
        blank = line.rfind(" ", int(room * _FAR_ENOUGH), room)
        return blank + 1 if blank > 0 else room
