"""Text of a file: encoding, line breaks, binary files, and numbered lines for a model. Used by the file tools. Pure."""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.tools import PICTURES
from gateway.errors import BadRequest

FILE_BYTES = 10_000_000
"""Largest file that is read or edited as text."""
LINE_CHARS = 2000
"""Characters of a line that are shown."""
CONTEXT = 3
"""Equal lines around a change in a diff."""
SNIFFED_BYTES = 4096
BINARY_SHARE = 0.3
"""Share of control characters from which the beginning of a file is no text."""
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_RANGE = re.compile(r"([-+])(\d+)")
"""Sign and first line number of a range in the head of a hunk."""
_BOM = "\ufeff"
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text of a file with `\\n` as its only line break, and what is needed to write it back the same."""

    text: str
    bom: bool = False
    newline: str = "\n"

    def encode(self, text: str) -> bytes:
        """Return another text in the form of this file. Raises `BadRequest` for text that UTF-8 cannot hold."""
        shaped = text.replace("\r\n", "\n").replace("\n", self.newline)
        try:
            return f"{_BOM if self.bom else ''}{shaped}".encode()
        except UnicodeEncodeError:
            raise BadRequest("The text has half a character (a lone surrogate).", cure="Write it again.") from None


def media_type(data: bytes) -> str:
    """Return the media type of a picture or PDF by its first bytes; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), "")


def document_kind(data: bytes) -> str:
    """Return `pdf` or `office` for a file that begins like such a document; empty for anything else."""
    if data.startswith(b"%PDF-") or (b"%PDF-" in data[:1024] and is_binary(data)):
        return "pdf"
    return "office" if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")) else ""


def is_picture(data: bytes) -> bool:
    """Return whether these bytes begin like a picture that models and people can be shown."""
    return media_type(data) in PICTURES


def is_binary(data: bytes) -> bool:
    """Return whether the beginning of a file is no text: a NUL, or many control characters."""
    head = data[:SNIFFED_BYTES]
    if b"\0" in head:
        return True
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    return controls > BINARY_SHARE * len(head)


def decode(data: bytes, path: str) -> Text:
    """Return the text of a file. Raises `BadRequest` for a binary one, and for text that is not UTF-8."""
    if is_binary(data):
        kind = media_type(data) or "binary"
        cure = "Use the shell for files that are not text."
        raise BadRequest(f"`{path}` is not text: {kind}, {len(data):,} bytes.", cure=cure)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        cure = "Convert it first, for instance with iconv in the shell."
        raise BadRequest(f"`{path}` is not UTF-8: byte {error.start + 1} is not valid.", cure=cure) from None
    bom = data.startswith(codecs.BOM_UTF8)
    breaks = text.count("\n")
    newline = "\r\n" if breaks and text.count("\r\n") * 2 > breaks else "\n"
    return Text(text=text.removeprefix(_BOM).replace("\r\n", "\n"), bom=bom, newline=newline)


def path_line(path: str) -> str:
    """Return a path as one line without invisible characters: a name may contain line breaks."""
    return path if path.isprintable() else "".join(one if one.isprintable() else f"\\u{{{ord(one):X}}}" for one in path)


def diff(path: str, before: str, after: str, *, new_path: str = "") -> str:
    """Return a unified diff of a file's text, with three lines of context.

    Equal lines at both ends are left out first: comparing 10,000 lines takes 8 ms.
    """
    name = path_line(new_path or path)
    old = f"a/{path_line(path)}" if before else "/dev/null"
    new = f"b/{name}" if after or before == after else "/dev/null"
    one, other = before.splitlines(), after.splitlines()
    head = _same(one, other)
    tail = _same(one[head:][::-1], other[head:][::-1])
    skipped, left = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    one, other = one[skipped : len(one) - left], other[skipped : len(other) - left]
    lines = list(difflib.unified_diff(one, other, old, new, n=CONTEXT, lineterm=""))
    return "\n".join(_moved(line, skipped) if skipped else line for line in lines)


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are equal at the beginning. Halves what is left: whole slices are compared fast."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _moved(line: str, by: int) -> str:
    """Return a line of a diff; the line numbers in the head of a hunk are raised."""
    if not line.startswith("@@ "):  # lines of the text begin with a space, + or -
        return line
    return _RANGE.sub(lambda found: f"{found[1]}{int(found[2]) + by}", line, count=2)


def numbered(text: str, offset: int, limit: int) -> tuple[str, int, int]:
    """Return lines `offset` (from 1) and following as `N: text`, how many they are, and how many there are in all."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    chosen = lines[offset - 1 : offset - 1 + limit]
    shown = [
        f"{offset + n}: {line[:LINE_CHARS]}{'…' if len(line) > LINE_CHARS else ''}" for n, line in enumerate(chosen)
    ]
    return "\n".join(shown), len(chosen), len(lines)
