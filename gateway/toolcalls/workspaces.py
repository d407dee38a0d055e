"""Beside the path of a message: where on the disk a session's tools work, and what its calls leave is kept."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from gateway.domain.ids import SessionId
from gateway.errors import DragomanError
from gateway.system.safe_open import create_beneath

READABLE = ".dragoman/output"
"""The workspace's folder of long outputs."""
READABLE_AT_MOST = 20
"""Files in that folder."""


class Workspaces:
    """Each session's folders, inside the state folder and readable by the daemon's user alone."""

    def __init__(self, root: Path) -> None:
        """Take the state folder."""
        self.root = root

    def look(self) -> None:
        """Raise `DragomanError` when something else stands where all of them are kept. Makes nothing."""
        for path in (self.root / "workspaces", self.root / "outputs"):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise DragomanError(
                    f"{path} is not a folder: tools cannot work there.", cure="Remove what stands there."
                )

    def workspace(self, session: SessionId) -> Path:
        """Where the session's tools work; made when it is asked for. Links are followed: a card names what is used.

        Raises `DragomanError` when something else stands in its place: a tool on the host may put it there.
        """
        path = self.root / "workspaces" / _folder_name(session)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            return path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            text = f"The workspace {path} cannot be used: {error}."
            raise DragomanError(text, cure="Remove what stands there.") from error

    def outputs(self, session: SessionId) -> Path:
        """Where the session's long outputs are kept. Not made here."""
        return self.root / "outputs" / _folder_name(session)

    def readable_output(self, session: SessionId, name: str) -> int | None:
        """Create a file for a long output in the workspace's folder `READABLE`, where tools can read it.

        Return its descriptor, which the caller closes; None where it cannot be made: a tool may have put anything
        there. The last 20 of them stay.
        """
        try:
            return create_beneath(self.workspace(session), [*READABLE.split("/"), name], newest=READABLE_AT_MOST)
        except (OSError, ValueError, DragomanError):
            return None

    def kept(self, session: SessionId, name: str) -> Path | None:
        """Where a file that one of the session's calls kept is, if it still is there.

        Its name comes from a stored result. Never a link, whose end might be anything.
        """
        if Path(name).name != name:
            return None
        path = self.outputs(session) / name
        try:
            return path if stat.S_ISREG(path.lstat().st_mode) else None
        except (OSError, ValueError):
            return None


def kept_for(session: SessionId, epoch: int) -> str:
    """Name whose things a tool keeps: a session's, until its history begins anew. Letters, digits, `-` and `_`."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", session)[:24]
    return f"{readable}-{epoch}-{hashlib.sha256(f'{epoch} {session}'.encode()).hexdigest()[:16]}"


def _folder_name(session: SessionId) -> str:
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in session)[:40]
    return f"{readable}-{hashlib.sha256(session.encode()).hexdigest()[:12]}"
