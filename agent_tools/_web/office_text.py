"""Text of office documents: DOCX, XLSX, PPTX, ODT, ODS, ODP. Loaded by `reader` in its sandbox.

It imports nothing of ours but `sheet_text` beside it. A document is a ZIP archive of XML. Parts are parsed as a stream,
without entities or document types, and unpacked only as far as the limits go. Nothing else in the archive is opened.
"""

from __future__ import annotations

import importlib
import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.parsers import expat

ENTRIES = 20_000
"""Entries of an archive that is opened at all."""
UNPACKED_BYTES = 200 * 2**20
"""Bytes of all parts that are unpacked for one document."""
COLUMNS = 512
"""Columns of a sheet that are read."""
REPEATS = 100
"""Times that a repeated cell or row is written; beyond that its number is shown."""
PIECE = 65_536
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    EOFError,
    NotImplementedError,  # of zipfile: a way to compress that it does not know
    ValueError,
    KeyError,
    OSError,
)

Attributes = Mapping[str, str]
_sheets: Any = importlib.import_module(f"{__package__}.sheet_text" if __package__ else "sheet_text")


class Refused(Exception):
    """The document cannot be read; the argument is one of the codes of `reading_room`."""


class Full(Exception):
    """As much text as an answer may have was found."""


class Out:
    """Lines of the text, up to a number of characters."""

    def __init__(self, most: int) -> None:
        """Begin."""
        self.lines: list[str] = []
        self._left = most

    def line(self, text: str) -> None:
        """Add a line. Raises `Full`."""
        self.lines.append(text[: self._left])
        self._left -= len(text) + 1
        if self._left <= 0:
            raise Full


class Archive:
    """The parts of a document."""

    def __init__(self, data: bytes, unpacked: int) -> None:
        """Open the archive. Raises `Refused`."""
        if data.count(b"PK\x01\x02") > ENTRIES:
            raise Refused("too_much")
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self.names = frozenset(self._zip.namelist())
        self._left = unpacked

    def pieces(self, name: str) -> Iterator[bytes]:
        """Unpack a part. Raises `Refused` when there is too much of it, or when it is encrypted."""
        if self._zip.getinfo(name).flag_bits & 1:
            raise Refused("encrypted")
        with self._zip.open(name) as part:
            while piece := part.read(PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise Refused("too_much")
                yield piece

    def parse(self, name: str, handler: Any) -> None:
        """Pass a part's elements to a handler, by their local names. A missing part has none."""
        if name not in self.names:
            return
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _no_doctype
        parser.StartElementHandler = lambda tag, given: handler.start(
            _local(tag), {_attribute(key): value for key, value in given.items()}
        )
        parser.EndElementHandler = lambda tag: handler.end(_local(tag))
        parser.CharacterDataHandler = handler.text
        for piece in self.pieces(name):
            parser.Parse(piece, False)
        parser.Parse(b"", True)

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the parts that a part refers to: kind and name, by id."""
        folder, file = posixpath.split(name)
        found = Relations(folder)
        self.parse(f"{folder}/_rels/{file}.rels", found)
        return found.targets


def _no_doctype(*_: object) -> None:
    raise Refused("broken")


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _attribute(name: str) -> str:
    """Return an attribute's local name, with `r:` where it names a relation: a slide has an `id` of both kinds."""
    return f"r:{_local(name)}" if name.endswith("elationships id") else _local(name)


class Handler:
    """Receiver of a part's elements, which ignores all of them."""

    def start(self, tag: str, given: Attributes) -> None:
        """Begin an element."""

    def end(self, tag: str) -> None:
        """End an element."""

    def text(self, data: str) -> None:
        """Take text."""


class Relations(Handler):
    """Relations of one part."""

    def __init__(self, folder: str) -> None:
        """Take the folder that targets are relative to."""
        self.targets: dict[str, tuple[str, str]] = {}
        self._folder = folder

    def start(self, tag: str, given: Attributes) -> None:
        """Take a relation."""
        if tag == "Relationship":
            target = posixpath.normpath(posixpath.join("/", self._folder, given.get("Target", "")))
            self.targets[given.get("Id", "")] = (given.get("Type", "").rpartition("/")[2], target.lstrip("/"))


class Prose(Handler):
    """Paragraphs and tables, as in all of these formats. A table's row is one line, its cells apart by ` | `."""

    skipped: frozenset[str] = frozenset()
    """Elements whose content is not part of the text."""
    cell, row, paragraph = "tc", "tr", "p"

    def __init__(self, out: Out) -> None:
        """Take the text's end."""
        self.out = out
        self.page = 1
        self.open_paragraphs: list[list[str]] = []
        self._rows: list[list[list[str]]] = []
        self._skipping = 0

    def start(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        if self._skipping or tag in self.skipped:
            self._skipping += 1
        elif tag == self.row:
            self._rows.append([])
        elif tag == self.cell and self._rows:
            self._rows[-1].append([])
        else:
            self.opened(tag, given)

    def end(self, tag: str) -> None:
        """End an element."""
        if self._skipping:
            self._skipping -= 1
        elif tag == self.row and self._rows:
            self.said(" | ".join(" ".join(cell) for cell in self._rows.pop()))
        else:
            self.closed(tag)

    def opened(self, tag: str, given: Attributes) -> None:
        """Begin an element that is neither row nor cell."""
        if tag == self.paragraph:
            self.open_paragraphs.append([])

    def closed(self, tag: str) -> None:
        """End such an element."""
        if tag == self.paragraph and self.open_paragraphs:
            self.said("".join(self.open_paragraphs.pop()).strip())

    def write(self, text: str) -> None:
        """Add text to the paragraph at hand."""
        if self.open_paragraphs and not self._skipping:
            self.open_paragraphs[-1].append(text)

    def said(self, text: str) -> None:
        """Take a whole paragraph."""
        if self._rows and self._rows[-1]:
            if text:
                self._rows[-1][-1].append(text.replace("\n", " "))
        else:
            self.out.line(text)

    def next_page(self) -> None:
        """Write a page's number."""
        self.page += 1
        self.out.line(f"[page {self.page}]")


class Word(Prose):
    """Body, footnotes or endnotes of a DOCX."""

    skipped = frozenset({"del", "moveFrom", "Fallback", "instrText", "delText"})

    def __init__(self, out: Out) -> None:
        """Begin on page 1."""
        super().__init__(out)
        self._in_text = self._hidden = False
        self._broke = True
        """True if a page was just begun: Word writes its own break after a person's."""

    def opened(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        super().opened(tag, given)
        if tag == "t":
            self._in_text = True
        elif tag == "vanish":
            self._hidden = given.get("val", "1") not in ("0", "false")
        elif tag == "pStyle" and (found := re.fullmatch(r"[Hh]eading ?([1-6])", given.get("val", ""))):
            self.write("#" * int(found[1]) + " ")
        elif tag == "numPr":
            self.write("- ")
        elif tag == "lastRenderedPageBreak" or (tag == "br" and given.get("type") == "page"):
            if not self._broke:
                self.next_page()
            self._broke = True
        elif tag in ("br", "cr"):
            self.write("\n")

    def closed(self, tag: str) -> None:
        """End an element."""
        super().closed(tag)
        if tag == "t":
            self._in_text = False
        elif tag == "r":
            self._hidden = False

    def text(self, data: str) -> None:
        """Take text of a run."""
        if self._in_text and not self._hidden:
            self._broke = False
            self.write(data)


class Slide(Prose):
    """A slide of a PPTX, or its notes."""

    def opened(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        super().opened(tag, given)
        if tag == "br":
            self.write("\n")

    def text(self, data: str) -> None:
        """Take text: a slide has it in its runs alone."""
        self.write(data)


class OpenDocument(Prose):
    """Content of an ODT, ODS or ODP."""

    skipped = frozenset({"annotation", "tracked-changes", "note-citation", "forms", "notes"})
    cell, row = "table-cell", "table-row"

    def __init__(self, out: Out, *, sheets: bool) -> None:
        """Begin. `sheets`: a table is a sheet."""
        super().__init__(out)
        self._sheets, self._sheet, self._slide, self._listed = sheets, 0, 0, 0
        self._repeats: list[int] = []
        self._cells: list[tuple[list[str], int]] = []
        self._is_cut = False

    def start(self, tag: str, given: Attributes) -> None:
        """Begin an element; note how often a cell or a row stands there."""
        if self._sheets and tag == "table-row":
            self._cells = []
            self._repeats.append(_number(given.get("number-rows-repeated")))
        if self._sheets and tag in ("table-cell", "covered-table-cell"):
            self._cells.append(([], _number(given.get("number-columns-repeated"))))
        elif not (self._sheets and tag == "table-row"):
            super().start(tag, given)

    def end(self, tag: str) -> None:
        """End an element; write a sheet's row."""
        if not self._sheets or tag not in ("table-row", "table-cell", "covered-table-cell"):
            super().end(tag)
        elif tag == "table-row" and self._repeats:
            times = self._repeats.pop()
            line = "\t".join(self._row()).rstrip()
            for _ in range(min(times, REPEATS) if line else 0):
                self.out.line(line)
            if line and times > REPEATS:
                self.out.line(f"[the row above stands there {times:,} times]")

    def _row(self) -> list[str]:
        """Return the cells of a row up to the last column that is read; note whether text stands beyond it."""
        row = list[str]()
        for cell, times in self._cells:
            text = " ".join(cell)
            self._is_cut = self._is_cut or (text != "" and len(row) + times > COLUMNS)
            row += [text] * min(times, COLUMNS - len(row))
        return row

    def opened(self, tag: str, given: Attributes) -> None:
        """Begin an element."""
        super().opened("p" if tag == "h" else tag, given)
        if tag == "h":
            self.write("#" * min(6, _number(given.get("outline-level"))) + " ")
        elif tag == "list-item":
            self._listed += 1
        elif tag == "p" and self._listed:
            self.write("- ")
        elif tag == "s":
            self.write(" " * min(_number(given.get("c")), 100))
        elif tag in ("tab", "line-break"):
            self.write("\t" if tag == "tab" else "\n")
        elif tag == "soft-page-break":
            self.next_page()
        elif tag == "table" and self._sheets:
            self._sheet += 1
            self.out.line(f"[sheet {self._sheet}: {given.get('name', '')[:200]}]")
        elif tag == "page":
            self._slide += 1
            self.out.line(f"[slide {self._slide}]")

    def closed(self, tag: str) -> None:
        """End an element."""
        super().closed("p" if tag == "h" else tag)
        if tag == "list-item":
            self._listed -= 1
        elif tag == "table" and self._is_cut:
            self.out.line(f"[Cells to the right of column {COLUMNS} were left out.]")
            self._is_cut = False

    def said(self, text: str) -> None:
        """Take a whole paragraph, of a sheet's cell when one is open."""
        if self._sheets and self._cells and self._repeats:
            self._cells[-1][0].append(text.replace("\n", " ").replace("\t", " "))
        else:
            super().said(text)

    def text(self, data: str) -> None:
        """Take text."""
        self.write(data)


def _number(text: str | None) -> int:
    return max(1, int(text)) if text and text.isascii() and text.isdecimal() and len(text) < 10 else 1


# --- documents ------------------------------------------------------------------------------------


def _docx(archive: Archive, out: Out) -> None:
    out.line("[page 1]")
    archive.parse("word/document.xml", Word(out))
    for name in ("footnotes", "endnotes"):
        if f"word/{name}.xml" in archive.names:
            out.line(f"[{name}]")
            archive.parse(f"word/{name}.xml", Word(out))


def _xlsx(archive: Archive, out: Out) -> None:
    book, strings, styles = _sheets.Workbook(), _sheets.Strings(), _sheets.Styles()
    archive.parse("xl/workbook.xml", book)
    archive.parse("xl/sharedStrings.xml", strings)
    archive.parse("xl/styles.xml", styles)
    related = archive.related("xl/workbook.xml")
    for number, (name, relation) in enumerate(book.sheets, 1):
        out.line(f"[sheet {number} of {len(book.sheets)}: {name[:200]}]")
        sheet = _sheets.Sheet(out.line, strings.found, styles.dates, book.since)
        archive.parse(related.get(relation, ("", ""))[1], sheet)


class _Slides(Handler):
    """The slides of a PPTX, in their order."""

    def __init__(self) -> None:
        """Begin."""
        self.ids: list[str] = []

    def start(self, tag: str, given: Attributes) -> None:
        """Take a slide."""
        if tag == "sldId":
            self.ids.append(given.get("r:id", ""))


def _pptx(archive: Archive, out: Out) -> None:
    slides = _Slides()
    archive.parse("ppt/presentation.xml", slides)
    related = archive.related("ppt/presentation.xml")
    for number, relation in enumerate(slides.ids, 1):
        name = related.get(relation, ("", ""))[1]
        out.line(f"[slide {number} of {len(slides.ids)}]")
        archive.parse(name, Slide(out))
        for kind, notes in archive.related(name).values():
            if kind == "notesSlide":
                out.line("[notes]")
                archive.parse(notes, Slide(out))


def _odf(archive: Archive, out: Out) -> None:
    if "META-INF/manifest.xml" in archive.names:
        manifest = b"".join(archive.pieces("META-INF/manifest.xml"))
        if b"encryption-data" in manifest:
            raise Refused("encrypted")
    kind = b"".join(archive.pieces("mimetype"))
    archive.parse("content.xml", OpenDocument(out, sheets=b"spreadsheet" in kind))


_READERS: Mapping[str, Callable[[Archive, Out], None]] = {
    "word/document.xml": _docx,
    "xl/workbook.xml": _xlsx,
    "ppt/presentation.xml": _pptx,
    "content.xml": _odf,
}


def read_office(data: bytes, most: int, unpacked: int = UNPACKED_BYTES) -> dict[str, Any]:
    """Return the text of a document, at most `most` characters, or a code of why there is none.

    `unpacked`: bytes of all its parts that are unpacked at most.
    """
    if data.startswith(OLE):
        return {"error": "ole"}
    out, note = Out(most), ""
    try:
        archive = Archive(data, unpacked)
        reader = next((read for part, read in _READERS.items() if part in archive.names), None)
        if reader is None:
            return {"error": "no_document"}
        reader(archive, out)
    except Full:
        note = f"Only the first {most:,} characters were read."
    except Refused as refused:
        return {"error": str(refused)}
    except (MemoryError, RecursionError):
        return {"error": "too_much"}
    except _BROKEN:
        return {"error": "broken"}
    return {"text": re.sub(r"\n{3,}", "\n\n", "\n".join(out.lines)).strip(), "title": "", "note": note}
