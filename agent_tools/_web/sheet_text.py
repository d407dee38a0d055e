"""Rows of the sheets of a workbook (XLSX), with its strings and dates. Loaded by `office_text`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

SHARED_CHARS = 8_000_000
"""Characters of the strings that the sheets of a workbook share."""
COLUMNS = 512
"""Columns of a sheet that are read."""
_DATES = frozenset({*range(14, 23), *range(45, 48)})
"""Built-in formats of dates and times."""

Attributes = Mapping[str, str]


class Workbook:
    """The sheets of an XLSX by name and relation, and whether it counts days from 1904."""

    def __init__(self) -> None:
        """Begin."""
        self.sheets: list[tuple[str, str]] = []
        self.since = datetime(1899, 12, 30, tzinfo=UTC)

    def start(self, tag: str, given: Attributes) -> None:
        """Take a sheet."""
        if tag == "sheet":
            self.sheets.append((given.get("name", ""), given.get("r:id", "")))
        elif tag == "workbookPr" and given.get("date1904") in ("1", "true"):
            self.since = datetime(1904, 1, 1, tzinfo=UTC)

    def end(self, tag: str) -> None:
        """Ignore the end of an element."""

    def text(self, data: str) -> None:
        """Ignore text."""


class Strings:
    """The strings that sheets share."""

    def __init__(self) -> None:
        """Begin."""
        self.found: list[str] = []
        self._parts: list[str] = []
        self._in_text, self._phonetic, self._chars = False, 0, 0

    def start(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        self._in_text = tag == "t" and not self._phonetic
        self._phonetic += tag == "rPh"

    def end(self, tag: str) -> None:
        """End an element."""
        self._in_text = False
        self._phonetic -= tag == "rPh"
        if tag == "si":
            self.found.append("".join(self._parts))
            self._parts = []

    def text(self, data: str) -> None:
        """Take text. Raises `MemoryError` when there is too much."""
        if self._in_text:
            self._chars += len(data)
            if self._chars > SHARED_CHARS:
                raise MemoryError
            self._parts.append(data)


class Styles:
    """The styles of cells that show dates."""

    def __init__(self) -> None:
        """Begin."""
        self.dates: set[int] = set()
        self._formats = set(_DATES)
        self._in_cells, self._count = False, 0

    def start(self, tag: str, given: Attributes) -> None:
        """Take a format or a style."""
        if tag == "numFmt":
            code = re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", given.get("formatCode", ""))
            if re.search("[dmyhs]", code, re.IGNORECASE):
                self._formats.add(_number(given.get("numFmtId")))
        elif tag == "cellXfs":
            self._in_cells = True
        elif tag == "xf" and self._in_cells:
            if given.get("numFmtId", "").isdecimal() and int(given["numFmtId"][:9]) in self._formats:
                self.dates.add(self._count)
            self._count += 1

    def end(self, tag: str) -> None:
        """End the list of styles."""
        if tag == "cellXfs":
            self._in_cells = False

    def text(self, data: str) -> None:
        """Ignore text."""


class Sheet:
    """Rows of a sheet, a line each, cells apart by tabs."""

    def __init__(self, line: Callable[[str], None], strings: list[str], dates: set[int], since: datetime) -> None:
        """Take the shared parts of the workbook's sheets."""
        self._line, self._strings, self._dates, self._since = line, strings, dates, since
        self._row: dict[int, str] = {}
        self._kind, self._style, self._column = "", 0, 0
        self._value: list[str] | None = None
        self._is_cut = False

    def start(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        if tag == "row":
            self._row, self._column = {}, 0
        elif tag == "c":
            self._column = _column(given.get("r", "")) or self._column + 1
            self._kind, self._style = given.get("t", "n"), _number(given.get("s")) if given.get("s", "0") != "0" else 0
        elif tag == "v" or (tag == "t" and self._kind == "inlineStr"):
            self._value = []

    def end(self, tag: str) -> None:
        """End an element."""
        if tag in ("v", "t") and self._value is not None:
            if self._column > COLUMNS:
                self._is_cut = True
            else:
                self._row[self._column] = self._row.get(self._column, "") + self._shown("".join(self._value))
            self._value = None
        elif tag == "row" and self._row:
            cells = [self._row.get(n, "") for n in range(1, max(self._row) + 1)]
            self._line("\t".join(cells))
        elif tag == "sheetData" and self._is_cut:
            self._line(f"[Cells to the right of column {COLUMNS} were left out.]")

    def text(self, data: str) -> None:
        """Take a value."""
        if self._value is not None:
            self._value.append(data)

    def _shown(self, value: str) -> str:
        if self._kind == "s":
            at = int(value) if value.isdecimal() and len(value) < 10 else -1
            value = self._strings[at] if 0 <= at < len(self._strings) else ""
        elif self._kind == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif self._kind == "n" and self._style in self._dates:
            value = _date(value, self._since)
        return " ".join(value.split())


def _column(reference: str) -> int:
    """Return the column of `B7`: 2; 0 for none."""
    n = 0
    for char in reference[:3]:
        if not ("A" <= char <= "Z"):
            break
        n = n * 26 + ord(char) - 64
    return n


def _date(value: str, since: datetime) -> str:
    """Return a day number as its date and time; a sheet knows no zone, and none is written."""
    try:
        found = since + timedelta(seconds=round(float(value) * 86_400))
    except (ValueError, OverflowError):
        return value
    return f"{found:%H:%M:%S}" if 0 <= float(value) < 1 else f"{found:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")


def _number(text: str | None) -> int:
    return max(1, int(text)) if text and text.isascii() and text.isdecimal() and len(text) < 10 else 1
