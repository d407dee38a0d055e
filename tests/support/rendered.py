"""Texts of cards, read back: the inverse of `gateway.approvals.action.render`."""

from __future__ import annotations

import re

_SHOWN = re.compile(r"\\(\\|u\{([0-9A-F]+)\})|␠×(\d+);|⏎×(\d+);\n|⏎\n|.", re.DOTALL)


def unrender(shown: str) -> str:
    """Return the original of a text that `render` wrote."""
    out: list[str] = []
    for match in _SHOWN.finditer(shown):
        escape, code, spaces, breaks = match.groups()
        if escape is not None:
            out.append(chr(int(code, 16)) if code else "\\")
        elif spaces is not None:
            out.append(" " * int(spaces))
        elif breaks is not None:
            out.append("\n" * int(breaks))
        else:
            out.append("\n" if match.group() == "⏎\n" else match.group())
    return "".join(out)
