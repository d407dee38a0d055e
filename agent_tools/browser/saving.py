"""Names under which a call may save a file in the workspace. Pure; read before anything decides.

A project's own files run by themselves: a `GNUmakefile`, a hook of git. So a new file is a write like any other, except
in the folders that the browser keeps for what it saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from gateway.domain.tools import INBOX

DOWNLOADS = "downloads"
PDFS = "browser"
OWN_FOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"download": frozenset({DOWNLOADS}), "pdf": frozenset({DOWNLOADS, PDFS})}
)
"""The folders where each action that saves a file does so unasked."""
RESERVED = f"`{INBOX}` is the folder for attachments: name another path, as in `{DOWNLOADS}/july.pdf`"


def is_reserved(parts: Sequence[str]) -> bool:
    """Return whether a path beneath the workspace stands in the attachments' folder, or in its place."""
    return bool(parts) and parts[0] == INBOX


def is_write(action: str, path: str | None) -> bool:
    """Return whether saving to this path needs an approval of its own.

    An absolute path does: the workspace is not known here. Hidden names do, since programs run what is in `.git`.
    """
    if action not in OWN_FOLDERS or path is None:
        return False
    folder, *names = PurePosixPath(path).parts or ("",)
    return folder not in OWN_FOLDERS[action] or not names or any(name.startswith(".") for name in names)
