"""Conversion of Markdown to formatted text. Used by `outbound`; accepts any text and never fails.

The parser finds the blocks; a block's inline formatting is parsed only when it is written, so that only the beginning
of an overlong text is parsed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from markdown_it.token import Token

from channels._shared.markdown import parser
from channels.telegram.formatted_text import Draft, FormattedText, clean
from channels.telegram.limits import ENTITIES, TEXT_UNITS
from channels.telegram.markdown_scan import defines, references

INLINE_CHARS = 2048
"""Characters parsed at once for inline formatting; the parser's time grows with their square."""
BRACKETS = 100
"""Opening brackets in such a piece, at most, for the same reason."""
URL_CHARS = 2048
"""Characters of a link's URL, at most."""
RULE = "──────────"
BULLETS = ("•", "◦", "▪")
INLINE_KINDS = MappingProxyType({"strong": "bold", "em": "italic", "s": "strikethrough"})
ALIGNED: MappingProxyType[str, Callable[[str, int], str]] = MappingProxyType(
    {
        "text-align:right": lambda text, pad: " " * pad + text,
        "text-align:center": lambda text, pad: " " * (pad // 2) + text + " " * (pad - pad // 2),
    }
)

_LEAVES = frozenset({"inline", "fence", "code_block", "hr"})
_INLINE = re.compile(r"[\\`*_~\[\]<&]|  \n")
_TASK = re.compile(r"\[([ xX])\]\s+")
_LINK = re.compile(r"https?://(?P<host>[\w-]+(?:\.[\w-]+)+)(?::(?P<port>\d{1,5}))?(?:[/?#][!-~]*)?", re.ASCII | re.I)
_LANGUAGE = re.compile(r"(?P<language>[\w+#.-]{1,32})(?:[ ]+(?:[\w-]{1,32}=[^ ]*|\{[^}]*\}))*", re.ASCII)
"""Info string of a fenced block: a language, then perhaps settings."""

_Read: TypeAlias = Callable[[Token], Iterator[list[Token]]]
"""Function that parses a block's content piece by piece; each piece has lines of its own."""


class TelegramMarkup:
    """Converter of Markdown. Create one and keep it: making the parser costs more than using it."""

    def __init__(self) -> None:
        """Create the parser."""
        self._parser = parser()
        self._parser.options["store_labels"] = True

    def formatted(self, markdown: str, *, quiet: bool = False) -> FormattedText:
        """Return the Markdown as formatted text. With `quiet`, mentions notify nobody (for groups)."""
        return self.beginning(markdown, quiet=quiet)[0]

    def beginning(
        self, markdown: str, *, messages: int = 0, quiet: bool = False, rest: str = ""
    ) -> tuple[FormattedText, bool]:
        """Return the whole text and True, or what was read and False once it cannot fit `messages`. 0: no limit.

        `rest`: the text after `markdown`, which may define its links.
        """
        env: dict[str, Any] = {}
        walk = _Walk(lambda token: self._pieces(token.content, env), messages)
        tokens = self._parser.parse(clean(markdown), env)
        defined = references([*(token.content for token in tokens if token.type == "inline"), clean(rest)])
        if defined:  # without definitions the parser skips the lookup
            env["references"] = defined
        for token in tokens:
            if walk.full:
                walk.stop()
                return walk.draft.formatted(quiet=quiet), False
            walk.block(token)
        return walk.draft.formatted(quiet=quiet), True

    def _pieces(self, content: str, env: dict[str, Any]) -> Iterator[list[Token]]:
        """Parse a block's content; text without markup and overlong text are passed through as they are."""
        for text in _pieces(content):
            found: list[Token] = []
            if not _INLINE.search(text) or len(text) > INLINE_CHARS or text.count("[") > BRACKETS:
                found.append(Token("text", "", 0, content=text))
            else:
                self._parser.inline.parse(text, self._parser, env, found)
            yield found


def linkable(url: str) -> bool:
    """Return True if Telegram accepts a URL as a link; for an invalid one it refuses the whole message.

    So only http and https, no `localhost`, no user name before the host.
    """
    match = _LINK.fullmatch(url)
    return match is not None and len(url) <= URL_CHARS and 0 < int(match["port"] or 80) < 65_536


def _pieces(text: str) -> Iterator[str]:
    """Cut an overlong paragraph at line breaks into pieces that can be parsed."""
    while len(text) > INLINE_CHARS and (at := text.rfind("\n", 0, INLINE_CHARS)) > 0:
        yield text[:at].rstrip(" ")
        text = text[at + 1 :].lstrip(" ")
    yield text


class _Walk:
    """Writer of the parser's block tokens, in one pass."""

    def __init__(self, read: _Read, messages: int) -> None:
        self.draft = Draft()
        self._read = read
        self._messages = messages
        self._lists: list[int | None] = []
        """Open lists: the next number, or None for bullets."""
        self._quotes: list[int] = []
        self._heading: int | None = None
        self._table: _Table | None = None
        self._end = 0
        """Source line after the last block."""
        self._labels: set[str] = set()
        """Labels of the definitions that links used."""
        self._first = False
        """True when a list item has just begun, so that a task box may follow."""
        self._blocks: dict[str, Callable[[Token], None]] = {
            "paragraph_open": self._below,
            "heading_open": self._heading_open,
            "heading_close": self._heading_close,
            "hr": self._rule,
            "fence": self._fence,
            "code_block": lambda token: self.draft.block(token.content.rstrip()),
            "blockquote_open": self._quote_open,
            "blockquote_close": self._quote_close,
            "bullet_list_open": self._list_open,
            "ordered_list_open": self._list_open,
            "bullet_list_close": self._list_close,
            "ordered_list_close": self._list_close,
            "list_item_open": self._item_open,
            "list_item_close": self._item_close,
            "table_open": self._table_open,
            "table_close": self._table_close,
            "inline": self._inline,
        }

    def block(self, token: Token) -> None:
        """Write a block token."""
        if self._table is not None and token.type != "table_close":
            self._table.take(token)
        elif (write := self._blocks.get(token.type)) is not None:
            write(token)
        if token.map and token.type in _LEAVES:
            self._end = token.map[1]

    @property
    def full(self) -> bool:
        """Return True if more was written than the messages hold; always False for 0 messages."""
        table = self._table.length if self._table else 0
        too_long = self.draft.length + table > self._messages * TEXT_UNITS
        return self._messages > 0 and (too_long or self.draft.pieces > self._messages * ENTITIES)

    def stop(self) -> None:
        """Close all open blocks; nothing more is written."""
        if self._table is not None:
            self.draft.block(self._table.text())
        if self._heading is not None:
            self.draft.span("bold", self._heading)
        if self._quotes:
            self.draft.span("blockquote", self._quotes[0])

    def _heading_open(self, _: Token) -> None:
        self.draft.line(2)
        self._heading = self.draft.begin()

    def _heading_close(self, _: Token) -> None:
        if self._heading is not None:
            self.draft.span("bold", self._heading)
        self._heading = None

    def _below(self, token: Token) -> None:
        """Begin a block on a new line, after a blank line where the source has one."""
        self.draft.line(1 if token.hidden or (token.map and token.map[0] <= self._end) else 2)

    def _rule(self, token: Token) -> None:
        self._below(token)
        self.draft.add(RULE)

    def _fence(self, token: Token) -> None:
        """Write a code block; an info string that is no language becomes its first line, so that nothing is lost."""
        code, info = token.content.rstrip(), token.info.strip()
        found = _LANGUAGE.fullmatch(info) if code else None
        if found is not None:
            self.draft.block(code, found["language"])
        else:
            self.draft.block("\n".join(filter(None, (info, code))))

    def _quote_open(self, token: Token) -> None:
        self._below(token)
        if self._quotes:
            self.draft.indent.append("> ")
        self._quotes.append(self.draft.begin())

    def _quote_close(self, _: Token) -> None:
        start = self._quotes.pop()
        if self._quotes:
            self.draft.indent.pop()
        else:
            self.draft.span("blockquote", start)

    def _list_open(self, token: Token) -> None:
        self._below(token)
        first = int(token.attrGet("start") or 1) if token.type == "ordered_list_open" else None
        if token.attrGet("start") == 0:
            first = 0
        self._lists.append(first)

    def _list_close(self, _: Token) -> None:
        self._lists.pop()

    def _item_open(self, _: Token) -> None:
        self.draft.item()
        self.draft.line()
        number = self._lists[-1]
        bullet = BULLETS[min(len(self._lists), len(BULLETS)) - 1]
        self.draft.marker = f"{bullet} " if number is None else f"{number}. "
        self.draft.indent.append(" " * (len(self.draft.marker) if number is not None else 3))
        self._lists[-1] = None if number is None else number + 1
        self._first = True

    def _item_close(self, _: Token) -> None:
        self.draft.item()
        self.draft.indent.pop()

    def _table_open(self, _: Token) -> None:
        self._table = _Table(self._read)

    def _table_close(self, _: Token) -> None:
        if self._table is not None:
            self.draft.block(self._table.text())
        self._table = None

    def _inline(self, token: Token) -> None:
        if self._is_spent(token):
            return
        line = _Line(self.draft, quoted=bool(self._quotes), bold=self._heading is not None, labels=self._labels)
        for n, children in enumerate(self._read(token)):
            if n and self.full:
                return
            if n:
                self.draft.line()
            elif self._first and children and (match := _TASK.match(children[0].content)):
                self.draft.marker = "☐ " if match[1] == " " else "☑ "
                children[0].content = children[0].content[match.end() :]
            self._first = False
            line.write(children)

    def _is_spent(self, token: Token) -> bool:
        """Return True if a paragraph only defines links used above it. Other definitions are shown."""
        if not self._labels or self._lists or self._quotes or self._heading is not None:
            return False
        labels = defines(token.content)
        return labels is not None and labels <= self._labels


class _Line:
    """Writer of the inline tokens of one paragraph, heading or item."""

    def __init__(self, draft: Draft, *, quoted: bool, bold: bool, labels: set[str]) -> None:
        self._draft = draft
        self._labels = labels
        self._quoted = quoted
        self._open: dict[str, list[int]] = {kind: [] for kind in INLINE_KINDS.values()}
        if bold:  # a heading is bold to its end
            self._open["bold"].append(draft.length)
        self._link: tuple[int, str] | None = None

    def write(self, tokens: Sequence[Token]) -> None:
        """Write the tokens in order."""
        for token in tokens:
            name, _, side = token.type.rpartition("_")
            if token.type in ("softbreak", "hardbreak"):
                self._draft.line()
            elif token.type == "code_inline":
                self._code(token.content)
            elif token.type == "image":
                self._image(token)
            elif name == "link":
                self._link_end() if side == "close" else self._link_begin(token)
            elif name in INLINE_KINDS:
                self._mark(INLINE_KINDS[name], side)
            else:
                self._draft.add(token.content)

    def _mark(self, kind: str, side: str) -> None:
        if side == "open":
            self._open[kind].append(self._draft.begin())
            return
        start = self._open[kind].pop()
        if not self._open[kind]:  # bold in bold is bold
            self._draft.span(kind, start)

    def _code(self, code: str) -> None:
        """Write inline code: plain text in a link; with its backticks in a quote, which cannot hold code."""
        if self._link is not None:
            self._draft.add(code)
        elif self._quoted:
            self._draft.add(f"`{code}`")
        else:
            self._draft.add(code, "code")

    def _image(self, token: Token) -> None:
        self._note_label(token)
        alt = plain(token.children or []) or "image"
        if self._link is not None:
            self._draft.add(alt)
            return
        self._link = (self._draft.begin(), str(token.attrGet("src") or ""))
        self._draft.add(alt)
        self._link_end()

    def _note_label(self, token: Token) -> None:
        if "label" in token.meta:
            self._labels.add(str(token.meta["label"]))

    def _link_begin(self, token: Token) -> None:
        self._note_label(token)
        self._link = (self._draft.begin(), str(token.attrGet("href") or ""))

    def _link_end(self) -> None:
        start, url = self._link or (self._draft.length, "")
        self._link = None
        label = self._draft.since(start).strip()
        if linkable(url) and not _misleads(label, url) and label:
            self._draft.span("text_link", start, url=url)
        elif label not in (url, url.removeprefix("mailto:")):
            shown = url.removeprefix("mailto:")
            self._draft.add(f" ({shown})" if label and shown else shown)


class _Table:
    """Layout of one table in columns."""

    def __init__(self, read: _Read) -> None:
        self.length = 0
        """Characters of the cells so far."""
        self._read = read
        self._rows: list[list[str]] = []
        self._styles: list[str] = []

    def take(self, token: Token) -> None:
        """Add a token of the table."""
        if token.type == "tr_open":
            self._rows.append([])
        elif token.type == "th_open":
            self._styles.append(str(token.attrGet("style") or ""))
        elif token.type == "inline":
            self._rows[-1].append(" ".join(plain(piece) for piece in self._read(token)))
            self.length += len(self._rows[-1][-1])

    def text(self) -> str:
        """Return the lines: head, rule, rows."""
        # A table in which reading stopped may end in half a row.
        widths = [max(map(_width, column)) for column in zip_longest(*self._rows, fillvalue="")]
        lines = [" | ".join(map(self._cell, row, widths, self._styles)).rstrip() for row in self._rows]
        return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])

    @staticmethod
    def _cell(text: str, width: int, style: str) -> str:
        pad = width - _width(text)
        return ALIGNED[style](text, pad) if style in ALIGNED else text + " " * pad


def plain(tokens: Sequence[Token]) -> str:
    """Return the text of inline tokens on one line, without formatting."""
    texts = (plain(one.children) if one.children else one.content or " " * (one.tag == "br") for one in tokens)
    return clean("".join(texts)).replace("\n", " ")


def _misleads(label: str, url: str) -> bool:
    """Return True if a link's text names another host than its URL."""
    named = label if "://" in label else f"//{label}" if label.lower().startswith("www.") else ""
    try:
        return bool(named) and urlsplit(named).hostname != urlsplit(url).hostname
    except ValueError:
        return True


def _width(text: str) -> int:
    """Return the columns of a text in a monospaced font."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.category(char) in {"Mn", "Me", "Cf"} for char in text)
