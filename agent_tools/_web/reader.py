"""Reader of foreign documents: HTML and PDF to text. A program of its own in a sandbox, which imports nothing of ours.

A job on standard input is a line of JSON (`id`, `kind`, `size`, `format`, `url`) and then the document. The answer is a
line of JSON: the `id`, and `text`, `title` and `note`, or `error`. A job beyond its CPU or memory ends the program.
"""

from __future__ import annotations

import io
import json
import re
import resource
import sys
from html.parser import HTMLParser
from typing import Any

CPU_S = 10
"""CPU seconds of one job."""
MEMORY_BYTES = 768 * 2**20
TEXT_CHARS = 1_000_000
"""Characters of text that an answer has at most."""
PAGES = 300
"""Pages of a PDF that are read."""
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
        self._open: list[tuple[str, bool]] = []
        """Open elements, and whether each hides its content."""
        self._links: list[str] = []
        self._in_title = False

    def text(self) -> str:
        """Return the text, with at most one empty line in sequence."""
        lines = [" ".join(line.split()) for line in "".join(self._out).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = {name: value or "" for name, value in attrs}
        self._in_title = self._in_title or tag == "title"
        if tag not in _VOID:
            self._open.append((tag, self._hides() or tag in _SKIPPED or _is_hidden(given)))
        if self._hides():
            return
        if tag in _BLOCKS:
            self._out.append("\n")
        if not self._marks:
            return
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._out.append(f"{'#' * int(tag[1])} ")
        elif tag == "li":
            self._out.append("- ")
        elif tag == "a":
            self._links.append(given.get("href", ""))
            self._out.append("[")
        elif tag == "img" and given.get("alt"):
            self._out.append(f"[picture: {given['alt']}]")

    def handle_endtag(self, tag: str) -> None:
        """End an element, and those left open in it."""
        self._in_title = self._in_title and tag != "title"
        hidden = self._hides()
        names = [name for name, _ in self._open[-200:]]
        if tag in names:
            del self._open[len(self._open) - names[::-1].index(tag) - 1 :]
        if hidden:
            return
        if tag in _BLOCKS:
            self._out.append("\n")
        if self._marks and tag == "a" and self._links:
            link = self._links.pop()
            self._out.append(f"]({link})" if link.startswith(("http", "/")) else "]")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._in_title and len(self.title) < 300:
            self.title += " ".join(data.split())[:300]
            return
        seen = _INVISIBLE.sub("", data)
        self.hidden += len(data) - len(seen)
        if not self._hides():
            self._out.append(seen)
        elif self._open[-1][0] not in _SKIPPED:
            self.hidden += len(seen.strip())

    def _hides(self) -> bool:
        return bool(self._open) and self._open[-1][1]


def _is_hidden(given: dict[str, str]) -> bool:
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
    visible = Visible(marks=form == "markdown")
    visible.feed(source)
    visible.close()
    whole = visible.text()
    article = _article(source, form, url)
    thin = len(article) < THIN_CHARS or len(article) < THIN_SHARE * len(whole)
    note = f"{visible.hidden} hidden characters were left out." if visible.hidden else ""
    return {"text": whole if thin else article, "title": visible.title, "note": note}


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
    except Exception:  # noqa: BLE001 - trafilatura promises no errors; the visible text is the result then
        return ""


def read_pdf(data: bytes) -> dict[str, Any]:
    """Return the text of a PDF, page by page."""
    try:
        from pypdf import PdfReader
    except ImportError:
        return {"error": "not_installed"}
    try:
        reader = PdfReader(io.BytesIO(data))
        pages = len(reader.pages)
        texts: list[str] = []
        left = TEXT_CHARS
        for number, page in enumerate(reader.pages[:PAGES], 1):
            text = page.extract_text()[:left]
            left -= len(text)
            texts.append(f"[page {number} of {pages}]\n{text}")
            if left <= 0:
                break
        title = str((reader.metadata and reader.metadata.title) or "")[:300]
    except Exception as error:  # noqa: BLE001 - pypdf promises no errors; a bad document is a result
        return {"error": f"The PDF cannot be read: {type(error).__name__}."}
    return {"text": "\n\n".join(texts), "title": title, "note": ""}


def main() -> None:
    """Read jobs until the end of the input. The first argument is the folder of installed packages."""
    sys.path += sys.argv[1:2]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while line := incoming.readline():
        job = json.loads(line)
        data = incoming.read(job["size"])
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        made = read_pdf(data) if job["kind"] == "pdf" else read_html(data, job["format"], job["url"])
        made["text"] = made.get("text", "")[:TEXT_CHARS]
        made["id"] = job["id"]
        outgoing.write(json.dumps(made).encode() + b"\n")
        outgoing.flush()


if __name__ == "__main__":
    main()
