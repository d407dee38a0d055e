"""Reader of recordings that people sent, for the page's player. Used by `web_access`."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

from gateway.agent.voice import HEAD_BYTES, suffix_of
from gateway.ports import Recording
from gateway.system.safe_open import open_beneath

BYTES_AT_MOST: Final = 25_000_000
"""Bytes of a recording that is played, as of one that is transcribed."""
TYPES: Final = {
    ".aac": "audio/aac",
    ".amr": "audio/amr",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".webm": "audio/webm",
}


def read_recording(workspace: Path, path: str) -> Recording | None:
    """Return a recording of the workspace with its type by its first bytes; None for anything else.

    A tool may have replaced it since: no link is followed, and another file is no recording.
    """
    try:
        with os.fdopen(open_beneath(workspace, PurePosixPath(path).parts), "rb") as file:
            data = file.read(BYTES_AT_MOST + 1)
    except (OSError, ValueError):
        return None
    media_type = TYPES.get(suffix_of(data[:HEAD_BYTES]))
    return None if media_type is None or len(data) > BYTES_AT_MOST else Recording(data=data, media_type=media_type)
