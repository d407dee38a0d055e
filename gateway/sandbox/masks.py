"""Secret files of a workspace, found for the sandbox `full` to hide them. Blocks: `run` calls it in a thread.

They are found once, at a program's start. A file that gets such a name later is not hidden from programs that run
already. Copies under other names, such as those in a repository's history, are not hidden either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.secret_paths import is_secret_name
from gateway.errors import BadRequest

ENTRIES_AT_MOST = 300_000
"""Limit of files and folders read in a workspace; about a second."""
HIDDEN_AT_MOST = 500
"""Secrets that are hidden: each is a mount, which takes 0.3 ms."""
_TOO_MUCH = "Remove what is not needed in the workspace, or use the sandbox `basic` for this tool."


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """Absolute paths in a workspace that a program must not read."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def secrets_in(workspace: Path, *, looked_at: int = ENTRIES_AT_MOST, hidden: int = HIDDEN_AT_MOST) -> Masks:
    """Return all secrets beneath a resolved workspace: by name, by link, and other names of the same file.

    A folder that cannot be read counts as one: its owner's programs could make it readable. Raises `BadRequest` for
    more than `looked_at` entries, and for more than `hidden` secrets.
    """
    search = _Search(str(workspace), looked_at)
    search.walk()
    search.add_other_names()
    if len(search.files) + len(search.folders) > hidden:
        raise BadRequest(f"The workspace has more than {hidden} secret files, too many to be hidden.", cure=_TOO_MUCH)
    return Masks(files=tuple(sorted(search.files)), folders=tuple(sorted(search.folders)))


class _Search:
    """One search of a workspace."""

    def __init__(self, root: str, most: int) -> None:
        self._root = root
        self._most = most
        self._seen = 0
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def walk(self) -> None:
        """Collect every secret by its name."""
        for entry in self._entries():
            if is_secret_name(entry.name):
                self._add(entry)

    def add_other_names(self) -> None:
        """Collect hard links of secret files, under any name."""
        linked = {found for path in self.files if (found := _linked(path)) is not None}
        if not linked:
            return
        inodes = {inode for _, inode in linked}
        self._seen = 0
        for entry in self._entries():
            if entry.inode() in inodes and _linked(entry.path) in linked:
                self.files.add(entry.path)

    def _add(self, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink():
            self._add_target(entry.path)
        elif entry.is_dir(follow_symlinks=False):
            self.folders.add(entry.path)
        else:
            self.files.add(entry.path)

    def _add_target(self, link: str) -> None:
        """Collect what a link with a secret's name leads to. Outside the workspace there is nothing to hide."""
        target = os.path.realpath(link)
        if not target.startswith(f"{self._root}/"):
            return
        if os.path.isdir(target):
            self.folders.add(target)
        elif os.path.exists(target):
            self.files.add(target)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield everything in the workspace but the contents of hidden folders, following no link."""
        todo = [self._root]
        while todo:
            folder = todo.pop()
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it was removed meanwhile
            except PermissionError:
                self.folders.add(folder)
                continue
            self._count(len(entries))
            yield from entries
            folders = [one for one in entries if one.is_dir(follow_symlinks=False)]
            todo += [one.path for one in folders if not is_secret_name(one.name)]

    def _count(self, more: int) -> None:
        self._seen += more
        if self._seen > self._most:
            raise BadRequest(
                f"The workspace has more than {self._most:,} files, too many to look for secret ones.", cure=_TOO_MUCH
            )


def _linked(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file with several names, else None."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 else None
