"""Dimensions of an image, read from its header. Used by `outbound` to choose between photo and document."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from channels.telegram.limits import PHOTO_BYTES, PHOTO_RATIO, PHOTO_SIDES

SEGMENTS_AT_MOST = 200
"""JPEG segments skipped, at most, before the size is found."""
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def is_photo(path: Path, size: int) -> bool:
    """Return True if Telegram shows a file as a photo: a PNG, JPEG or WebP that is not too large, long or wide.

    Return False for an unreadable file.
    """
    if size > PHOTO_BYTES:
        return False
    try:
        with path.open("rb") as content:
            width, height = _sides(content)
    except (OSError, struct.error):
        return False
    short, long = sorted((width, height))
    return short > 0 and short + long <= PHOTO_SIDES and long <= PHOTO_RATIO * short


def _sides(content: BinaryIO) -> tuple[int, int]:
    """Return width and height in pixels; (0, 0) if it is no image. Raises `struct.error` for a truncated one."""
    head = content.read(32)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return struct.unpack_from(">II", head, 16)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(content)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    return 0, 0


def _jpeg(content: BinaryIO) -> tuple[int, int]:
    content.seek(2)
    for _ in range(SEGMENTS_AT_MOST):
        mark, kind, length = struct.unpack(">BBH", content.read(4))
        if mark != 0xFF or length < 2:
            return 0, 0
        if kind in _JPEG_SIZES:
            _, height, width = struct.unpack(">BHH", content.read(5))
            return width, height
        content.seek(length - 2, 1)
    return 0, 0


def _webp(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        low, high, low2, high2 = struct.unpack_from("<HBHB", head, 24)
        return (low | high << 16) + 1, (low2 | high2 << 16) + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0
