"""Opening of files beneath a folder without following links. Used wherever the daemon reads or writes beside files of
tools.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path

ENTRIES_AT_MOST = 1_000
"""Maximum entries of a folder in which a file is created. A tool may put any number there, and listing them takes
time."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO of that name must not block the open


def open_beneath(root: Path, parts: Sequence[str]) -> int:
    """Open a regular file beneath a folder for reading, at these names. The caller closes it.

    No link beneath the folder is followed, even one made while this runs, and no name leads out of it. Raises `OSError`
    when there is no such file, `ValueError` for names that no file can have.
    """
    if not parts or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ValueError(f"not the names of a file: {parts!r}")
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            child = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = child
        file = os.open(parts[-1], _READ, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", parts[-1])
    return file


def create_beneath(root: Path, parts: Sequence[str], *, newest: int, kept_bytes: float = math.inf) -> int:
    """Create an empty file beneath a folder and open it for writing, at these names. The caller closes it.

    Missing folders are created. An older file of the name is replaced. Only the `newest` regular files stay, this one
    included, and the others only within `kept_bytes` in all. No link is followed and no existing file is written to.
    Raises `OSError`, and `ValueError` for names that no file can have.
    """
    if not parts or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ValueError(f"not the names of a file: {parts!r}")
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=folder)
            child = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = child
        with suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=folder)
        _make_room(folder, newest, kept_bytes)
        return os.open(parts[-1], _NEW, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def _make_room(folder: int, newest: int, kept_bytes: float) -> None:
    """Remove the oldest regular files until one more fits, and the rest has at most `kept_bytes`.

    Raises `OSError` for a folder with too many entries.
    """
    with os.scandir(folder) as found:
        entries = list(islice(found, ENTRIES_AT_MOST + 1))
    if len(entries) > ENTRIES_AT_MOST:
        raise OSError(errno.ENOSPC, "too many files")
    found = [(one.stat(follow_symlinks=False), one.name) for one in entries if one.is_file(follow_symlinks=False)]
    found.sort(key=lambda one: (one[0].st_mtime_ns, one[1]), reverse=True)
    sizes = accumulate(about.st_size for about, _ in found)
    for place, ((_, name), size) in enumerate(zip(found, sizes, strict=True), 1):
        if place >= newest or size > kept_bytes:
            os.unlink(name, dir_fd=folder)
