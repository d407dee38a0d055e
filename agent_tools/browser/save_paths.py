"""Rules for paths to which a call saves a file in the workspace. Pure; evaluated before any decision.

Some files of a project are executed by tools: a `GNUmakefile`, a git hook. So a new file is a write like any other,
except in the browser's own folders.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from gateway.domain.tools import INBOX

DOWNLOADS = "downloads"
PDFS = "browser"
OWN_FOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"download": frozenset({DOWNLOADS}), "pdf": frozenset({DOWNLOADS, PDFS})}
)
"""Folders, by action, where saving needs no approval of its own."""
RESERVED = f"`{INBOX}` is the folder for attachments: name another path, as in `{DOWNLOADS}/july.pdf`"


def is_reserved(parts: Sequence[str]) -> bool:
    """Return whether a path in the workspace is the attachments' folder or inside it."""
    return bool(parts) and parts[0] == INBOX


def is_write(action: str, path: str | None) -> bool:
    """Return whether saving to this path needs an approval of its own.

    An absolute path does: the workspace is unknown here. Hidden names do, since programs execute files in `.git`.
    """
    if action not in OWN_FOLDERS or path is None:
        return False
    folder, *names = PurePosixPath(path).parts or ("",)
    return folder not in OWN_FOLDERS[action] or not names or any(name.startswith(".") for name in names)


def safe_name(suggested: str, otherwise: str) -> str:
    """Return a new name with the safe part of the suggested one: `july-3f2a91.pdf`."""
    stem, dot, ending = suggested.replace("\\", "/").rpartition("/")[2].rpartition(".")
    stem = re.sub(r"[^A-Za-z0-9]+", "-", stem if dot else ending)[:40].strip("-").lower() or otherwise
    ending = re.sub(r"[^A-Za-z0-9]", "", ending)[:8].lower() if dot else ""
    return f"{stem}-{secrets.token_hex(3)}" + (f".{ending}" if ending else "")
