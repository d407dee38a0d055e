"""Limits of Telegram. Figures of the Bot API, unless a line says that they are ours."""

from __future__ import annotations

TEXT_UNITS = 4096
"""UTF-16 units of a message, after its entities are taken out."""
ENTITIES = 100
"""Entities of a message; what comes after them loses its formatting."""
CAPTION_UNITS = 1024
"""UTF-16 units of a caption."""
PHOTO_BYTES = 10 * 1024 * 1024
"""Bytes of a photo."""
PHOTO_SIDES = 10_000
"""Width and height of a photo together, in pixels."""
PHOTO_RATIO = 20
"""Ratio of a photo's long side to its short side, at most."""
DOWNLOAD_BYTES = 20 * 1024 * 1024
"""Bytes of a file that Telegram's own Bot API lets bots download."""
NAME_CHARS = 255
"""Characters of a file's name; ours."""
CALLBACK_BYTES = 64
"""UTF-8 bytes of a button's payload."""
UPLOAD_BYTES = 45_000_000
"""Bytes of an upload; ours. Telegram accepts 50 MB, including the form around the file."""

TEXT_PARTS = 3
"""Messages that one text may fill; ours. A longer text goes as a file."""
