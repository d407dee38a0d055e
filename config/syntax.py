"""Explanations of TOML syntax errors: the place, the usual cause and the cure. Values are never repeated."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.text import cut

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_CURLY = re.compile("[“”„‟‘’‚‛«»]")
_UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f\u00a0\u200b-\u200f\u2028\u2029\u202f\u2060\ufeff]")
_STARTS_WELL = re.compile(r"(true|false|inf|nan|[+-]?[\d_]+(\.\d+)?([eE][+-]?\d+)?|\d{4}-\d\d-\d\d\S*)(?=\s|$)|[\"'{]")
_HEADER = re.compile(r"\s*\[")
_PAIR = re.compile(r"""\s*([\w.-]+|"[^"]*"|'[^']*')\s*=\s*(.*)""")
_COLON = re.compile(r"\s*[\w.-]+\s*:(\s|$)")
_NAME_CHARS = 60
_ONE_LINE = 'Write it in one line: { main = "ask", dm = "deny" }'


@dataclass(frozen=True, slots=True)
class SyntaxMistake:
    """A syntax error of a file, explained."""

    line: int
    column: int
    what: str
    cure: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A syntax error as the parser reports it, with the file's lines."""

    message: str
    lines: Sequence[str]
    line: int
    column: int

    @property
    def text(self) -> str:
        return self.lines[self.line - 1] if self.line <= len(self.lines) else ""

    @property
    def pair(self) -> tuple[str, str]:
        """The key and value of the line, both empty without one."""
        found = _PAIR.match(self.text)
        return (cut(found[1], _NAME_CHARS), found[2].strip()) if found else ("", "")


def explain(text: str, message: str) -> SyntaxMistake | None:
    """Return the cause of the parser's `message` about `text`; None when the message names no place."""
    place = _PLACE.search(message)
    if place is None:
        return None
    lines = text.split("\n")
    line = int(place[1]) if place[1] else _last_opened(lines)
    column = int(place[2]) if place[2] else len(lines[line - 1]) + 1
    found = _Found(message[: place.start()], lines, line, column)
    for cause in _CAUSES:
        if why := cause(found):
            return SyntaxMistake(line, column, *why)
    return SyntaxMistake(line, column, found.message[:1].lower() + found.message[1:], "Correct that line")


def _last_opened(lines: Sequence[str]) -> int:
    """Return the line of an unclosed multi-line text, else the last line."""
    opened = [n for n, line in enumerate(lines, 1) if '"""' in line or "'''" in line]
    return opened[-1] if opened else len(lines)


_Why = tuple[str, str] | None


def _json(found: _Found) -> _Why:
    if found.line == 1 and found.text.lstrip().startswith("{"):
        return "this is JSON", "Write TOML, as config/example.toml does: [http], and below it port = 8470"
    return None


def _unseen(found: _Found) -> _Why:
    char = _UNSEEN.search(found.text.rstrip("\r"))
    if char is None:
        return None
    return f"the line has an invisible character (U+{ord(char[0]):04X})", "Delete it, or write a plain space"


def _curly(found: _Found) -> _Why:
    if _CURLY.search(found.text) is None:
        return None
    return "the line has typographic quotes", 'Write straight quotes: "…"'


def _twice(found: _Found) -> _Why:
    if "Cannot declare" in found.message:
        name = found.text.partition("#")[0].strip()
        same = (n for n, line in enumerate(found.lines[: found.line - 1], 1) if line.partition("#")[0].strip() == name)
        first = next(same, 0)
        where = f", first in line {first}" if first else ""
        return f"the table {cut(name, _NAME_CHARS)} is there twice{where}", "Write all its keys below the first one"
    if "Cannot overwrite" in found.message or "immutable" in found.message:
        key = found.pair[0] or cut(found.text.strip(), _NAME_CHARS)
        return f"{key} has a value already", "Remove one of the two"
    return None


def _colon(found: _Found) -> _Why:
    if "=" in found.text.partition(":")[0] or _COLON.match(found.text) is None:
        return None
    return "there is a colon where TOML has =", "Write key = value, and tables as [name]"


def _header(found: _Found) -> _Why:
    if _HEADER.match(found.text) is None or "array" in found.message:
        return None
    name = found.text.strip().strip("[]")
    if "]" in found.text and re.search(r"[^\w.\s\"'-]", name):
        return "a table's name has a character that needs quotes", 'Put that part in quotes: [model.prices."openai:x"]'
    return "the line is not the name of a table", "Write [name], or [[name]] for one of several, and nothing behind it"


def _quote(found: _Found) -> _Why:
    if "\\" in found.text and ("escape" in found.message.lower() or "hex value" in found.message):
        return "a backslash in double quotes begins a special character", r"Write \\ for each, or use single quotes"
    if r"'\n'" in found.message or "Unterminated string" in found.message:
        return "a text has no closing quote", "Close it with the quote that it begins with"
    return None


def _open(found: _Found) -> _Why:
    _, value = found.pair
    if value.startswith("{"):
        return "a table in braces is not closed in its line, or lacks a comma", _ONE_LINE
    if "array" in found.message or value.startswith("["):
        return "a list is not closed, or lacks a comma or quotes", 'Write a list as ["one", "two"]'
    return None


def _value(found: _Found) -> _Why:
    key, value = found.pair
    if not key:
        return None
    if not value or value.startswith("#"):
        return f"{key} has no value", f"Write one behind the =, or put # before {key}"
    if value.partition("#")[0].strip() in {"True", "False", "TRUE", "FALSE"}:
        return f"the value of {key} is not written as in TOML", "Write true or false in lower case"
    if re.fullmatch(r"[+-]?0\d+\s*(#.*)?", value):
        return f"the value of {key} begins with 0", "Write the number without it"
    if not _STARTS_WELL.match(value):
        return f"the value of {key} has no quotes", f'Put it in quotes: {key} = "…"'
    return f"there is more behind the value of {key}", "Write one value a line; a comment begins with #"


def _no_pair(found: _Found) -> _Why:
    if found.pair[0] or _HEADER.match(found.text):
        return None
    return "the line is neither key = value nor [table]", "Write it as one of them, or put # before it"


_CAUSES: Sequence[Callable[[_Found], _Why]] = (
    _json, _twice, _curly, _unseen, _colon, _header, _quote, _open, _value, _no_pair
)  # fmt: skip
"""Causes in order of priority: the first match wins."""
