"""Search for the text that an edit replaces, by nine strategies from exact to loose. Used by `replacing`. Pure.

A strategy yields the spans it finds. The first one that finds any decides: looser ones would only find other places.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType

SIMILAR = 0.65
"""Least similarity of the lines between two anchors."""
EQUAL_LINES = 0.5
"""Least share of equal lines between first and last line."""
ANCHORED_FROM = 3
"""Fewest lines of a text that is found by its first and last line."""
LOOSE_LINES = 500
"""Lines of the longest text for loose strategies: they compare it with every place of the file."""
EXTRA_CHARS = 500
"""Characters by which a short text may be exceeded by what a loose strategy finds."""
WORK = 2_000_000
"""Comparisons of two lines that the loose strategies may make: about a second."""
COMPARED_AS_ONE = 10_000
"""Pairs of characters whose similarity takes as long as comparing two lines."""


class Strategy(StrEnum):
    """Way in which the old text was found, in order of trial."""

    EXACT = "exact"
    LINE_TRIMMED = "line_trimmed"
    """Lines are equal without the spaces around them."""
    BLOCK_ANCHOR = "block_anchor"
    """First and last line are equal, the lines between are similar."""
    WHITESPACE = "whitespace_normalized"
    """Words are equal; any white space stands between them."""
    INDENTATION = "indentation_flexible"
    """Lines are equal without their common indentation."""
    ESCAPES = "escape_normalized"
    r"""The old text was escaped: `\n` for a line break."""
    BOUNDARY = "trimmed_boundary"
    """Equal without the white space around the old text."""
    CONTEXT = "context_aware"
    """First and last line are equal, and half of the lines between."""
    EVERY = "multi_occurrence"
    """Every exact occurrence, where all are to be replaced."""


TRUSTED = frozenset({Strategy.EXACT, Strategy.EVERY, Strategy.LINE_TRIMMED})
"""Strategies that cannot find another text than the one meant, apart from white space at the ends of lines."""


@dataclass(frozen=True, slots=True)
class Span:
    """Place of a found text: offsets of its first character and of the one after its last."""

    start: int
    end: int


class _TooMuchError(Exception):
    """The comparisons took more than they may."""


@dataclass(slots=True)
class _Text:
    """Text that is searched, with its lines, and what comparing them may still cost."""

    whole: str
    lines: list[str]
    stripped: list[str]
    """Lines without the spaces around them."""
    starts: list[int]
    """Offset of each line."""
    left: int = WORK

    def spend(self, work: int) -> None:
        """Take note of comparisons that come. Raises `_TooMuchError` when they are too many."""
        self.left -= work
        if self.left < 0:
            raise _TooMuchError

    def span(self, n: int, count: int) -> Span:
        """Return the place of `count` lines from line `n` on, without the line break at their end."""
        return Span(self.starts[n], self.starts[n + count] - 1)


def _prepared(text: str) -> _Text:
    lines = text.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    return _Text(text, lines, [line.strip() for line in lines], starts)


Finder = Callable[[_Text, str], Iterable[Span]]


def find(text: str, old: str) -> tuple[Strategy, Sequence[Span]] | None:
    """Return the places of a text by the first strategy that finds it; None when none does. `old` is not empty.

    None also when the loose strategies had to compare too much, as in a file of a million equal lines.
    """
    if spans := list(_exact(text, old)):
        return Strategy.EXACT, spans
    if old.count("\n") >= LOOSE_LINES:
        return None
    searched = _prepared(text)
    try:
        for strategy, finder in _LOOSE.items():
            spans = list(dict.fromkeys(finder(searched, old)))
            if strategy not in TRUSTED:
                spans = [span for span in spans if _has_like_size(text[span.start : span.end], old)]
            if spans:
                return strategy, spans
    except _TooMuchError:
        pass
    return None


def _has_like_size(found: str, old: str) -> bool:
    """Return True if a loosely found text is about as long as the given one: within 25 % of its lines, or one."""
    lines, wanted = found.count("\n") + 1, old.strip("\n").count("\n") + 1
    return abs(lines - wanted) <= max(1, wanted // 4) and len(found) <= max(len(old) + EXTRA_CHARS, 4 * len(old))


# --- strategies ---------------------------------------------------------------------------------


def _exact(text: str, old: str) -> Iterator[Span]:
    at = text.find(old)
    while at >= 0:
        yield Span(at, at + len(old))
        at = text.find(old, at + len(old))


def _line_trimmed(text: _Text, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _lines_of(old)]
    for n in _begins(text, wanted[0], len(wanted)):
        if text.stripped[n : n + len(wanted)] == wanted:
            yield text.span(n, len(wanted))


def _block_anchor(text: _Text, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _lines_of(old)]
    if len(wanted) < ANCHORED_FROM:
        return
    slack = len(wanted) // 4
    for count in range(max(ANCHORED_FROM, len(wanted) - slack), len(wanted) + slack + 1):
        for n in _begins(text, wanted[0], count):
            if text.stripped[n + count - 1] == wanted[-1] and _is_similar(text, n, count, wanted):
                yield text.span(n, count)


def _is_similar(text: _Text, n: int, count: int, wanted: Sequence[str]) -> bool:
    """Return whether the lines between the anchors are alike."""
    from rapidfuzz.distance import Levenshtein

    between = list(zip(text.stripped[n + 1 : n + count - 1], wanted[1:-1], strict=False))
    text.spend(sum(len(one) * len(other) // COMPARED_AS_ONE for one, other in between))
    whole = sum(Levenshtein.normalized_similarity(one, other) for one, other in between)
    return not between or whole / max(count - 2, len(wanted) - 2) >= SIMILAR


def _whitespace(text: _Text, old: str) -> Iterator[Span]:
    """Compare texts in which each white space is one space: a pattern would be tried at every place."""
    wanted = " ".join(old.split())
    if not wanted:
        return
    words = list(re.finditer(r"\S+", text.whole))
    plain = " ".join(word.group() for word in words)
    starts = list(accumulate((len(word.group()) + 1 for word in words), initial=0))

    def place(at: int) -> int:
        n = bisect_right(starts, at) - 1
        return words[n].start() + at - starts[n]

    for span in _exact(plain, wanted):
        yield Span(place(span.start), place(span.end - 1) + 1)


def _indentation(text: _Text, old: str) -> Iterator[Span]:
    lines = _lines_of(old)
    wanted = _dedented(lines)
    for n in _begins(text, lines[0].strip(), len(lines)):
        text.spend(3 * len(lines))  # it takes the lines apart
        if _dedented(text.lines[n : n + len(lines)]) == wanted:
            yield text.span(n, len(lines))


_UNESCAPED: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "`": "`", "\\": "\\", "$": "$", "\n": "\n"}
)


def _escapes(text: _Text, old: str) -> Iterator[Span]:
    plain = re.sub(r"\\([ntr'\"`\\$\n])", lambda match: _UNESCAPED[match.group(1)], old)
    return _exact(text.whole, plain) if plain and plain != old else iter(())


def _boundary(text: _Text, old: str) -> Iterator[Span]:
    bare = old.strip()
    return _exact(text.whole, bare) if bare and bare != old else iter(())


def _context(text: _Text, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _lines_of(old)]
    count = len(wanted)
    if count < ANCHORED_FROM:
        return
    for n in _begins(text, wanted[0], count):
        found = text.stripped[n : n + count]
        equal = sum(one == other for one, other in zip(found[1:-1], wanted[1:-1], strict=True))
        if found[-1] == wanted[-1] and equal >= EQUAL_LINES * (count - 2):
            yield text.span(n, count)


_LOOSE: Mapping[Strategy, Finder] = MappingProxyType(
    {
        Strategy.LINE_TRIMMED: _line_trimmed,
        Strategy.BLOCK_ANCHOR: _block_anchor,
        Strategy.WHITESPACE: _whitespace,
        Strategy.INDENTATION: _indentation,
        Strategy.ESCAPES: _escapes,
        Strategy.BOUNDARY: _boundary,
        Strategy.CONTEXT: _context,
    }
)
"""Strategies after the exact one, in order of trial. `EVERY` is the exact one where all places are replaced."""


# --- lines --------------------------------------------------------------------------------------


def _lines_of(old: str) -> list[str]:
    """Return the lines of a text; a line break at its end begins no further line."""
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _dedented(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(line.rstrip() for line in lines))


def _begins(text: _Text, first: str, count: int) -> Iterator[int]:
    """Yield possible starts of `count` whole lines: at each line that equals `first` without the spaces around it."""
    n = -1
    last = len(text.lines) - count
    while True:
        try:
            n = text.stripped.index(first, n + 1, max(0, last + 1))
        except ValueError:
            return
        text.spend(count)
        yield n
