"""Below whatever reads files that tools may have put there: opening beneath a folder, whatever stands in the way."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in the way must not hold it up


def open_beneath(root: Path, parts: Sequence[str]) -> int:
    """Open the regular file at these names beneath a folder, for reading; the caller closes it.

    No link beneath the folder is followed, whoever puts one there while this runs, and no name leads out of it. Raises
    `OSError` when there is no such file, `ValueError` for names that no file has.
    """
    if not parts or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ValueError(f"not the names of a file: {parts!r}")
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        file = os.open(parts[-1], _READ, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", parts[-1])
    return file
