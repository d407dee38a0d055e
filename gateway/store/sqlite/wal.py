"""Parser of SQLite's write-ahead log and its index. Used by `damage` before SQLite opens them.

The log is a header of 32 bytes and frames: a 24-byte frame header and a page each. The last frame of a transaction
gives the number of pages of the database. Every frame has the header's salts, and a checksum over all frames up to
itself. When the log restarts from its first frame, its salts change; older frames stay behind the newer ones.
The index (`-shm`) locates the pages; SQLite rebuilds it when it is missing. https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Bytes: TypeAlias = bytes | mmap.mmap
Sums: TypeAlias = tuple[int, int]
"""A checksum: two 32-bit numbers."""
Order: TypeAlias = Literal["little", "big"]

HEADER = 32
OF_A_FRAME = 24
"""Bytes of a frame before its page."""
USUAL_PAGE = 4096
LOG = 0x377F0682
"""Magic number of a log; plus one when its checksums are big-endian."""
INDEX_HEADER = 48
INDEX = 100
"""Bytes at the start of an index that matter: its header twice, and how much of the log is in the database."""
ALL_BITS = 0xFFFFFFFF
AT_ONCE = 64
"""Frames whose checksums are computed together: a quarter of a megabyte."""

_FRAME = struct.Struct(">II8sII")
_INDEX = struct.Struct("=12xBxxxI12x8sII")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The log's header."""

    order: Order
    """Byte order, for checksums only."""
    page: int
    """Bytes of a page."""
    salts: bytes
    sums: Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A page in the log. A sound one is `ours` and `follows`, as are all before it."""

    page: int
    """The page's number, from 1."""
    commits: bool
    """True if the frame ends a transaction."""
    ours: bool
    """True if its salts match the header: it was written since the log restarted."""
    follows: bool
    """True if its checksum matches its content and the checksum of the frame before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalIndex:
    """State of the log known to its last writer. Exact after a kill; any earlier state after a power cut."""

    frames: int
    """Number of committed frames; all of them had reached the disk by then."""
    moved: int
    """Number of these that are in the database too."""
    salts: bytes


def read_header(log: Bytes) -> Header | None:
    """Read the log's header. None: SQLite silently takes the log for empty."""
    if len(log) < HEADER:
        return None
    magic, _, page, _, salts, *sums = struct.unpack(">IIII8sII", log[:HEADER])
    order: Order = "big" if magic & 1 else "little"
    known = magic & ~1 == LOG and 512 <= page <= 65536 and page.bit_count() == 1
    if not known or checksum(log[: HEADER - 8], order) != tuple(sums):
        return None
    return Header(order=order, page=page, salts=salts, sums=(sums[0], sums[1]))


def read_index(index: bytes) -> WalIndex | None:
    """Read the index's start. None: it is missing or incomplete; SQLite rebuilds it in either case."""
    if len(index) < INDEX or index[:INDEX_HEADER] != index[INDEX_HEADER : 2 * INDEX_HEADER]:
        return None
    made, frames, salts, *sums = _INDEX.unpack_from(index)
    if not made or checksum(index[: INDEX_HEADER - 8], sys.byteorder) != tuple(sums):
        return None
    (moved,) = struct.unpack_from("=I", index, 2 * INDEX_HEADER)
    return WalIndex(frames=frames, moved=moved, salts=salts)


def read_frames(log: Bytes, header: Header) -> list[Frame]:
    """Read every complete frame, sound or not. 0.2 s of CPU for 64 MiB."""
    size, carry, before = OF_A_FRAME + header.page, _Carry(header.page), header.sums
    frames: list[Frame] = []
    whole = (len(log) - HEADER) // size
    for first in range(0, whole, AT_ONCE):
        chunk = log[HEADER + first * size : HEADER + min(first + AT_ONCE, whole) * size]
        for number, alone in enumerate(_sums_alone(chunk, header)):
            page, pages, salts, *sums = _FRAME.unpack_from(chunk, number * size)
            follows = page > 0 and carry.over(before, alone) == tuple(sums)
            before = sums[0], sums[1]
            frames.append(Frame(page=page, commits=pages > 0, ours=salts == header.salts, follows=follows))
    return frames


# --- checksums ------------------------------------------------------------------------------


def checksum(content: bytes, order: Order, before: Sums = (0, 0)) -> Sums:
    """Return SQLite's checksum of a few bytes, in whole pairs of numbers. A megabyte would take 17 ms."""
    one, two = before
    for first, second in struct.iter_unpack("<II" if order == "little" else ">II", content):
        one = one + first + two & ALL_BITS
        two = two + second + one & ALL_BITS
    return one, two


def _sums_alone(chunk: bytes, header: Header) -> Iterator[Sums]:
    """Yield the checksum of each frame of a chunk as if it were the first: over its first 8 bytes and its page.

    Number by number, Python would take 1.1 s for 64 MiB. Instead one long integer holds the sums of all frames of the
    chunk, 64 bits each. Each step adds the next pair of numbers of every frame.
    """
    pairs = array("Q", chunk)  # only copied, never read as numbers: their byte order may not be this machine's
    pairs_of_frame = (OF_A_FRAME + header.page) // 8
    count = len(pairs) // pairs_of_frame
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    one = two = 0
    for place in (0, *range(OF_A_FRAME // 8, pairs_of_frame)):
        lanes = int.from_bytes(pairs[place::pairs_of_frame].tobytes(), header.order)
        first, second = lanes & low, lanes >> 32 & low
        if header.order == "big":
            first, second = second, first
        one = one + first + two & low
        two = two + second + one & low
    # Read from the big end, the first frame's lane is the last one.
    yield from zip(_numbers(one, count, header.order), _numbers(two, count, header.order), strict=True)


def _numbers(lanes: int, count: int, order: Order) -> tuple[int, ...]:
    end = "<" if order == "little" else ">"
    return struct.unpack(f"{end}{count}Q", lanes.to_bytes(8 * count, order))


class _Carry:
    """Chaining of checksums: a frame's checksum from the one before it and its own, as a sum of products."""

    def __init__(self, page: int) -> None:
        """Take the page size in bytes. A step maps (a, b) to (a + b, a + 2b): Fibonacci numbers, two places further."""
        self._before, self._here = 1, 0
        for _ in range(2 * (page // 8 + 1)):
            self._before, self._here = self._here, self._before + self._here & ALL_BITS

    def over(self, before: Sums, alone: Sums) -> Sums:
        """Return a frame's checksum from the one before it, and its own alone."""
        one, two = before
        first = self._before * one + self._here * two + alone[0]
        second = self._here * one + (self._before + self._here) * two + alone[1]
        return first & ALL_BITS, second & ALL_BITS
