"""Changes of workspace files by a call: a tool's request, and its outcome. Used by ports and `toolcalls`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

NEW_FILE_MODE = 0o644
"""Permissions of a new file."""


def content_hash(data: bytes | None) -> str:
    """Return the SHA-256 of a file's content in hex; empty for a file that does not exist."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """New content of one file, or its removal."""

    path: str
    """Path in the workspace, relative to it."""
    before: str
    """SHA-256 of the content that it replaces; empty when there must be no such file."""
    data: bytes | None
    """New content; None removes the file."""
    mode: int = NEW_FILE_MODE
    """Permissions of a file that did not exist. A file that did keeps its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Changes that take back those of one turn."""

    turn: str
    changes: tuple[FileChange, ...]


class FileChangeKind(StrEnum):
    """Kind of a change that was made."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class ChangeOutcome(StrEnum):
    """State of a call's files after a crash."""

    NONE = "none"
    """No file was changed: the call can run again."""
    DONE = "done"
    """Every file has its new content."""
    PART = "part"
    """Some files have their new content, the others their old one: the call can run again, and completes them."""
    UNKNOWN = "unknown"
    """Something else changed a file since."""
