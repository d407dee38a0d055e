"""What Telegram allows, on the way out and in. Figures of the Bot API, unless a line says that they are ours."""

from __future__ import annotations

TEXT_UNITS = 4096
"""UTF-16 units of a message, after its entities are taken out."""
ENTITIES = 100
"""Entities of a message; what comes after them loses its formatting."""
CAPTION_UNITS = 1024
PHOTO_BYTES = 10 * 1024 * 1024
PHOTO_SIDES = 10_000
"""Width and height of a photo together, in pixels."""
PHOTO_RATIO = 20
"""How many times as long as its short side the long one may be."""
DOWNLOAD_BYTES = 20 * 1024 * 1024
"""What Telegram's own Bot API gives out of a file."""
NAME_CHARS = 255
"""Ours: characters of a file's name."""
CALLBACK_BYTES = 64
"""UTF-8 bytes that a button carries."""
UPLOAD_BYTES = 45_000_000
"""Ours: Telegram takes 50 MB, the form around the file included."""

TEXT_PARTS = 3
"""Ours: messages that one text may fill; a longer one goes as a file."""
