"""Lines of a TOML file's repeated tables, which the parser does not return: `[[rules]]`. For messages to people."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BARE_OR_QUOTED = r"""(?:[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*')"""
_HEADER = re.compile(rf"\[(\[?)[ \t]*({_BARE_OR_QUOTED}(?:[ \t]*\.[ \t]*{_BARE_OR_QUOTED})*)[ \t]*\]\]?")
_KEY = re.compile(rf"({_BARE_OR_QUOTED})[ \t]*=")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # a text of several lines may end with quotes of its own
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*+"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\s\"'\#\[\]{}]+",
    re.DOTALL,
)


def table_lines(text: str, name: str) -> tuple[int, ...]:
    """Return the line of each table of the array `name`, in order: of its `[[name]]`, or of its brace in `name = [`.

    `text` is valid TOML with an array at the top level. Lines count from 1.
    """
    return tuple(text.count("\n", 0, place) + 1 for place in _places(text, name))


def _places(text: str, name: str) -> Iterator[int]:
    depth, begins_line, at_root, in_array = 0, True, True, False
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at, first = token.end(), token[0][0]
        if first == "\n":
            begins_line = True
            continue
        if depth == 0 and begins_line:
            header = _HEADER.match(text, token.start())
            if header is not None:
                at_root, at = False, header.end()
                if header[1] and _bare(header[2]) == name:
                    yield token.start()
                begins_line = False
                continue
            key = _KEY.match(text, token.start())
            in_array = at_root and key is not None and _bare(key[1]) == name
        begins_line = False
        if first == "{" and depth == 1 and in_array:
            yield token.start()
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(first, 0)


def _bare(key: str) -> str:
    return key[1:-1] if key[0] in "\"'" else key
