"""How commands print what the daemon answered. What others wrote cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: object) -> str:
    """Return the value as one line: control characters, line ends and the like are escaped, not sent."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def block(text: object, indent: str) -> str:
    """Return text of several lines, each indented and made plain."""
    return "\n".join(indent + plain(line.expandtabs()) for line in str(text).split("\n"))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows under their columns' names; what a row does not have is empty."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [[plain(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def approval(row: Mapping[str, Any]) -> str:
    """Return one open approval with the whole action that it asks about."""
    head = f"{plain(row.get('title'))}, in {plain(row.get('session'))}"
    times = f"asked {plain(row.get('asked_at'))}, until {plain(row.get('expires_at'))}"
    return f"{plain(row.get('id'))}  {head}\n  {times}\n{block(row.get('rendered', ''), '    ')}"
