"""Moving bytes through a gate: bodies and tunnels, never more in memory than a slow reader's buffer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.egress.dial import BUFFER, Ends
from gateway.egress.wire import Framing

LINE_AT_MOST = 4_096
"""Bytes of a line between chunks."""
TRAILERS_AT_MOST = 100
FRAMING_AT_MOST = 65_536
"""Bytes of lines between chunks beyond those of the chunks themselves: no server needs as many, and each takes time."""
CHUNKS_AT_ONCE = 16_384
"""Bytes that are taken apart before others have their turn: chunks of one byte in them take some 10 ms."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t -~\x80-\xff]*)?")

T = TypeVar("T")


class BrokenBodyError(Exception):
    """A body that is not what its head said; says why in one sentence."""


class Pulse:
    """When bytes last moved on a connection, in either direction."""

    def __init__(self, idle_s: float) -> None:
        """Take how many seconds it may be silent."""
        self._idle_s = idle_s
        self._last = asyncio.get_running_loop().time()

    async def wait(self, move: Callable[[], Awaitable[T]]) -> T:
        """Await `move()`, which must be safe to cancel and begin again. Raises `TimeoutError` after the silence.

        While bytes move the other way it goes on waiting: nothing comes up during a long download.
        """
        loop = asyncio.get_running_loop()
        while True:
            limit = asyncio.timeout_at(self._last + self._idle_s)
            try:
                async with limit:
                    moved = await move()
            except TimeoutError:
                if not limit.expired() or loop.time() >= self._last + self._idle_s:
                    raise
                continue
            self._last = loop.time()
            return moved


async def tunnel(one: Ends, other: Ends, pulse: Pulse) -> None:
    """Copy both ways until both ends are through; one end's closing is handed on, and the other may still speak.

    Raises `OSError` in an exception group when an end breaks off or both are silent for too long.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_pour(one, other, pulse), name="egress-up")
        group.create_task(_pour(other, one, pulse), name="egress-down")


async def _pour(source: Ends, sink: Ends, pulse: Pulse) -> None:
    while data := await pulse.wait(lambda: source.reader.read(BUFFER)):
        await _write(sink, data, pulse)
    sink.writer.write_eof()


async def copy_body(source: Ends, sink: Ends, body: Framing, pulse: Pulse) -> None:
    """Copy one body as it is framed. Chunks are written anew; what stands between and after them is left out.

    Raises `BrokenBodyError`, and `OSError` when an end breaks off or is silent for too long.
    """
    if body == "chunked":
        await _copy_chunks(source, sink, pulse)
    elif body == "until-end":
        while data := await pulse.wait(lambda: source.reader.read(BUFFER)):
            await _write(sink, data, pulse)
    elif isinstance(body, int):
        left = body
        while left:
            data = await _some(source, left, pulse)
            await _write(sink, data, pulse)
            left -= len(data)


async def _copy_chunks(source: Ends, sink: Ends, pulse: Pulse) -> None:
    chunks = Chunks()
    while not chunks.ended:
        if not (read := await pulse.wait(lambda: source.reader.read(CHUNKS_AT_ONCE))):
            raise BrokenBodyError("A body broke off.")
        if data := chunks.take(read):
            await _write(sink, b"%x\r\n%b\r\n" % (len(data), data), pulse)
        await asyncio.sleep(0)  # what has come already is read without a pause
    await _write(sink, b"0\r\n\r\n", pulse)


class Chunks:
    """Takes a chunked body, in whatever pieces it comes. Raises `BrokenBodyError` for what is none.

    All that came is taken at once: sent as chunks of one byte each, a body of 1 MB cost half a minute one by one.
    """

    def __init__(self) -> None:
        """Begin before the first chunk."""
        self.ended = False
        """Whether its end has come; what follows is not part of it."""
        self._rest = b""
        """The beginning of a line."""
        self._left = 0
        """Bytes of the chunk that are still to come."""
        self._line = self._size
        """Takes the next line, without its end."""
        self._trailers = 0
        self._framing_left = FRAMING_AT_MOST

    def take(self, read: bytes) -> bytes:
        """Take the next bytes and return the data that was in them."""
        read, at, found = self._rest + read, 0, list[bytes]()
        while not self.ended:
            if self._left:
                data = read[at : at + self._left]
                found.append(data)
                at += len(data)
                self._left -= len(data)
                self._framing_left += len(data)
                if self._left:
                    break
            end = read.find(b"\r\n", at)
            if (end if end >= 0 else len(read)) - at > LINE_AT_MOST:
                raise BrokenBodyError("A line between the chunks of a body is too long.")
            if end < 0:
                break
            self._line(read[at:end])
            self._framing_left -= end + 2 - at
            if self._framing_left < 0:
                raise BrokenBodyError("A body is hardly more than the sizes of its chunks.")
            at = end + 2
        self._rest = read[at:]
        return b"".join(found)

    def _size(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        if size is None:
            raise BrokenBodyError("A chunk does not begin with its size.")
        self._left = int(size[1], 16)
        self._line = self._end if self._left else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            raise BrokenBodyError("A chunk is longer than it says.")
        self._line = self._size

    def _trailer(self, line: bytes) -> None:
        self.ended = not line
        self._trailers += 1
        if self._trailers > TRAILERS_AT_MOST:
            raise BrokenBodyError("Too much follows the last chunk.")


async def _some(source: Ends, at_most: int, pulse: Pulse) -> bytes:
    data = await pulse.wait(lambda: source.reader.read(min(at_most, BUFFER)))
    if not data:
        raise BrokenBodyError("A body broke off.")
    return data


async def _write(sink: Ends, data: bytes, pulse: Pulse) -> None:
    sink.writer.write(data)
    await pulse.wait(sink.writer.drain)
