"""On the way out, between Markdown and messages: text with formatting, and how it is cut into messages.

Offsets are characters here, so no cut and no span can split a surrogate pair; only `entities` counts UTF-16 units.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from channels.telegram.limits import ENTITIES, TEXT_UNITS
from gateway.domain.text import visible

Json = dict[str, Any]
CODE = frozenset({"code", "pre"})
"""What may not lie in, or hold, anything else."""
WORD_JOINER = "\u2060"
"""Has no width; between `@` and a name it leaves text that names somebody without ringing their phone."""
FAR_ENOUGH = 0.5
"""Share of a message that must be full before a better place to cut is preferred to a fuller message."""
CLUSTER_CHARS = 64
"""How far a cut moves back to keep one picture whole; a longer run of combining characters is cut."""

# Telegram makes blanks of control characters and drops U+2028 to U+202E, which turn text around. Done here, what is
# compared with what is shown stays the same.
_CLEANED = MappingProxyType(
    {n: " " for n in (*range(9), *range(11, 32), *range(127, 160))}
    | dict.fromkeys(range(0x2028, 0x202F), "")
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_UNCLEAN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028-\u202e\ud800-\udfff]")
# What ends an address for Telegram ends it here too: a mention behind it rings.
_MENTION = re.compile(r"""https?://[\w-]+(?:\.[\w-]+)+/[!#-(*-;=?-~]*|(?<!\w)@(?=\w)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of formatting: `start` to `end` in characters; `kind` is the Bot API's type of the entity."""

    kind: str
    start: int
    end: int
    url: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rich:
    """Text with formatting: no blanks at its ends (a `pre` may begin with some), spans sorted, none empty."""

    text: str
    spans: tuple[Span, ...] = ()


def units(text: str) -> int:
    """Return the length in UTF-16 units. The text is clean."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def clean(text: str) -> str:
    """Take out what is no text: lone surrogates, control characters but tab and line break, turned-around text."""
    text = text.replace("\r\n", "\n")
    return text.translate(_CLEANED) if _UNCLEAN.search(text) else text


def entities(rich: Rich) -> list[Json]:
    """Return the spans as the Bot API wants them: offsets and lengths in UTF-16 units."""
    found: list[Json] = []
    at = offset = 0
    for span in rich.spans:  # sorted by where they start
        offset += units(rich.text[at : span.start])
        at = span.start
        entity: Json = {"type": span.kind, "offset": offset, "length": units(rich.text[at : span.end])}
        if span.url:
            entity["url"] = span.url
        if span.language:
            entity["language"] = span.language
        found.append(entity)
    return found


class Draft:
    """Text that is being written, line by line; `rich` ends it. Not for use twice."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.length = 0
        self.indent: list[str] = []
        """What every line begins with, by level; a level's first line has `marker` instead of the last one."""
        self.marker = ""
        self._texts: list[str] = []
        self._spans: list[Span] = []
        self._breaks = 0
        self._fresh = True

    def line(self, breaks: int = 1) -> None:
        """What comes next begins a line, after at least so many line breaks; several calls count as the largest."""
        if not self._fresh:
            self._breaks = max(self._breaks, breaks)

    def begin(self) -> int:
        """Write the line breaks, indentation and marker that are due, and return where the next text will stand."""
        levels = self.indent[:-1] if self.marker else self.indent
        if self._breaks or not self.length:
            self._put("\n" * self._breaks + "".join(levels))
            self._fresh = True
        if self.marker:
            self._put(self.marker)
        self._breaks, self.marker = 0, ""
        return self.length

    def add(self, text: str, kind: str = "", *, url: str = "", language: str = "") -> None:
        """Write text, with formatting if `kind` says so; its line breaks are indented."""
        start = self.begin() if text else self.length
        self._put(clean(text).replace("\n", "\n" + "".join(self.indent)))
        self._fresh = self._fresh and not text
        if kind:
            self.span(kind, start, url=url, language=language)

    def item(self) -> None:
        """Write the marker that is due, though nothing follows it on its line."""
        if self.marker:
            self.marker = self.marker.rstrip()
            self.begin()
            self._fresh = False

    def block(self, text: str, language: str = "") -> None:
        """Write preformatted text on lines of its own, not indented: it is made to be copied."""
        self.item()
        self.line()
        self._put("\n" * self._breaks)
        start, self._breaks, self._fresh = self.length, 0, False
        self._put(clean(text))
        self.span("pre", start, language=language)
        self.line()

    @property
    def pieces(self) -> int:
        """How many pieces of formatting were written."""
        return len(self._spans)

    def span(self, kind: str, start: int, *, url: str = "", language: str = "") -> None:
        """Format what was written since `start`; where that is code alone, it stays code."""
        last = self._spans[-1] if self._spans else None
        if last is not None and last.kind in CODE and (last.start, last.end) == (start, self.length):
            return
        self._spans.append(Span(kind=kind, start=start, end=self.length, url=url, language=language))

    def since(self, start: int) -> str:
        """What was written since then."""
        return "".join(self._texts)[start:]

    def rich(self, *, quiet: bool = False) -> Rich:
        """Return what was written; with `quiet`, names in it ring nobody."""
        return finish("".join(self._texts), self._spans, quiet=quiet)

    def _put(self, text: str) -> None:
        self._texts.append(text)
        self.length += len(text)


def finish(text: str, spans: Iterable[Span], *, quiet: bool = False) -> Rich:
    """Make spans that overlap anyhow into what Telegram takes; with `quiet`, names in the text ring nobody."""
    code = sorted((span for span in spans if span.kind in CODE), key=_order)
    rich = Rich(text=text, spans=tuple(code + [piece for span in spans for piece in _around(span, code)]))
    return part(_quiet(rich, code) if quiet else rich, 0)


def part(rich: Rich, start: int, end: int | None = None) -> Rich:
    """Return a piece of it, trimmed; spans that reach over its ends are closed there, those with nothing to see go."""
    end = len(rich.text) if end is None else end
    while end > start and rich.text[end - 1].isspace():
        end -= 1
    start = _begin(rich, start, end)
    spans: list[Span] = []
    for span in rich.spans:
        first, last = max(span.start, start), min(span.end, end)
        if span.kind != "pre":
            while last > first and rich.text[last - 1].isspace():
                last -= 1
            while last > first and rich.text[first].isspace():
                first += 1
        if visible(rich.text[first:last]):
            spans.append(_moved(span, first - start, last - start))
    return Rich(text=rich.text[start:end], spans=tuple(sorted(spans, key=_order)))


def joined(riches: Iterable[Rich], by: str) -> Rich:
    """Put texts after each other, with `by` between them; those that are empty are left out."""
    text, spans = "", list[Span]()
    for rich in riches:
        text += by if text and rich.text else ""
        spans += [_moved(span, span.start + len(text), span.end + len(text)) for span in rich.spans]
        text += rich.text
    return Rich(text=text, spans=tuple(spans))


def shorten(text: str, limit: int) -> str:
    """Return it, or its beginning with `…`, in at most `limit` UTF-16 units. The text is clean."""
    return text if units(text) <= limit else text[: _reach(text, 0, limit - 1)] + "…"


def split(rich: Rich, limit: int = TEXT_UNITS) -> Iterator[Rich]:
    """Cut into parts of at most `limit` UTF-16 units (2 or more) and 100 entities; none is empty. Cuts as it is read.

    Cuts at a paragraph, else a line, else a word, else between two characters that are not one picture. Blanks at a
    cut go; formatting that reaches over a cut is closed before it and opened again behind it.
    """
    at = 0
    while at < len(rich.text):
        end = _cut(rich, at, limit)
        found = rich if (at, end) == (0, len(rich.text)) else part(rich, at, end)
        if visible(found.text):
            yield found
        at = _begin(rich, end, len(rich.text))


def _moved(span: Span, start: int, end: int) -> Span:
    if (span.start, span.end) == (start, end):
        return span
    return Span(kind=span.kind, start=start, end=end, url=span.url, language=span.language)


def _order(span: Span) -> tuple[int, int, str]:
    return (span.start, -span.end, span.kind)


def _around(span: Span, code: Sequence[Span]) -> list[Span]:
    """The pieces of a span that lie outside of code."""
    if span.kind in CODE:
        return []
    inside = code[bisect_right(code, span.start, key=_end) : bisect_left(code, span.end, key=_start)]
    if not inside:
        return [span]
    edges = [span.start, *(edge for c in inside for edge in (c.start, c.end)), span.end]
    return [_moved(span, a, b) for a, b in list(pairwise(edges))[::2] if a < b]


def _quiet(rich: Rich, code: Sequence[Span]) -> Rich:
    """Break the mentions outside of code; one in a web address is none."""
    found = [match.end() for match in _MENTION.finditer(rich.text) if match.group() == "@"]
    at = [n for n in found if (held := _holding(code, n - 1)) is None or held.end == n]
    pieces = [rich.text[a:b] for a, b in pairwise([0, *at, len(rich.text)])]
    spans = [
        _moved(span, span.start + bisect_left(at, span.start), span.end + bisect_left(at, span.end))
        for span in rich.spans
    ]
    return Rich(text=WORD_JOINER.join(pieces), spans=tuple(spans))


def _holding(code: Sequence[Span], at: int) -> Span | None:
    """Which of these, sorted and apart, the character at an offset is in."""
    n = bisect_right(code, at, key=_start) - 1
    return code[n] if n >= 0 and at < code[n].end else None


def _start(span: Span) -> int:
    return span.start


def _end(span: Span) -> int:
    return span.end


def _begin(rich: Rich, start: int, end: int) -> int:
    """The first character from `start` on that is not blank; in a `pre`, of its first line that is not blank."""
    if start >= end or not rich.text[start].isspace():
        return start
    blocks = [span for span in rich.spans if span.kind == "pre"]
    while start < end and rich.text[start].isspace():
        pre = _holding(blocks, start)
        if pre is not None:
            line = rich.text.find("\n", start, min(pre.end, end))
            if line < 0 or rich.text[start:line].strip():
                break
            start = line
        start += 1
    return start


def _cut(rich: Rich, at: int, limit: int) -> int:
    """Where the part that begins at `at` ends."""
    text = rich.text
    hard = max(_reach(text, at, limit), at + 1)
    begun = sorted(max(span.start, at) for span in rich.spans if span.end > at)
    if len(begun) > ENTITIES:
        hard = max(min(hard, begun[ENTITIES]), at + 1)
    if hard >= len(text):
        return len(text)
    least = at + int((hard - at) * FAR_ENOUGH)
    for mark in ("\n\n", "\n", " "):
        found = text.rfind(mark, least, hard + 1)
        if found > at:
            return found + 1 if mark == " " else found
    return _between(text, at, hard)


def _reach(text: str, at: int, limit: int) -> int:
    """How far so many units reach."""
    head = text[at : at + limit]
    if not head.isascii():
        head = head.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
    return at + len(head)


def _between(text: str, at: int, hard: int) -> int:
    """The last place up to `hard` that keeps what is seen as one character whole, where that is near."""
    for end in range(hard, max(at, hard - CLUSTER_CHARS), -1):
        if not _joined(text, end):
            return end
    return hard


def _joined(text: str, end: int) -> bool:
    """Whether the characters before and behind `end` are shown as one."""
    before, behind = text[end - 1], text[end]
    if before == "\u200d" or behind == "\u200d" or unicodedata.category(behind)[0] == "M":
        return True
    if "\U0001f3fb" <= behind <= "\U0001f3ff" or "\U000e0020" <= behind <= "\U000e007f":
        return True
    flags = 0  # flags are pairs: an even number of halves before `end` is whole
    while flags < end and "\U0001f1e6" <= text[end - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return flags % 2 == 1 and "\U0001f1e6" <= behind <= "\U0001f1ff"
