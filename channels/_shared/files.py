"""Files made from text, and notes for files that cannot be shown. Used by each channel's `outbound`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

RESENT = "(re-sent)"
"""Mark before content that may have been sent already."""
IN_FILE = "… the whole text is in the file below"
GONE = "(the file is gone)"
EMPTY = "(the file is empty)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Message with a file. Its content derives from immutable data, so it is never edited."""

    name: str
    data: bytes
    caption: str
    mark: str = ""
    """Prefix of the caption. Not part of the digest: the file is not re-sent when the mark is no longer needed."""

    def sent_again(self) -> FilePart:
        """Return the part with the re-sent mark."""
        return replace(self, mark=RESENT)

    @property
    def said(self) -> str:
        """Return the caption with its mark."""
        return f"{self.mark} {self.caption}".strip()

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return len(self.data)

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes."""
        head = json.dumps([self.name, self.caption, len(self.data)]).encode()
        return hashlib.sha256(head + self.data).hexdigest()[:16]


def too_large(platform: str) -> str:
    """Return the note for a file above the platform's size limit."""
    return f"(the file is too large for {platform})"


def text_file(text: str, most: int, platform: str) -> bytes:
    """Return a text as bytes, at most `most`, the platform's limit. A cut file says so at its end."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data
    cut = f"\n\n… cut here: the file would be too large for {platform}\n".encode()
    return data[: most - len(cut)].decode(errors="ignore").encode() + cut


def size_of(path: Path | None) -> int:
    """Return a file's size in bytes; -1 when it does not exist."""
    try:
        return path.stat().st_size if path is not None and path.is_file() else -1
    except OSError:
        return -1
