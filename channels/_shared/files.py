"""On the way out: files that are made of a text, and what is said of those that cannot be shown."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

RESENT = "(re-sent)"
"""Stands before content that may be there already."""
IN_FILE = "… the whole text is in the file below"
GONE = "(the file is gone)"
EMPTY = "(the file is empty)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A message with a file. Its content follows from what never changes, so it is never edited."""

    name: str
    data: bytes
    caption: str
    mark: str = ""
    """Before the caption. It makes no other content of it: the file is not sent anew when the mark is not needed."""

    def sent_again(self) -> FilePart:
        """Return it with the mark."""
        return replace(self, mark=RESENT)

    @property
    def said(self) -> str:
        """What stands beside the file."""
        return f"{self.mark} {self.caption}".strip()

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    @property
    def digest(self) -> str:
        """The same for the same content, in every process."""
        head = json.dumps([self.name, self.caption, len(self.data)]).encode()
        return hashlib.sha256(head + self.data).hexdigest()[:16]


def too_large(platform: str) -> str:
    """Say that a platform takes no file of this size."""
    return f"(the file is too large for {platform})"


def text_file(text: str, most: int, platform: str) -> bytes:
    """Return the bytes of a file of text: at most so many, which the platform takes. One that is cut says so."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data
    cut = f"\n\n… cut here: the file would be too large for {platform}\n".encode()
    return data[: most - len(cut)].decode(errors="ignore").encode() + cut


def size_of(path: Path | None) -> int:
    """Return how many bytes a file has; -1 when it is not there."""
    try:
        return path.stat().st_size if path is not None and path.is_file() else -1
    except OSError:
        return -1
