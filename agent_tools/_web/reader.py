"""Reader of foreign documents: HTML, PDF and office files to text. A program of its own in a sandbox.

It imports nothing of ours but `office_text` beside it.

A job on standard input is a line of JSON (`id`, `kind`, `size`, `format`, `url`) and then the document. The answer is a
line of JSON: the `id`, and `text`, `title` and `note`, or `error`. A job beyond its CPU or memory ends the program.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import re
import resource
import sys
import time
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

CPU_S = 10
"""CPU seconds of one job."""
MEMORY_BYTES = 768 * 2**20
"""Memory limit of the process that reads a document."""
TEXT_CHARS = 1_000_000
"""Characters of text that an answer has at most."""
PAGES = 2_000
"""Pages of a PDF that are read at most."""
PDF_CPU_S = 7.0
"""CPU seconds after which no further page of a PDF is begun."""
ARTICLE_CHARS = 300_000
"""Characters of a page up to which trafilatura searches for its article: of a megabyte it takes half a second."""
THIN_SHARE, THIN_CHARS = 0.25, 200
"""An article that is thinner than this, of the visible text or in itself, is not the page's content."""

_SKIPPED = frozenset({"script", "style", "noscript", "template", "iframe", "svg", "object", "canvas", "head"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form", "h1", "h2",
    "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "tr", "ul",
})  # fmt: skip
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
})  # fmt: skip
_MAIN = frozenset({"article", "main"})
_BESIDE = frozenset({"nav", "aside", "footer", "form"})
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d]*[1-9])|opacity\s*:\s*0(?:\.0+)?\s*(?:;|$)",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"(?<![-\w])color\s*:\s*([^;]+)", re.IGNORECASE)
_BACKGROUND = re.compile(r"background(?:-color)?\s*:\s*([^;]+)", re.IGNORECASE)
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u00ad\U000e0000-\U000e01ef]")


class Visible(HTMLParser):
    """Visible text of a page, with headings, list items and links in Markdown. Counts what it hides."""

    def __init__(self, *, marks: bool) -> None:
        """Begin. `marks`: write Markdown."""
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.hidden = 0
        self._marks = marks
        self._out: list[str] = []
        self._article: list[str] = []
        """Parts of `_out` within an article or the main part, without what stands beside it."""
        self._open: list[tuple[str, bool, str]] = []
        """Open elements, whether each hides its content, and its place: `in` the article, `beside` it, or elsewhere."""
        self._links: list[str] = []
        self._in_title = False

    def text(self) -> str:
        """Return the text, with at most one empty line in sequence."""
        return _tidy(self._out)

    def chars(self) -> int:
        """Return the characters of all visible text, white space included."""
        return sum(map(len, self._out))

    def article(self) -> str:
        """Return the text of the page's own `article` and `main`; empty when it has neither."""
        return _tidy(self._article)

    def _say(self, text: str) -> None:
        self._out.append(text)
        if self._open and self._open[-1][2] == "in":
            self._article.append(text)

    def _place(self, tag: str) -> str:
        """Return the place of an element that begins now."""
        place = self._open[-1][2] if self._open else ""
        if not place:
            return "in" if tag in _MAIN else ""
        return "beside" if tag in _BESIDE else place

    def updatepos(self, i: int, j: int) -> int:
        """Count no lines: nobody asks for them, and it takes a tenth of the time."""
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element, called by the parser of the standard library."""
        self.begin(tag, {name: value or "" for name, value in attrs})

    def begin(self, tag: str, given: Mapping[str, str]) -> None:
        """Begin an element with its attributes."""
        self._in_title = self._in_title or tag == "title"
        if tag not in _VOID:
            hides = self._hides() or tag in _SKIPPED or (bool(given) and _is_hidden(given))
            self._open.append((tag, hides, self._place(tag)))
        if self._hides():
            return
        if tag in _BLOCKS:
            self._say("\n")
        if not self._marks:
            return
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._say(f"{'#' * int(tag[1])} ")
        elif tag == "li":
            self._say("- ")
        elif tag == "a":
            self._links.append(given.get("href", ""))
            self._say("[")
        elif tag == "img" and given.get("alt"):
            self._say(f"[picture: {given['alt']}]")

    def handle_endtag(self, tag: str) -> None:
        """End an element, and those left open in it."""
        self._in_title = self._in_title and tag != "title"
        hidden = self._hides()
        names = [name for name, _, _ in self._open[-200:]]
        if tag in names:
            del self._open[len(self._open) - names[::-1].index(tag) - 1 :]
        if hidden:
            return
        if tag in _BLOCKS:
            self._say("\n")
        if self._marks and tag == "a" and self._links:
            link = self._links.pop()
            self._say(f"]({link})" if link.startswith(("http", "/")) else "]")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._in_title and len(self.title) < 300:
            self.title += " ".join(data.split())[:300]
            return
        seen = data if data.isascii() else _INVISIBLE.sub("", data)
        self.hidden += len(data) - len(seen)
        if not self._hides():
            self._say(seen)
        elif self._open[-1][0] not in _SKIPPED:
            self.hidden += len(seen.strip())

    def _hides(self) -> bool:
        return bool(self._open) and self._open[-1][1]


class _Target:
    """Receiver of lxml's events, which takes half the time of the parser of the standard library."""

    def __init__(self, visible: Visible) -> None:
        self.start, self.data, self._end = visible.begin, visible.handle_data, visible.handle_endtag

    def end(self, tag: str) -> None:
        """End an element. One without content, such as `br`, has no end of its own in a page."""
        if tag not in _VOID:
            self._end(tag)

    def close(self) -> None:
        """End the page."""


def visible_of(source: str, *, marks: bool) -> Visible:
    """Return the visible text of a page, read by lxml where it is installed. It is part of the extra `web`."""
    try:
        etree = importlib.import_module("lxml.etree")
    except ImportError:
        return _slowly(source, marks=marks)
    visible = Visible(marks=marks)
    parser = etree.HTMLParser(target=_Target(visible), huge_tree=True, encoding="utf-8")
    try:
        parser.feed(source.encode())
        parser.close()
    except (etree.LxmlError, AssertionError):  # it takes no empty page
        return _slowly(source, marks=marks)
    return visible


def _slowly(source: str, *, marks: bool) -> Visible:
    visible = Visible(marks=marks)
    visible.feed(source)
    visible.close()
    return visible


def _tidy(parts: list[str]) -> str:
    lines = [" ".join(line.split()) for line in "".join(parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _is_hidden(given: Mapping[str, str]) -> bool:
    style = given.get("style", "")
    if "hidden" in given or (style and _HIDDEN_STYLE.search(style)):
        return True
    colour, background = _COLOUR.search(style), _BACKGROUND.search(style)
    if colour is None:
        return False
    ink = colour.group(1).strip().lower()
    paper = background.group(1).strip().lower() if background else "white"
    white = {"white", "#fff", "#ffffff", "rgb(255,255,255)", "rgb(255, 255, 255)", "transparent"}
    return ink == paper or (ink in white and paper in white)


def read_html(data: bytes, form: str, url: str) -> dict[str, Any]:
    """Return the text of a page: its article, or all that is visible when the article is too thin."""
    source = _decoded(data)
    visible = visible_of(source, marks=form == "markdown")
    if len(source) <= ARTICLE_CHARS:
        article, whole = _article(source, form, url), visible.text()
    else:
        article = visible.article()
        whole = visible.text() if _is_thin(article, visible.chars()) else ""
    text = whole if _is_thin(article, len(whole)) else article
    note = f"{visible.hidden} hidden characters were left out." if visible.hidden else ""
    return {"text": text, "title": visible.title, "note": note}


def _is_thin(article: str, whole_chars: int) -> bool:
    return len(article) < THIN_CHARS or len(article) < THIN_SHARE * whole_chars


def _decoded(data: bytes) -> str:
    named = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[:2048], re.IGNORECASE)
    for charset in filter(None, [named and named.group(1).decode("ascii", "ignore"), "utf-8"]):
        try:
            return data.decode(charset)
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("latin-1")


def _article(source: str, form: str, url: str) -> str:
    """Return the article of a page as trafilatura finds it; empty without trafilatura, or when it fails."""
    try:
        import trafilatura
    except ImportError:
        return ""
    try:
        return trafilatura.extract(
            source, url=url or None, output_format="markdown" if form == "markdown" else "txt",
            include_links=form == "markdown", include_tables=True, include_comments=False,
        ) or ""  # fmt: skip
    except Exception:  # noqa: BLE001 - it raises whatever its parsers meet in a page; then the visible text is shown
        return ""


def read_pdf(data: bytes) -> dict[str, Any]:
    """Return the text of a PDF, page by page."""
    try:
        from pypdf import PdfReader
    except ImportError:
        return {"error": "not_installed"}
    began = time.process_time()
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not _opens(reader):
            return {"error": "encrypted"}
        pages, read, left = len(reader.pages), 0, TEXT_CHARS
        texts: list[str] = []
        while read < min(pages, PAGES) and left > 0 and time.process_time() - began < PDF_CPU_S:
            text = reader.pages[read].extract_text()[:left]
            read, left = read + 1, left - len(text)
            texts.append(f"[page {read} of {pages}]\n{text}")
        title = str((reader.metadata and reader.metadata.title) or "")[:300]
    except (MemoryError, RecursionError):
        return {"error": "too_much"}
    except Exception:  # noqa: BLE001 - a malformed file makes pypdf raise any error; the person is told that it is broken
        return {"error": "broken"}
    if not any(text.partition("\n")[2].strip() for text in texts):
        return {"error": "no_text"}
    note = f"Only pages 1 to {read} of {pages} were read." if read < pages else ""
    return {"text": "\n\n".join(texts), "title": title, "note": note}


def _opens(reader: Any) -> bool:
    """Return whether an encrypted PDF opens without a password, as one does that only forbids printing."""
    from pypdf.errors import DependencyError

    try:
        return bool(reader.decrypt(""))
    except (DependencyError, NotImplementedError):  # a cipher that needs a library that is not there, or is unknown
        return False


def read_document(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Return the answer to one job."""
    if job["kind"] == "pdf":
        return read_pdf(data)
    if job["kind"] == "office":
        return importlib.import_module("office_text").read_office(data, TEXT_CHARS)
    return read_html(data, job["format"], job["url"])


def main() -> None:
    """Read jobs until the end of the input. The first argument is the folder of installed packages.

    The last answer is kept: readers of a long document ask for one part after the other.
    """
    sys.path += [*sys.argv[1:2], str(Path(__file__).parent)]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    last: tuple[list[str], dict[str, Any]] = ([], {})
    while line := incoming.readline():
        job = json.loads(line)
        data = incoming.read(job["size"])
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        known = [job["kind"], job["format"], job["url"], hashlib.sha256(data).hexdigest()]
        made = last[1] if last[0] == known else read_document(job, data)
        last = (known, made)
        del data
        answer = {**made, "text": made.get("text", "")[:TEXT_CHARS], "id": job["id"]}
        outgoing.write(json.dumps(answer, ensure_ascii=False).encode(errors="replace") + b"\n")
        outgoing.flush()


if __name__ == "__main__":
    main()
