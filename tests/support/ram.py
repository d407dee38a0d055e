"""A folder in memory, for stores whose durability is not what a test is about. No part of the path of a message."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.proof import times

RAM = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""Free bytes that it must have; a container may have 64 MB."""


def ram() -> Path | None:
    """Return a folder in memory that has room; None for the disk: with `--large`, or where there is none."""
    if times(False, True) or not os.access(RAM, os.W_OK | os.X_OK):
        return None
    return RAM if shutil.disk_usage(RAM).free >= ROOM_BYTES else None
