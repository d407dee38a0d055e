"""Search for the text that an edit replaces, by nine strategies from exact to loose. Used by `replacing`. Pure.

A strategy yields the spans it finds. The first one that finds any decides: looser ones would only find other places.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

SIMILAR = 0.65
"""Least similarity of the lines between two anchors."""
EQUAL_LINES = 0.5
"""Least share of equal lines between first and last line."""
ANCHORED_FROM = 3
"""Fewest lines of a text that is found by its first and last line."""
LOOSE_LINES = 500
"""Lines of the longest text that loose strategies look for: they compare it with every place of the file."""
EXTRA_CHARS = 500
"""Characters by which a short text may be exceeded by what a loose strategy finds."""


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


Finder = Callable[[str, str], Iterable[Span]]


def find(text: str, old: str) -> tuple[Strategy, Sequence[Span]] | None:
    """Return the places of a text by the first strategy that finds it; None when none does. `old` is not empty."""
    loose = old.count("\n") < LOOSE_LINES
    for strategy, finder in _FINDERS.items():
        if strategy is not Strategy.EXACT and not loose:
            return None
        spans = list(dict.fromkeys(finder(text, old)))
        if strategy not in TRUSTED:
            spans = [span for span in spans if _has_like_size(text[span.start : span.end], old)]
        if spans:
            return strategy, spans
    return None


def _has_like_size(found: str, old: str) -> bool:
    """Return whether a loosely found text is about as long as the one looked for: within 25 % of its lines, or one."""
    lines, wanted = found.count("\n") + 1, old.strip("\n").count("\n") + 1
    return abs(lines - wanted) <= max(1, wanted // 4) and len(found) <= max(len(old) + EXTRA_CHARS, 4 * len(old))


# --- strategies ---------------------------------------------------------------------------------


def _exact(text: str, old: str) -> Iterator[Span]:
    at = text.find(old)
    while at >= 0:
        yield Span(at, at + len(old))
        at = text.find(old, at + len(old))


def _line_trimmed(text: str, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _lines_of(old)]
    return _windows(text, len(wanted), lambda lines: [line.strip() for line in lines] == wanted, first=wanted[0])


def _block_anchor(text: str, old: str) -> Iterator[Span]:
    from rapidfuzz.distance import Levenshtein

    wanted = [line.strip() for line in _lines_of(old)]
    if len(wanted) < ANCHORED_FROM:
        return
    slack = len(wanted) // 4
    for count in range(max(ANCHORED_FROM, len(wanted) - slack), len(wanted) + slack + 1):

        def alike(lines: Sequence[str], count: int = count) -> bool:
            if lines[-1].strip() != wanted[-1]:
                return False
            between = list(zip((line.strip() for line in lines[1:-1]), wanted[1:-1], strict=False))
            whole = sum(Levenshtein.normalized_similarity(one, other) for one, other in between)
            return not between or whole / max(count - 2, len(wanted) - 2) >= SIMILAR

        yield from _windows(text, count, alike, first=wanted[0])


def _whitespace(text: str, old: str) -> Iterator[Span]:
    words = old.split()
    if not words:
        return
    pattern = re.compile(r"\s+".join(re.escape(word) for word in words))
    for match in pattern.finditer(text):
        yield Span(*match.span())


def _indentation(text: str, old: str) -> Iterator[Span]:
    lines = _lines_of(old)
    wanted = _dedented(lines)
    return _windows(text, len(lines), lambda found: _dedented(found) == wanted, first=lines[0].strip())


_UNESCAPED: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "`": "`", "\\": "\\", "$": "$", "\n": "\n"}
)


def _escapes(text: str, old: str) -> Iterator[Span]:
    plain = re.sub(r"\\([ntr'\"`\\$\n])", lambda match: _UNESCAPED[match.group(1)], old)
    return _exact(text, plain) if plain and plain != old else iter(())


def _boundary(text: str, old: str) -> Iterator[Span]:
    bare = old.strip()
    return _exact(text, bare) if bare and bare != old else iter(())


def _context(text: str, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _lines_of(old)]
    if len(wanted) < ANCHORED_FROM:
        return iter(())

    def alike(lines: Sequence[str]) -> bool:
        found = [line.strip() for line in lines]
        equal = sum(one == other for one, other in zip(found[1:-1], wanted[1:-1], strict=True))
        return found[-1] == wanted[-1] and equal >= EQUAL_LINES * (len(wanted) - 2)

    return _windows(text, len(wanted), alike, first=wanted[0])


_FINDERS: Mapping[Strategy, Finder] = MappingProxyType(
    {
        Strategy.EXACT: _exact,
        Strategy.LINE_TRIMMED: _line_trimmed,
        Strategy.BLOCK_ANCHOR: _block_anchor,
        Strategy.WHITESPACE: _whitespace,
        Strategy.INDENTATION: _indentation,
        Strategy.ESCAPES: _escapes,
        Strategy.BOUNDARY: _boundary,
        Strategy.CONTEXT: _context,
        Strategy.EVERY: _exact,
    }
)


# --- lines --------------------------------------------------------------------------------------


def _lines_of(old: str) -> list[str]:
    """Return the lines of a text; a line break at its end begins no further line."""
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _dedented(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(line.rstrip() for line in lines))


def _windows(text: str, count: int, fits: Callable[[Sequence[str]], bool], *, first: str) -> Iterator[Span]:
    """Yield each run of `count` whole lines that fits, without the line break at its end.

    `first`: the first line without the spaces around it; other runs are passed over.
    """
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for n in range(len(lines) - count + 1):
        if lines[n].strip() == first and fits(lines[n : n + count]):
            yield Span(starts[n], starts[n + count] - 1)
