"""Folders of each session: the workspace of its tools, and the outputs of its calls. Used by `execution` and `app`."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gateway.domain.ids import SessionId
from gateway.errors import DragomanError
from gateway.system.safe_open import ENTRIES_AT_MOST, create_beneath, open_beneath

READABLE = ".dragoman/output"
"""Folder of long outputs in the workspace."""
READABLE_AT_MOST = 5
"""Files kept in that folder."""
_OWN = READABLE.split("/")
_UNSEARCHED = (".gitignore", ".ignore")
"""Files in the folder above it that keep git and ripgrep out: a search would find the results of earlier ones."""


class Workspaces:
    """Folders of each session, in the state folder and readable by the daemon's user alone."""

    def __init__(self, root: Path) -> None:
        """Take the state folder."""
        self.root = root

    def look(self) -> None:
        """Raise `DragomanError` when the parent of these folders exists and is no folder. Creates nothing."""
        for path in (self.root / "workspaces", self.root / "outputs"):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise DragomanError(
                    f"{path} is not a folder: tools cannot work there.", cure="Remove what stands there."
                )

    def workspace(self, session: SessionId) -> Path:
        """Return the session's workspace, created when missing. Links are followed: a card names the resolved path.

        Raises `DragomanError` when something else is in its place: a tool on the host may put it there.
        """
        path = self.root / "workspaces" / _folder_name(session)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            return path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            text = f"The workspace {path} cannot be used: {error}."
            raise DragomanError(text, cure="Remove what stands there.") from error

    def outputs(self, session: SessionId) -> Path:
        """Return the folder of the session's long outputs. Not created here."""
        return self.root / "outputs" / _folder_name(session)

    def readable_output(self, session: SessionId, name: str) -> int | None:
        """Create a file for a long output in the workspace's folder `READABLE`, where tools can read it.

        Return its descriptor, which the caller closes; None when it cannot be created: a tool may have put anything
        there. The newest 5 stay.
        """
        try:
            workspace = self.workspace(session)
            file = create_beneath(workspace, [*_OWN, name], newest=READABLE_AT_MOST)
        except (OSError, ValueError, DragomanError):
            return None
        for unsearched in _UNSEARCHED:
            with suppress(OSError):
                _keep_out(workspace, [_OWN[0], unsearched])
        return file

    def kept(self, session: SessionId, name: str) -> Path | None:
        """Return the path of an artifact of the session, or None when it is gone.

        The name comes from a stored result. Never a link, whose target might be anything.
        """
        if Path(name).name != name:
            return None
        path = self.outputs(session) / name
        try:
            return path if stat.S_ISREG(path.lstat().st_mode) else None
        except (OSError, ValueError):
            return None


def _keep_out(workspace: Path, parts: Sequence[str]) -> None:
    """Create a file that hides all of its folder from searches, unless something has its name. Raises `OSError`."""
    try:
        os.close(open_beneath(workspace, parts))
    except FileNotFoundError:
        file = create_beneath(workspace, parts, newest=ENTRIES_AT_MOST)
        try:
            os.write(file, b"*\n")
        finally:
            os.close(file)


def kept_for(session: SessionId, epoch: int) -> str:
    """Return the key for a tool's state: one per session and epoch. Only letters, digits, `-` and `_`."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", session)[:24]
    return f"{readable}-{epoch}-{hashlib.sha256(f'{epoch} {session}'.encode()).hexdigest()[:16]}"


def _folder_name(session: SessionId) -> str:
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in session)[:40]
    return f"{readable}-{hashlib.sha256(session.encode()).hexdigest()[:12]}"
