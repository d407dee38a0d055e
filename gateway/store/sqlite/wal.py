"""SQLite's write-ahead log and its index, as bytes: what `damage` looks at before SQLite opens them. No message's path.

The log is a header of 32 bytes and frames: 24 bytes of their own and a page each. A transaction is frames, the last of
which says how many pages the database has then. Every frame bears the header's salts, and a checksum over all frames up
to itself. When the log begins anew from its first frame, its salts change; older frames stay behind the newer ones.
The index (`-shm`) says where the pages are; SQLite makes it anew when it is gone. https://sqlite.org/fileformat2.html
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
"""A checksum: two numbers of 32 bits."""
Order: TypeAlias = Literal["little", "big"]

HEADER = 32
OF_A_FRAME = 24
"""Bytes before its page."""
USUAL_PAGE = 4096
LOG = 0x377F0682
"""What a log begins with; one more when its checksums read numbers from their big end."""
INDEX_HEADER = 48
INDEX = 100
"""Bytes at the beginning of an index that tell: its header twice, and how much of the log is in the database."""
ALL_BITS = 0xFFFFFFFF
AT_ONCE = 64
"""Frames whose checksums are taken side by side: a quarter of a megabyte."""

_FRAME = struct.Struct(">II8sII")
_INDEX = struct.Struct("=12xBxxxI12x8sII")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the log says of itself."""

    order: Order
    """Which end of a number comes first, for checksums only."""
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
    """Whether it says that it ends a transaction."""
    ours: bool
    """Whether it bears the header's salts: it was written since the log began anew."""
    follows: bool
    """Whether its checksum fits its content and the checksum that stands in the frame before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What the last process to write knew. A kill leaves it exact; a power cut may leave any earlier state of it."""

    frames: int
    """How many were committed; all of them had reached the disk by then."""
    moved: int
    """How many of these are in the database too."""
    salts: bytes


def read_header(log: Bytes) -> Header | None:
    """Read the log's header. None: SQLite takes the log for empty, without a word."""
    if len(log) < HEADER:
        return None
    magic, _, page, _, salts, *sums = struct.unpack(">IIII8sII", log[:HEADER])
    order: Order = "big" if magic & 1 else "little"
    known = magic & ~1 == LOG and 512 <= page <= 65536 and page.bit_count() == 1
    if not known or checksum(log[: HEADER - 8], order) != tuple(sums):
        return None
    return Header(order=order, page=page, salts=salts, sums=(sums[0], sums[1]))


def read_index(index: bytes) -> Index | None:
    """Read the index's beginning. None: it is not there, or not whole; SQLite makes it anew in either case."""
    if len(index) < INDEX or index[:INDEX_HEADER] != index[INDEX_HEADER : 2 * INDEX_HEADER]:
        return None
    made, frames, salts, *sums = _INDEX.unpack_from(index)
    if not made or checksum(index[: INDEX_HEADER - 8], sys.byteorder) != tuple(sums):
        return None
    (moved,) = struct.unpack_from("=I", index, 2 * INDEX_HEADER)
    return Index(frames=frames, moved=moved, salts=salts)


def read_frames(log: Bytes, header: Header) -> list[Frame]:
    """Read every frame that is there as a whole, sound or not. 0.2 s of CPU for 64 MiB."""
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
    """Return SQLite's checksum of a few bytes, whole pairs of numbers. A megabyte would take 17 ms."""
    one, two = before
    for first, second in struct.iter_unpack("<II" if order == "little" else ">II", content):
        one = one + first + two & ALL_BITS
        two = two + second + one & ALL_BITS
    return one, two


def _sums_alone(chunk: bytes, header: Header) -> Iterator[Sums]:
    """Yield the checksum of each frame of a chunk as if it were the first of all: its first 8 bytes, and its page.

    Number by number Python would take 1.1 s for 64 MiB. Instead one long integer holds the sums of all frames of the
    chunk, 64 bits for each, and each step adds the next pair of numbers of every frame.
    """
    pairs = array("Q", chunk)  # only moved, never read as numbers: their order is not this machine's
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
    """What a frame's checksum becomes by the frames before it: a sum of products, as one step is of the sums before."""

    def __init__(self, page: int) -> None:
        """Take a page's bytes. A step makes (a, b) of (a + b, a + 2b): Fibonacci's numbers, two places further."""
        self._before, self._here = 1, 0
        for _ in range(2 * (page // 8 + 1)):
            self._before, self._here = self._here, self._before + self._here & ALL_BITS

    def over(self, before: Sums, alone: Sums) -> Sums:
        """Return a frame's checksum from the one before it, and its own alone."""
        one, two = before
        first = self._before * one + self._here * two + alone[0]
        second = self._here * one + (self._before + self._here) * two + alone[1]
        return first & ALL_BITS, second & ALL_BITS
