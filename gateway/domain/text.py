"""Sanitising and cutting of text chosen by others, for use in the gateway's own lines. Used everywhere; pure."""

from __future__ import annotations

import json
import re
import unicodedata

_SURROGATES = re.compile("[\ud800-\udfff]")
_HOST = r"(?:[\w.-]+|\[[\w:.]+\])(?::\d+)?"
_WITH_OPTIONS = re.compile(
    rf"(?P<scheme>[\w+.-]+://)(?:[^/?#]*@)?(?P<place>{_HOST}(?:,{_HOST})*(?:/[^?#@]*)?)\?(?P<options>[^#]*)(?:#.*)?",
    re.DOTALL,
)
_SHOWN_OPTIONS = frozenset({"prefix", "db", "ca", "cert", "key", "sentinel_tls"})
"""Options of a store's URL without a secret. A password with a misspelt name is none of them."""
# `str.isprintable` accepts all of them: letters and signs without a shape, and variation selectors, hundreds of which
# can hide a text behind one letter. U+FE0E and U+FE0F are missing on purpose: common emoji contain them.
FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Invisible characters besides white space and those that are no text at all."""


def visible(text: str) -> bool:
    """Return whether the text has any visible character; platforms refuse a message of blanks."""
    if text.isascii() and text.isprintable():
        return bool(text.strip())
    return any(
        not char.isspace() and char not in FILLERS and unicodedata.category(char) not in {"Cc", "Cf", "Mn", "Me"}
        for char in text
    )


def plain(text: str) -> str:
    """Return the text as one line without invisible characters; empty when there is nothing else.

    Guards against forged lines. Line breaks, control characters and characters that reorder or hide text become spaces.
    Removed, they would join the words around them into something nobody wrote.
    """
    if not text.isascii() or not text.isprintable():
        text = "".join(char if char.isprintable() and char not in FILLERS else " " for char in text)
    return " ".join(text.split())


def media_type(content_type: str) -> str:
    """Return the media type of a `Content-Type` header, in lower case without parameters; empty for an empty header.

    aiohttp passes the header to Python's mail parser, which raises various exceptions for odd ones.
    """
    return plain(content_type.partition(";")[0]).lower()


def mended(text: str) -> str:
    """Return the text with surrogate pairs joined and each lone surrogate replaced by U+FFFD.

    No file, store or channel accepts surrogates.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Reading JSON joins pairs. A UTF-16 decoder does both but takes four times as long: 0.3 s for a million.
        return _SURROGATES.sub("\ufffd", json.loads(json.dumps(text)))
    return text


def without_password(url: str) -> str:
    """Return a URL without its users, passwords and unknown options, for display and logs. Also for other text."""
    bare = re.sub(r"(?<=://).*@", "", url, flags=re.DOTALL)
    found = _WITH_OPTIONS.fullmatch(url) or _WITH_OPTIONS.fullmatch(bare)
    if found is None:
        return bare
    kept = "&".join(one for one in found["options"].split("&") if _is_shown(one))
    return f"{found['scheme']}{found['place']}{'?' if kept else ''}{kept}"


def unshown_options(url: str) -> list[str]:
    """Return the options of a URL that `without_password` leaves out, as they are written: `name=value`."""
    found = _WITH_OPTIONS.fullmatch(url)
    return [] if found is None else [one for one in found["options"].split("&") if not _is_shown(one)]


def _is_shown(option: str) -> bool:
    return option.partition("=")[0] in _SHOWN_OPTIONS


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning with `…`, in at most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def head_and_tail(text: str, chars: int) -> str:
    """Return the text, or its beginning and end within `chars` characters, with a note of the omission."""
    if len(text) <= chars:
        return text
    left_out = f"\n[… about {len(text) - chars} characters of it are not given again …]\n"
    half = max(0, chars - len(left_out)) // 2
    return f"{text[:half]}{left_out}{text[len(text) - half :]}"


def head_and_tail_bytes(text: str, most: int) -> tuple[str, int]:
    """Return the beginning and end of a text, about `most` bytes of UTF-8 or a little more, and the number of bytes
    left out.
    """
    data = text.encode(errors="replace")
    dropped = len(data) - most
    if dropped <= 0:
        return text, 0
    head, tail = (part.decode(errors="ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[… {dropped:,} bytes left out …]\n{tail}", dropped


def as_quote(text: str, most: int) -> str:
    """Return a text of others as a Markdown quote, cut to about `most` bytes of UTF-8 as `head_and_tail_bytes` does.

    Each line has its sign, so that no line of the text passes for one of ours beside it, such as a heading.
    """
    cut_text = head_and_tail_bytes(text, most)[0]
    found = _quoted(cut_text)
    size = len(found.encode(errors="replace"))
    return found if size <= most else _quoted(head_and_tail_bytes(text, most * most // size)[0])


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def one_line(text: str, limit: int) -> str:
    """Return the text as one plain line of at most `limit` characters. Reads at most ten times as many."""
    return cut(plain(text[: 10 * limit]), limit)


_COMMAND = re.compile(r"\s*/([A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?:\s+(.*))?", re.DOTALL)


def as_code(text: str) -> str:
    """Return text chosen by people or configuration as Markdown code: one visible line that forges nothing.

    The gateway's own texts contain names, titles and ids only in this form: `**owner** [approve](…)` is a possible
    name.
    """
    line = plain(text) or "?"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def split_command(text: str) -> tuple[str, str] | None:
    """Return a command's word, in lower case, and the text after it; None for plain text."""
    match = _COMMAND.fullmatch(text)
    return None if match is None else (match[1].lower(), match[2] or "")
