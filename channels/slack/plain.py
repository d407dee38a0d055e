"""Conversion of Markdown to plain text, and escapes for plain fields. Used by `markup` where no block is possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import MappingProxyType

from markdown_it.token import Token

MARKS = ("strong", "em", "s")
RULE = "───"
_ESCAPES = MappingProxyType({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SPECIAL = re.compile("[&<>]")
# Control characters, lone surrogates, and bidirectional overrides.
_UNCLEAN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Remove control characters except tab and line break, lone surrogates, and bidirectional overrides."""
    return text if text.isprintable() else _UNCLEAN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def escaped(text: str) -> str:
    """Return plain text for a field that Slack parses as mrkdwn: nothing in it mentions, links or notifies."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], clean(text))


class Walk:
    """Writer of the parser's tokens as plain text, in one pass."""

    def __init__(self, inline: Callable[[str], Sequence[Token]]) -> None:
        """Take the parser of a block's inline content."""
        self._inline = inline
        self._lines: list[str] = []
        self._begun = ""
        """Bullet that waits for its text."""
        self._lists: list[int | None] = []
        """Open lists: the next number, or None for bullets."""
        self._row: list[str] | None = None

    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(self._lines)

    def take(self, token: Token) -> None:
        """Write a block token."""
        name, _, side = token.type.rpartition("_")
        if token.type == "inline":
            self._block(self._said(self._inline(token.content)))
        elif token.type in ("fence", "code_block"):
            self._put(token.content.rstrip("\n"))
        elif token.type == "hr":
            self._put(RULE)
        elif name in ("bullet_list", "ordered_list"):
            self._list(token, begins=side == "open")
        elif name == "list_item" and side == "open":
            self._begun = self._bullet()
        elif name == "tr":
            self._table_row(begins=side == "open")

    def _block(self, said: str) -> None:
        if self._row is not None:
            self._row.append(said.replace("\n", " "))
        else:
            self._put(said)

    def _put(self, said: str) -> None:
        """Write a block, after a pending bullet."""
        self._lines += f"{self._begun}{said}".split("\n")
        self._begun = ""

    def _list(self, token: Token, *, begins: bool) -> None:
        if not begins:
            self._lists.pop()
        elif token.type == "bullet_list_open":
            self._lists.append(None)
        else:
            start = token.attrGet("start")
            self._lists.append(1 if start is None else int(start))

    def _bullet(self) -> str:
        indent, number = "  " * (len(self._lists) - 1), self._lists[-1]
        if number is None:
            return f"{indent}• "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _table_row(self, *, begins: bool) -> None:
        if begins:
            self._row = []
        elif self._row is not None:
            row, self._row = " | ".join(self._row), None
            self._put(row)

    # --- inside of a block ----------------------------------------------------------------------

    def _said(self, tokens: Sequence[Token]) -> str:
        parts: list[str] = []
        links: list[tuple[int, str]] = []
        for token in tokens:
            name, _, side = token.type.rpartition("_")
            if name == "link" and side == "open":
                links.append((len(parts), str(token.attrGet("href") or "")))
            elif name == "link" and links:
                at, url = links.pop()
                parts[at:] = [self._link("".join(parts[at:]), url)]
            elif name not in MARKS:
                parts.append(self._leaf(token))
        return "".join(parts)

    def _leaf(self, token: Token) -> str:
        if token.type in ("softbreak", "hardbreak"):
            return "\n"
        if token.type == "image":
            return self._link(token.content or "image", str(token.attrGet("src") or ""))
        return token.content

    def _link(self, label: str, url: str) -> str:
        """Return a link's label, and its URL unless the label contains it."""
        shown = url.removeprefix("mailto:")
        return label if not shown or shown in label else f"{label} ({shown})"
