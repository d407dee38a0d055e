"""Formatted text and its division into messages. Used between `markup` and `parts`.

Offsets are characters here, so no cut or span can split a surrogate pair; only `entities` counts UTF-16 units.
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
"""Kinds of spans that must not overlap with others."""
WORD_JOINER = "\u2060"
"""Zero-width character; between `@` and a name it prevents a notification."""
FAR_ENOUGH = 0.5
"""Share of a message that must be full before a better cut is preferred to a fuller message."""
CLUSTER_CHARS = 64
"""Characters that a cut moves back at most to keep a grapheme whole; a longer run of combining characters is cut."""

# Telegram replaces control characters by blanks and drops U+2028 to U+202E, which reverse text. Done here too, so that
# our text equals the shown text in comparisons.
_CLEANED = MappingProxyType(
    {n: " " for n in (*range(9), *range(11, 32), *range(127, 160))}
    | dict.fromkeys(range(0x2028, 0x202F), "")
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_UNCLEAN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028-\u202e\ud800-\udfff]")
# A URL ends where Telegram ends it: a mention after it notifies.
_MENTION = re.compile(r"""https?://[\w-]+(?:\.[\w-]+)+/[!#-(*-;=?-~]*|(?<!\w)@(?=\w)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Formatting from `start` to `end`, in characters; `kind` is the Bot API's entity type."""

    kind: str
    start: int
    end: int
    url: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedText:
    """Formatted text: trimmed (a `pre` may begin with blanks), spans sorted, none empty."""

    text: str
    spans: tuple[Span, ...] = ()


def units(text: str) -> int:
    """Return the length in UTF-16 units. The text is clean."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def clean(text: str) -> str:
    """Remove lone surrogates, control characters except tab and line break, and bidirectional overrides."""
    text = text.replace("\r\n", "\n")
    return text.translate(_CLEANED) if _UNCLEAN.search(text) else text


def entities(formatted: FormattedText) -> list[Json]:
    """Return the spans as Bot API entities: offsets and lengths in UTF-16 units."""
    found: list[Json] = []
    at = offset = 0
    is_ascii = formatted.text.isascii()
    for span in formatted.spans:  # sorted by start
        offset += span.start - at if is_ascii else units(formatted.text[at : span.start])
        at = span.start
        length = span.end - at if is_ascii else units(formatted.text[at : span.end])
        entity: Json = {"type": span.kind, "offset": offset, "length": length}
        if span.url:
            entity["url"] = span.url
        if span.language:
            entity["language"] = span.language
        found.append(entity)
    return found


class Draft:
    """Builder of formatted text, line by line; `formatted` ends it. Not reusable."""

    def __init__(self) -> None:
        """Start empty."""
        self.length = 0
        self.indent: list[str] = []
        """Prefix of every line, by level; a level's first line has `marker` instead of the last one."""
        self.marker = ""
        self._texts: list[str] = []
        self._spans: list[Span] = []
        self._breaks = 0
        self._fresh = True

    def line(self, breaks: int = 1) -> None:
        """Start a new line before the next text, after at least `breaks` line breaks; the largest call counts."""
        if not self._fresh:
            self._breaks = max(self._breaks, breaks)

    def begin(self) -> int:
        """Write the pending line breaks, indentation and marker, and return the offset of the next text."""
        levels = self.indent[:-1] if self.marker else self.indent
        if self._breaks or not self.length:
            self._put("\n" * self._breaks + "".join(levels))
            self._fresh = True
        if self.marker:
            self._put(self.marker)
        self._breaks, self.marker = 0, ""
        return self.length

    def add(self, text: str, kind: str = "", *, url: str = "", language: str = "") -> None:
        """Write text, formatted if `kind` is given; its line breaks are indented."""
        start = self.begin() if text else self.length
        # What is printable has neither line breaks nor anything to clean: most pieces of most texts.
        self._put(text if text.isprintable() else clean(text).replace("\n", "\n" + "".join(self.indent)))
        self._fresh = self._fresh and not text
        if kind:
            self.span(kind, start, url=url, language=language)

    def item(self) -> None:
        """Write a pending marker even if nothing follows on its line."""
        if self.marker:
            self.marker = self.marker.rstrip()
            self.begin()
            self._fresh = False

    def block(self, text: str, language: str = "") -> None:
        """Write preformatted text on lines of its own, not indented: people copy it."""
        self.item()
        self.line()
        self._put("\n" * self._breaks)
        start, self._breaks, self._fresh = self.length, 0, False
        self._put(clean(text))
        self.span("pre", start, language=language)
        self.line()

    @property
    def pieces(self) -> int:
        """Return the number of spans written."""
        return len(self._spans)

    def span(self, kind: str, start: int, *, url: str = "", language: str = "") -> None:
        """Format the text since `start`; text that is all code stays code."""
        last = self._spans[-1] if self._spans else None
        if last is not None and last.kind in CODE and (last.start, last.end) == (start, self.length):
            return
        self._spans.append(Span(kind=kind, start=start, end=self.length, url=url, language=language))

    def since(self, start: int) -> str:
        """Return the text since an offset."""
        return "".join(self._texts)[start:]

    def formatted(self, *, quiet: bool = False) -> FormattedText:
        """Return the formatted text; with `quiet`, mentions notify nobody."""
        return finish("".join(self._texts), self._spans, quiet=quiet)

    def _put(self, text: str) -> None:
        self._texts.append(text)
        self.length += len(text)


def finish(text: str, spans: Iterable[Span], *, quiet: bool = False) -> FormattedText:
    """Resolve overlaps of spans as Telegram requires; with `quiet`, mentions notify nobody."""
    code = sorted((span for span in spans if span.kind in CODE), key=_order)
    formatted = FormattedText(text=text, spans=tuple(code + [piece for span in spans for piece in _around(span, code)]))
    return part(_quiet(formatted, code) if quiet else formatted, 0)


def part(formatted: FormattedText, start: int, end: int | None = None) -> FormattedText:
    """Return a trimmed piece; spans are clipped at its ends, and invisible ones removed."""
    end = len(formatted.text) if end is None else end
    while end > start and formatted.text[end - 1].isspace():
        end -= 1
    start = _begin(formatted, start, end)
    spans: list[Span] = []
    for span in formatted.spans:
        first, last = max(span.start, start), min(span.end, end)
        if span.kind != "pre":
            while last > first and formatted.text[last - 1].isspace():
                last -= 1
            while last > first and formatted.text[first].isspace():
                first += 1
        if visible(formatted.text[first:last]):
            spans.append(_moved(span, first - start, last - start))
    return FormattedText(text=formatted.text[start:end], spans=tuple(sorted(spans, key=_order)))


def joined(texts: Iterable[FormattedText], by: str) -> FormattedText:
    """Join texts with `by` between them; empty ones are skipped."""
    text, spans = "", list[Span]()
    for formatted in texts:
        text += by if text and formatted.text else ""
        spans += [_moved(span, span.start + len(text), span.end + len(text)) for span in formatted.spans]
        text += formatted.text
    return FormattedText(text=text, spans=tuple(spans))


def shorten(text: str, limit: int) -> str:
    """Return the text, or its beginning with `…`, in at most `limit` UTF-16 units. The text is clean."""
    return text if units(text) <= limit else text[: _reach(text, 0, limit - 1)] + "…"


def split(formatted: FormattedText, limit: int = TEXT_UNITS) -> Iterator[FormattedText]:
    """Yield non-empty parts of at most `limit` UTF-16 units (2 or more) and 100 entities, lazily.

    Cuts at a paragraph, else a line, else a word, else between two graphemes. Blanks at a cut are removed; formatting
    across a cut is closed before it and reopened after it.
    """
    at = 0
    while at < len(formatted.text):
        end = _cut(formatted, at, limit)
        found = formatted if (at, end) == (0, len(formatted.text)) else part(formatted, at, end)
        if visible(found.text):
            yield found
        at = _begin(formatted, end, len(formatted.text))


def _moved(span: Span, start: int, end: int) -> Span:
    if (span.start, span.end) == (start, end):
        return span
    return Span(kind=span.kind, start=start, end=end, url=span.url, language=span.language)


def _order(span: Span) -> tuple[int, int, str]:
    return (span.start, -span.end, span.kind)


def _around(span: Span, code: Sequence[Span]) -> list[Span]:
    """Return the pieces of a span outside code."""
    if span.kind in CODE:
        return []
    inside = code[bisect_right(code, span.start, key=_end) : bisect_left(code, span.end, key=_start)]
    if not inside:
        return [span]
    edges = [span.start, *(edge for c in inside for edge in (c.start, c.end)), span.end]
    return [_moved(span, a, b) for a, b in list(pairwise(edges))[::2] if a < b]


def _quiet(formatted: FormattedText, code: Sequence[Span]) -> FormattedText:
    """Break the mentions outside code; an `@` in a URL is no mention."""
    found = [match.end() for match in _MENTION.finditer(formatted.text) if match.group() == "@"]
    at = [n for n in found if (held := _holding(code, n - 1)) is None or held.end == n]
    pieces = [formatted.text[a:b] for a, b in pairwise([0, *at, len(formatted.text)])]
    spans = [
        _moved(span, span.start + bisect_left(at, span.start), span.end + bisect_left(at, span.end))
        for span in formatted.spans
    ]
    return FormattedText(text=WORD_JOINER.join(pieces), spans=tuple(spans))


def _holding(code: Sequence[Span], at: int) -> Span | None:
    """Return the span that contains an offset; the spans are sorted and disjoint."""
    n = bisect_right(code, at, key=_start) - 1
    return code[n] if n >= 0 and at < code[n].end else None


def _start(span: Span) -> int:
    return span.start


def _end(span: Span) -> int:
    return span.end


def _begin(formatted: FormattedText, start: int, end: int) -> int:
    """Return the first non-blank character from `start`; in a `pre`, the start of its first non-blank line."""
    if start >= end or not formatted.text[start].isspace():
        return start
    blocks = [span for span in formatted.spans if span.kind == "pre"]
    while start < end and formatted.text[start].isspace():
        pre = _holding(blocks, start)
        if pre is not None:
            line = formatted.text.find("\n", start, min(pre.end, end))
            if line < 0 or formatted.text[start:line].strip():
                break
            start = line
        start += 1
    return start


def _cut(formatted: FormattedText, at: int, limit: int) -> int:
    """Return the end of the part that begins at `at`."""
    text = formatted.text
    hard = max(_reach(text, at, limit), at + 1)
    begun = sorted(max(span.start, at) for span in formatted.spans if span.end > at)
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
    """Return the offset that `limit` units after `at` reach."""
    head = text[at : at + limit]
    if not head.isascii():
        head = head.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
    return at + len(head)


def _between(text: str, at: int, hard: int) -> int:
    """Return the last offset up to `hard` that splits no grapheme, if one is near."""
    for end in range(hard, max(at, hard - CLUSTER_CHARS), -1):
        if not _joined(text, end):
            return end
    return hard


def _joined(text: str, end: int) -> bool:
    """Return True if the characters before and after `end` form one grapheme."""
    before, behind = text[end - 1], text[end]
    if before == "\u200d" or behind == "\u200d" or unicodedata.category(behind)[0] == "M":
        return True
    if "\U0001f3fb" <= behind <= "\U0001f3ff" or "\U000e0020" <= behind <= "\U000e007f":
        return True
    flags = 0  # flags are pairs: an even number of halves before `end` is whole
    while flags < end and "\U0001f1e6" <= text[end - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return flags % 2 == 1 and "\U0001f1e6" <= behind <= "\U0001f1ff"
