"""Words of a shell script: a second, simple reader that `parsing` compares with the parser, and the removal of quotes.

A script that the two read differently counts as unknown and is never allowed automatically.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""
    (?:[ \t]|\\\n)+
    | (?P<comment>\#[^\n]*)
    | (?P<fd>[0-9]+(?=[<>]))
    | (?P<heredoc><<(?!<)-?)
    | (?P<op>&>>|<<<|;;&|&>|>\||>>|>&|<&|<>|&&|\|\||\|&|;;|;&|[;&|<>()\n])
    | (?P<word>(?:
        [^\x00-\x20\\'"$`;&|<>()\x7f]
        | \\(?:[^\n]|\n(?=\S))
        | '[^']*'
        | "(?:[^"\\$`]|\\.|\$(?=["\s.,:;/|)%]))*"
        | \$(?=[\s|)]|\Z)
    )+)
    """,
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(
    r"""
    (?P<plain>[^\\'"$`*?\[{},.~=:]+)
    | \\(?P<escaped>.)
    | '(?P<single>[^']*)'
    | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)"
    | (?P<expands>`|\$(?=[A-Za-z0-9_{(\[])|\$[@*#?$!-])
    | (?P<glob>[*?\[])
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[A-Za-z0-9_@%+/.,=:^-]+")
_IN_DOUBLE = re.compile(r"\\([$`\"\\\n])")
_EXPANDS_IN_DOUBLE = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[A-Za-z0-9_{(\[@*#?$!-])")
_HOME = re.compile(r"(?:^|[=:])~")
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_SIGNS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Unquoted:
    """One word without its quotes."""

    text: str
    expands: bool = False
    """True when the shell replaces a part of it by a value, several words or a home folder."""
    globs: bool = False
    """True when it may stand for names of files."""


def word_spans(script: bytes) -> list[tuple[int, int]] | None:
    """Return start and end of each word in bytes; None when the script has more than words, quotes and operators.

    Words in front of `<` and `>` that are numbers of open files are left out.
    """
    spans: list[tuple[int, int]] = []
    at, end = 0, len(script)
    match = _TOKEN.match
    while at < end:
        token = match(script, at)
        if token is None or token.lastgroup == "heredoc":
            return None
        if token.lastgroup == "word":
            spans.append(token.span())
        at = token.end()
    return spans


def unquoted(word: str) -> Unquoted:
    """Return a word as a program is given it. An expansion stays as written, and is marked."""
    if _PLAIN.fullmatch(word):
        return Unquoted(word)
    texts: list[str] = []
    bare: list[str] = []
    expands = False
    for piece in _PIECE.finditer(word):
        found = piece.group()
        kind = piece.lastgroup
        text = found
        if kind == "escaped":
            text = "" if found == "\\\n" else found[1:]
        elif kind == "single":
            text = found[1:-1]
        elif kind == "ansi":
            text = _ANSI.sub(_ansi, found[2:-1])
        elif kind == "double":
            inner = found[found.index('"') + 1 : -1]
            expands = expands or _EXPANDS_IN_DOUBLE.search(inner) is not None
            text = _IN_DOUBLE.sub(_escaped_in_double, inner)
        elif kind == "expands":
            expands = True
        texts.append(text)
        bare.append(found if kind in ("plain", "sign", "glob") else "\0" if kind != "escaped" or text else "")
    outside = "".join(bare)
    expands = expands or _has_braces(outside) or _HOME.search(outside) is not None
    return Unquoted("".join(texts), expands, _has_wildcards(outside))


def _has_braces(outside: str) -> bool:
    """Return whether braces outside of quotes may stand for several words: `{a,b}`, `{1..3}`."""
    inside = outside.partition("{")[2].rpartition("}")[0]
    return "," in inside or ".." in inside


def _has_wildcards(outside: str) -> bool:
    return "*" in outside or "?" in outside or ("[" in outside and "]" in outside[outside.index("[") + 2 :])


def _escaped_in_double(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _ansi(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ANSI_SIGNS.get(code, code)
