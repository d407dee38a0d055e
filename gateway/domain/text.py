"""Anywhere on the path: words that somebody else chose, made fit to stand in a line of ours. Pure."""

from __future__ import annotations

import json
import re
import unicodedata

_SURROGATES = re.compile("[\ud800-\udfff]")
# Not even `str.isprintable` knows them: letters and signs that have no shape, and signs that only choose a shape, of
# which hundreds hide a text behind one letter. U+FE0E and U+FE0F stay: common emoji are written with them.
FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Characters that nobody sees, besides white space and those that are no text at all."""


def visible(text: str) -> bool:
    """Whether somebody would see anything; platforms refuse a message of blanks."""
    return any(
        not char.isspace() and char not in FILLERS and unicodedata.category(char) not in {"Cc", "Cf", "Mn", "Me"}
        for char in text
    )


def plain(text: str) -> str:
    """Return the text as one line with nothing in it that cannot be seen; empty when there is nothing else.

    The guard against forged lines: a line break of any kind, a control character, what turns text around or hides in
    it parts words, as a space does. Taken out, it would join what stood around it to something nobody wrote.
    """
    if not text.isascii() or not text.isprintable():
        text = "".join(char if char.isprintable() and char not in FILLERS else " " for char in text)
    return " ".join(text.split())


def media_type(content_type: str) -> str:
    """Return what a `Content-Type` says, in small letters and without its parameters; empty when it says nothing.

    aiohttp hands all of it to Python's reader of mail headers, which raises whatever comes to hand for odd ones.
    """
    return plain(content_type.partition(";")[0]).lower()


def mended(text: str) -> str:
    """Return the text with halves of characters (surrogates) joined, and U+FFFD in the place of those that stand alone.

    No file, store or channel can hold them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # Reading JSON joins them. A decoder of UTF-16 does both, but takes four times as long: 0.3 s for a million.
        return _SURROGATES.sub("\ufffd", json.loads(json.dumps(text)))
    return text


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning with `…`, in at most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def head_and_tail(text: str, chars: int) -> str:
    """Return the text, or its beginning and its end in so many characters with a note of what was left out."""
    if len(text) <= chars:
        return text
    left_out = f"\n[… about {len(text) - chars} characters of it are not given again …]\n"
    half = max(0, chars - len(left_out)) // 2
    return f"{text[:half]}{left_out}{text[len(text) - half :]}"


def head_and_tail_bytes(text: str, most: int) -> tuple[str, int]:
    """Return the beginning and the end of a text, `most` bytes of UTF-8 or a little more, and how many are left out."""
    data = text.encode(errors="replace")
    dropped = len(data) - most
    if dropped <= 0:
        return text, 0
    head, tail = (part.decode(errors="ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[… {dropped:,} bytes left out …]\n{tail}", dropped


def one_line(text: str, limit: int) -> str:
    """Return the text as one plain line of at most `limit` characters; more than ten times as many are not read."""
    return cut(plain(text[: 10 * limit]), limit)


_COMMAND = re.compile(r"\s*/([A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?:\s+(.*))?", re.DOTALL)


def as_code(text: str) -> str:
    """Return what people or configuration chose as Markdown code: one line that can be seen, and that forges nothing.

    Names, titles and ids stand in the gateway's own texts by this alone: `**owner** [approve](…)` is a name, too.
    """
    line = plain(text) or "?"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def split_command(text: str) -> tuple[str, str] | None:
    """Return the word of a command, in lower case, and what follows it; None for plain text."""
    match = _COMMAND.fullmatch(text)
    return None if match is None else (match[1].lower(), match[2] or "")
