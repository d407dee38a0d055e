"""Flushing of files and folders to the disk (fsync). A renamed file keeps its name once its folder is flushed."""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
