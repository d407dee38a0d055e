"""On the way out: Markdown becomes text with formatting. Never fails, whatever the text is.

The parser finds the blocks; what stands in one is read for formatting only when it is written, so that of a text that
is far too long only the beginning is read.
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
from channels.telegram.formatted_text import Draft, Rich, clean
from channels.telegram.limits import ENTITIES, TEXT_UNITS
from channels.telegram.references import defines, references

INLINE_CHARS = 2048
BRACKETS = 100
"""Characters, and opening brackets, that are read at once for formatting: the parser's time grows with their square."""
URL_CHARS = 2048
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
"""What opens a block of code, when it is the name of a language and perhaps settings."""

_Read: TypeAlias = Callable[[Token], Iterator[list[Token]]]
"""Reads what stands in a block, piece by piece; each stands on lines of its own."""


class TelegramMarkup:
    """Reads Markdown. Make one and keep it: making the parser costs more than using it."""

    def __init__(self) -> None:
        """Make the parser."""
        self._parser = parser()
        self._parser.options["store_labels"] = True

    def rich(self, markdown: str, *, quiet: bool = False) -> Rich:
        """Return what it says as text and formatting. With `quiet`, names in it ring nobody (for groups)."""
        return self.beginning(markdown, quiet=quiet)[0]

    def beginning(self, markdown: str, *, messages: int = 0, quiet: bool = False, rest: str = "") -> tuple[Rich, bool]:
        """Return it all and True; or, as soon as it cannot fit so many messages, what was read and False. 0: all.

        `rest`: what follows it, in which its links may be defined.
        """
        env: dict[str, Any] = {}
        walk = _Walk(lambda token: self._pieces(token.content, env), messages)
        tokens = self._parser.parse(clean(markdown), env)
        defined = references([*(token.content for token in tokens if token.type == "inline"), clean(rest)])
        if defined:  # without any the parser does not look for them
            env["references"] = defined
        for token in tokens:
            if walk.full:
                walk.stop()
                return walk.draft.rich(quiet=quiet), False
            walk.block(token)
        return walk.draft.rich(quiet=quiet), True

    def _pieces(self, content: str, env: dict[str, Any]) -> Iterator[list[Token]]:
        """Read what stands in a block, with short cuts: for text that needs no reading, and for too much of it."""
        for text in _pieces(content):
            found: list[Token] = []
            if not _INLINE.search(text) or len(text) > INLINE_CHARS or text.count("[") > BRACKETS:
                found.append(Token("text", "", 0, content=text))
            else:
                self._parser.inline.parse(text, self._parser, env, found)
            yield found


def linkable(url: str) -> bool:
    """Whether Telegram takes it as a link. It refuses the whole message for one that it does not take.

    So no `localhost`, no user name before the host, nothing but http and https.
    """
    match = _LINK.fullmatch(url)
    return match is not None and len(url) <= URL_CHARS and 0 < int(match["port"] or 80) < 65_536


def _pieces(text: str) -> Iterator[str]:
    """A paragraph that is too long, cut at line breaks into pieces that can be read."""
    while len(text) > INLINE_CHARS and (at := text.rfind("\n", 0, INLINE_CHARS)) > 0:
        yield text[:at].rstrip(" ")
        text = text[at + 1 :].lstrip(" ")
    yield text


class _Walk:
    """Goes through the parser's tokens once and writes what they say."""

    def __init__(self, read: _Read, messages: int) -> None:
        self.draft = Draft()
        self._read = read
        self._messages = messages
        self._lists: list[int | None] = []
        """The lists that are open: the next number, or None for bullets."""
        self._quotes: list[int] = []
        self._heading: int | None = None
        self._table: _Table | None = None
        self._end = 0
        """The source's line behind the last block."""
        self._labels: set[str] = set()
        """Of the definitions that links were made with."""
        self._first = False
        """Whether an item of a list has just begun, so that a box to tick may follow."""
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
        """Write what a token of the outer level says."""
        if self._table is not None and token.type != "table_close":
            self._table.take(token)
        elif (write := self._blocks.get(token.type)) is not None:
            write(token)
        if token.map and token.type in _LEAVES:
            self._end = token.map[1]

    @property
    def full(self) -> bool:
        """Whether more was written than the messages take; never, when their number is 0."""
        table = self._table.length if self._table else 0
        too_long = self.draft.length + table > self._messages * TEXT_UNITS
        return self._messages > 0 and (too_long or self.draft.pieces > self._messages * ENTITIES)

    def stop(self) -> None:
        """End what is open; nothing more is written."""
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
        """Begin a block on a new line, below a blank one where the source has one."""
        self.draft.line(1 if token.hidden or (token.map and token.map[0] <= self._end) else 2)

    def _rule(self, token: Token) -> None:
        self._below(token)
        self.draft.add(RULE)

    def _fence(self, token: Token) -> None:
        """Code; what opens it and is no language is its first line, so that nothing is left out."""
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
        """Whether a paragraph has nothing but definitions of links that stand above it. Others are shown."""
        if not self._labels or self._lists or self._quotes or self._heading is not None:
            return False
        labels = defines(token.content)
        return labels is not None and labels <= self._labels


class _Line:
    """Writes what stands inside of one paragraph, heading or item."""

    def __init__(self, draft: Draft, *, quoted: bool, bold: bool, labels: set[str]) -> None:
        self._draft = draft
        self._labels = labels
        self._quoted = quoted
        self._open: dict[str, list[int]] = {kind: [] for kind in INLINE_KINDS.values()}
        if bold:  # it is already, to its end
            self._open["bold"].append(draft.length)
        self._link: tuple[int, str] | None = None

    def write(self, tokens: Sequence[Token]) -> None:
        """Write them in order."""
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
        """In a link the link counts more; and a quotation cannot hold code, so there it keeps its ticks."""
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
    """Collects the cells of one table and sets them out in columns."""

    def __init__(self, read: _Read) -> None:
        self.length = 0
        """Characters of its cells."""
        self._read = read
        self._rows: list[list[str]] = []
        self._styles: list[str] = []

    def take(self, token: Token) -> None:
        """Take a token from inside of the table."""
        if token.type == "tr_open":
            self._rows.append([])
        elif token.type == "th_open":
            self._styles.append(str(token.attrGet("style") or ""))
        elif token.type == "inline":
            self._rows[-1].append(" ".join(plain(piece) for piece in self._read(token)))
            self.length += len(self._rows[-1][-1])

    def text(self) -> str:
        """Return its lines: the heads, a line below them, the rows."""
        # One that reading was stopped in may end in half a row.
        widths = [max(map(_width, column)) for column in zip_longest(*self._rows, fillvalue="")]
        lines = [" | ".join(map(self._cell, row, widths, self._styles)).rstrip() for row in self._rows]
        return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])

    @staticmethod
    def _cell(text: str, width: int, style: str) -> str:
        pad = width - _width(text)
        return ALIGNED[style](text, pad) if style in ALIGNED else text + " " * pad


def plain(tokens: Sequence[Token]) -> str:
    """What some inline tokens say, without formatting, on one line."""
    said = (plain(token.children) if token.children else token.content or " " * (token.tag == "br") for token in tokens)
    return clean("".join(said)).replace("\n", " ")


def _misleads(label: str, url: str) -> bool:
    """Whether the text of a link names another place than the link goes to."""
    named = label if "://" in label else f"//{label}" if label.lower().startswith("www.") else ""
    try:
        return bool(named) and urlsplit(named).hostname != urlsplit(url).hostname
    except ValueError:
        return True


def _width(text: str) -> int:
    """Columns of a text in a font of one width."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.category(char) in {"Mn", "Me", "Cf"} for char in text)
