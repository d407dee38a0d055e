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

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t -~\x80-\xff]*)?\r\n")

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
    while left := await _size_line(source, pulse):
        while left:
            data = await _some(source, left, pulse)
            await _write(sink, b"%x\r\n%b\r\n" % (len(data), data), pulse)
            left -= len(data)
        if await _line(source, pulse) != b"\r\n":
            raise BrokenBodyError("A chunk is longer than it says.")
    for _ in range(TRAILERS_AT_MOST):
        if await _line(source, pulse) == b"\r\n":
            return await _write(sink, b"0\r\n\r\n", pulse)
    raise BrokenBodyError("Too much follows the last chunk.")


async def _size_line(source: Ends, pulse: Pulse) -> int:
    size = _SIZE.fullmatch(await _line(source, pulse))
    if size is None:
        raise BrokenBodyError("A chunk does not begin with its size.")
    return int(size[1], 16)


async def _line(source: Ends, pulse: Pulse) -> bytes:
    try:
        line = await pulse.wait(lambda: source.reader.readuntil(b"\r\n"))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        line = b""
    if not line or len(line) > LINE_AT_MOST:
        raise BrokenBodyError("A body broke off, or a line in it is too long.")
    return line


async def _some(source: Ends, at_most: int, pulse: Pulse) -> bytes:
    data = await pulse.wait(lambda: source.reader.read(min(at_most, BUFFER)))
    if not data:
        raise BrokenBodyError("A body broke off.")
    return data


async def _write(sink: Ends, data: bytes, pulse: Pulse) -> None:
    sink.writer.write(data)
    await pulse.wait(sink.writer.drain)
