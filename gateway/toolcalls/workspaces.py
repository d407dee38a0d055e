"""Folders of each session: the workspace of its tools, and the outputs of its calls. Used by `execution` and `app`."""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import shutil
import stat
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.retention import LostFiles
from gateway.domain.tools import INBOX
from gateway.errors import DragomanError
from gateway.system.safe_open import ENTRIES_AT_MOST, create_beneath, open_beneath

READABLE = ".dragoman/output"
"""Folder of long outputs in the workspace."""
HOME = ".home"
"""File beside the workspaces with the id of their place."""
HOME_CHARS = 16
ASIDE = "-before-"
"""Part of the name of a workspace of an earlier time, when this place was the home of the session before."""
_SET_ASIDE = re.compile(rf"-[0-9a-f]{{12}}{ASIDE}[0-9a-f]{{8}}$")
"""End of such a name. That of a session's own folder ends in twelve digits."""
JOURNALS = "changes"
"""Folder of the journals of changed files, in the outputs of the session that works there."""
NAMES_KEPT = 256
"""Sessions whose folders' names are kept: some 50 KB."""
READABLE_AT_MOST = 200
"""Files kept in that folder."""
READABLE_BYTES = 32 << 20
"""Bytes of the files kept there, besides the newest one."""
_OWN = READABLE.split("/")
_UNSEARCHED = (".gitignore", ".ignore")
"""Files in the folder above it that keep git and ripgrep out: a search would find the results of earlier ones."""


class Workspaces:
    """Folders of each session, in the state folder or on a disk of all nodes; readable by the daemon's user alone."""

    def __init__(self, state: Path, shared: Path | None = None) -> None:
        """Take the state folder, and the place of the folders of all nodes if there is one."""
        self.root = shared or state
        self.folder = self.root / "workspaces"
        """Folder that holds the workspaces."""
        self._outputs = self.root / "outputs"
        self.hidden = (state,) if shared is None else (state, shared)
        """Folders that no sandbox shows, but for the own workspace."""
        self._home = ""

    def look(self) -> None:
        """Raise `DragomanError` when the parent of these folders is no folder, or not mounted. Creates nothing."""
        if len(self.hidden) > 1 and not self.root.is_dir():
            raise DragomanError(f"{self.root} is not there.", cure="Mount the disk of all nodes there.")
        for path in (self.folder, self._outputs):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise DragomanError(
                    f"{path} is not a folder: tools cannot work there.", cure="Remove what stands there."
                )

    def home(self) -> str:
        """Return the id of the place that holds the workspaces, made once; nodes that share the place share it.

        Raises `DragomanError` when it cannot be read or made.
        """
        if not self._home:
            path = self.folder / HOME
            try:
                self._home = _home_in(path)
            except (OSError, ValueError) as error:
                raise DragomanError(f"{path} cannot be used: {error}.", cure="Remove what stands there.") from error
        return self._home

    def known_home(self) -> str:
        """Return the id of the place, as `home` does, or an empty text when it was not made yet. Creates nothing."""
        return self.home() if os.path.lexists(self.folder / HOME) else ""

    def known_workspace(self, session: SessionId) -> Path:
        """Return the path of a session's workspace, with links resolved. Creates nothing."""
        return (self.folder / _folder_name(session)).resolve()

    def workspace(self, session: SessionId) -> Path:
        """Return the session's workspace, created when missing. Links are followed: a card names the resolved path.

        Raises `DragomanError` when something else is in its place: a tool on the host may put it there.
        """
        path = self.folder / _folder_name(session)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            return path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            text = f"The workspace {path} cannot be used: {error}."
            raise DragomanError(text, cure="Remove what stands there.") from error

    def set_aside(self, session: SessionId) -> Path | None:
        """Give the session's workspace, if there is one, another name beside it, so that the next one is empty.

        Return that name. Raises `DragomanError` when it cannot be renamed.
        """
        path = self.folder / _folder_name(session)
        aside = path.with_name(f"{path.name}{ASIDE}{secrets.token_hex(4)}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DragomanError(f"{path} cannot be set aside: {error}.", cure="Move it away.") from error
        with suppress(OSError):
            os.utime(aside)  # from now on it is kept for a time
        return aside

    def remove_set_aside(self, before: datetime) -> int:
        """Remove the workspaces that were set aside before then. Return how many. What cannot be removed stays."""
        removed = 0
        with suppress(OSError):
            for entry in list(os.scandir(self.folder)):
                if _SET_ASIDE.search(entry.name) and _changed_at(entry) < before.timestamp():
                    shutil.rmtree(entry.path, ignore_errors=True)
                    removed += not os.path.lexists(entry.path)
        return removed

    def outputs(self, session: SessionId) -> Path:
        """Return the folder of the session's long outputs. Not created here."""
        return self._outputs / _folder_name(session)

    def readable_output(self, session: SessionId, name: str) -> int | None:
        """Create a file for a long output in the workspace's folder `READABLE`, where tools can read it.

        Return its descriptor, which the caller closes; None when it cannot be created: a tool may have put anything
        there. The newest ones stay, within `READABLE_AT_MOST` and `READABLE_BYTES`.
        """
        try:
            workspace = self.workspace(session)
            file = create_beneath(workspace, [*_OWN, name], newest=READABLE_AT_MOST, kept_bytes=READABLE_BYTES)
        except (OSError, ValueError, DragomanError):
            return None
        for unsearched in _UNSEARCHED:
            with suppress(OSError):
                _keep_out(workspace, [_OWN[0], unsearched])
        return file

    def remove_files(self, lost: Sequence[LostFiles]) -> set[TurnId]:
        """Remove outputs, artifacts, journals of changes and attachments of these turns. Idempotent.

        Return the turns whose session has a folder here. What cannot be removed stays.
        """
        outputs, journals, here = defaultdict[Path, set[str]](set), defaultdict[Path, set[str]](set), set[TurnId]()
        for one in lost:
            outputs[self.outputs(one.session)].add(one.turn)
            journals[self.outputs(one.works_in) / JOURNALS].add(one.turn)
            if self.outputs(one.session).is_dir() or self.known_workspace(one.works_in).is_dir():
                here.add(one.turn)
            _remove_from_inbox(self.known_workspace(one.works_in), one.inbox)
        for folder, turns in journals.items():
            _remove_of(folder, turns)
        for folder, turns in outputs.items():
            _remove_of(folder, turns)
        return here

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


def _remove_of(folder: Path, turns: Collection[str]) -> None:
    """Remove the files of a folder that these turns made, and the folder once it is empty."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            stem = entry.name.partition("-")[0].rpartition(".")[2]  # `<turn>-…`, or `<number>.<turn>-…`
            if stem in turns and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        os.rmdir(folder)


def _remove_from_inbox(workspace: Path, paths: Sequence[str]) -> None:
    """Remove files of the inbox. A link that a tool put in its place is not followed."""
    names = [name for folder, slash, name in (path.partition("/") for path in paths) if folder == INBOX and slash]
    if not names:
        return
    with suppress(OSError):
        inbox = os.open(workspace / INBOX, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in names:
                with suppress(OSError):
                    os.unlink(Path(name).name, dir_fd=inbox)
        finally:
            os.close(inbox)


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


@lru_cache(NAMES_KEPT)
def _folder_name(session: SessionId) -> str:
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in session)[:40]
    return f"{readable}-{hashlib.sha256(session.encode()).hexdigest()[:12]}"


def _changed_at(entry: os.DirEntry[str]) -> float:
    """Return when a folder was changed last, or got its name; a link is as young as can be."""
    if not entry.is_dir(follow_symlinks=False):
        return math.inf
    found = entry.stat(follow_symlinks=False)
    return max(found.st_mtime, found.st_ctime)


def _home_in(path: Path) -> str:
    """Return the id in this file, made when there is none. Complete before it has its name, so that two nodes agree."""
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f"{HOME}-{secrets.token_hex(4)}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(8))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, path)
        new.unlink()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        found = file.read(HOME_CHARS + 1)
    if not re.fullmatch(rf"[0-9a-f]{{{HOME_CHARS}}}", found):
        raise ValueError("it holds no id")
    return found
