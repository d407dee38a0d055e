"""Copying of bodies and tunnels through an egress proxy. Memory is bounded by a slow reader's buffer."""

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
"""Trailer lines after the last chunk."""
FRAMING_AT_MOST = 65_536
"""Bytes of framing lines beyond the bytes of the chunks: no server needs as many, and each takes time to read."""
CHUNKS_AT_ONCE = 16_384
"""Bytes that are parsed before other tasks run: as chunks of one byte they take some 10 ms."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t -~\x80-\xff]*)?")

T = TypeVar("T")


class BrokenBodyError(Exception):
    """Body that does not match its head; the message is one sentence."""


class Pulse:
    """Idle timeout of a connection, reset by bytes in either direction."""

    def __init__(self, idle_s: float) -> None:
        """Start the timeout of `idle_s` seconds."""
        self._idle_s = idle_s
        self._last = asyncio.get_running_loop().time()

    async def wait(self, move: Callable[[], Awaitable[T]]) -> T:
        """Await `move()`, which must be safe to cancel and repeat. Raises `TimeoutError` after the idle timeout.

        It keeps waiting while bytes move the other way: a client sends nothing during a long download.
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
    """Copy in both directions until both ends have closed; the close of one end is passed on as a half-close.

    Raises `OSError` in an exception group when a connection breaks or both directions reach the idle timeout.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_pour(one, other, pulse), name="egress-up")
        group.create_task(_pour(other, one, pulse), name="egress-down")


async def _pour(source: Ends, sink: Ends, pulse: Pulse) -> None:
    while data := await pulse.wait(lambda: source.reader.read(BUFFER)):
        await _write(sink, data, pulse)
    sink.writer.write_eof()


async def copy_body(source: Ends, sink: Ends, body: Framing, pulse: Pulse) -> None:
    """Copy one body by its framing. Chunks are reframed without extensions and trailers.

    Raises `BrokenBodyError`, and `OSError` when a connection breaks or reaches the idle timeout.
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
        await asyncio.sleep(0)  # read() does not yield while its buffer has data
    await _write(sink, b"0\r\n\r\n", pulse)


class Chunks:
    """Incremental parser of a chunked body. Raises `BrokenBodyError` for an invalid one.

    It parses all available bytes at once: chunk by chunk, a body of 1 MB in chunks of one byte took half a minute.
    """

    def __init__(self) -> None:
        """Start before the first chunk."""
        self.ended = False
        """True once the end was read; later bytes are not part of the body."""
        self._rest = b""
        """Unfinished line at the end of the bytes so far."""
        self._left = 0
        """Remaining bytes of the current chunk."""
        self._line = self._size
        """Handler of the next line, given without its line end."""
        self._trailers = 0
        self._framing_left = FRAMING_AT_MOST

    def take(self, read: bytes) -> bytes:
        """Parse the next bytes and return their data."""
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
