"""Edits of a text: replacement, or the reason why not with the nearest text. Used by the edit tools. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_tools._files.matching import TRUSTED, Span, Strategy, find
from gateway.errors import BadRequest

CLOSEST_LINES = 6
"""Lines that a refusal shows around the nearest text."""
COMPARED_LINES = 20_000
"""Lines of a file that are compared for the nearest text."""
COMPARED_CHARS = 500
"""Characters of a line that are compared and shown."""
NEAR_ENOUGH = 40.0
"""Least similarity, of 100, of a line that is shown as the nearest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replacement."""

    old: str
    new: str
    everywhere: bool = False
    """True to replace every occurrence; else it must be unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Text after all edits, and how each old text was found."""

    text: str
    strategies: tuple[Strategy, ...]
    replaced: int
    """Number of places."""

    @property
    def loose(self) -> tuple[Strategy, ...]:
        """Strategies that may have found another text than the one meant."""
        return tuple(one for one in dict.fromkeys(self.strategies) if one not in TRUSTED)


def apply_edits(text: str, edits: Sequence[Edit]) -> Edited:
    """Return the text after all edits, each applied to what the one before left.

    Raises `BadRequest` for the first edit that changes nothing, is not found, or is found in several places.
    """
    strategies: list[Strategy] = []
    replaced = 0
    for n, edit in enumerate(edits, 1):
        which = f"Edit {n} of {len(edits)}: " if len(edits) > 1 else ""
        _check(edit, which)
        found = find(text, edit.old)
        if found is None:
            raise BadRequest(f"{which}`old` was not found. {closest(text, edit.old)}", cure=_READ_AGAIN)
        strategy, spans = found
        if len(spans) > 1 and not edit.everywhere:
            raise BadRequest(
                f"{which}`old` is in {len(spans)} places: lines {_line_numbers(text, spans)}.",
                cure="Give more lines around it, or set `replace_all` to replace every one.",
            )
        if len(spans) > 1 and strategy is Strategy.EXACT:
            strategy = Strategy.EVERY
        text = _replaced(text, spans, edit, strategy)
        strategies.append(strategy)
        replaced += len(spans)
    return Edited(text=text, strategies=tuple(strategies), replaced=replaced)


_READ_AGAIN = "Read the file again and copy the text exactly, with its spaces."


def _check(edit: Edit, which: str) -> None:
    if not edit.old:
        raise BadRequest(f"{which}`old` is empty.", cure="Name the text to replace, or use `write` for a whole file.")
    if edit.old == edit.new:
        raise BadRequest(f"{which}`old` and `new` are equal, so nothing would change.", cure="Say what is to change.")


def _line_numbers(text: str, spans: Sequence[Span]) -> str:
    shown = [str(text.count("\n", 0, span.start) + 1) for span in spans[:10]]
    return ", ".join(shown) + (" and more" if len(spans) > len(shown) else "")


def _replaced(text: str, spans: Sequence[Span], edit: Edit, strategy: Strategy) -> str:
    parts: list[str] = []
    at = 0
    for span in spans:
        found = text[span.start : span.end]
        parts += [text[at : span.start], _fitted(edit, found, strategy)]
        at = span.end
    return "".join([*parts, text[at:]])


_WHOLE_LINES = frozenset({Strategy.LINE_TRIMMED, Strategy.BLOCK_ANCHOR, Strategy.INDENTATION, Strategy.CONTEXT})


def _fitted(edit: Edit, found: str, strategy: Strategy) -> str:
    """Return the new text as it fits in place of the found one: with its indentation, and its end of line."""
    if strategy not in _WHOLE_LINES:
        return edit.new
    new = edit.new
    if edit.old.endswith("\n") and new.endswith("\n"):
        new = new[:-1]  # the found lines are without their last line break
    had, has = _indent(edit.old), _indent(found)
    if had == has:
        return new
    lines = [f"{has}{line[len(had) :]}" if line.strip() and line.startswith(had) else line for line in new.split("\n")]
    return "\n".join(lines)


def _indent(text: str) -> str:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]


def closest(text: str, old: str) -> str:
    """Return in words what is nearest to a text that was not found, with its line number and six lines."""
    from rapidfuzz import fuzz, process

    first = next((line.strip() for line in old.split("\n") if line.strip()), "")[:COMPARED_CHARS]
    lines = text.split("\n")
    found = process.extractOne(
        first,
        [line.strip()[:COMPARED_CHARS] for line in lines[:COMPARED_LINES]],
        scorer=fuzz.ratio,
        score_cutoff=NEAR_ENOUGH,
    )
    if not first or found is None:
        return "Nothing in the file is like it."
    n = found[2]
    begin = max(0, n - 1)
    shown = [f"{begin + k + 1}: {line[:COMPARED_CHARS]}" for k, line in enumerate(lines[begin : begin + CLOSEST_LINES])]
    return "\n".join([f"The nearest text is at line {n + 1}:", *shown])
