"""Types of recordings that people sent, for the page's player. Used by `web_access`."""

from __future__ import annotations

from typing import Final

from gateway.agent.transcription import HEAD_BYTES, suffix_of
from gateway.ports import Recording

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


def recording_of(data: bytes) -> Recording | None:
    """Return a file as a recording, with its type by its first bytes; None for anything else.

    A tool may have replaced it since: another file is no recording.
    """
    media_type = TYPES.get(suffix_of(data[:HEAD_BYTES]))
    return None if media_type is None else Recording(data=data, media_type=media_type)
