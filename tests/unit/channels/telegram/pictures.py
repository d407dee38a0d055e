"""Headers of image files of any size, for the tests."""

from __future__ import annotations

import struct


def png(width: int = 800, height: int = 600, *, size: int = 5_000) -> bytes:
    return (b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)).ljust(
        size, b"\0"
    )


def jpeg(width: int = 800, height: int = 600, *, before: int = 3) -> bytes:
    """Return a JPEG with so many segments of 60 kB before the one with the size."""
    part = struct.pack(">BBH", 0xFF, 0xE1, 60_002) + bytes(60_000)
    frame = struct.pack(">BBHBHHB", 0xFF, 0xC2, 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + part * before + frame + b"\xff\xda" + bytes(500)


def webp(kind: bytes, width: int = 800, height: int = 600) -> bytes:
    """`VP8 `, `VP8L` or `VP8X`."""
    head = b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4)
    if kind == b"VP8X":
        sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        return head + bytes(4) + sides + bytes(100)
    if kind == b"VP8L":
        return head + b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + bytes(100)
    return head + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height) + bytes(100)
