"""Under everything: what a daemon does so that its memory does not grow with its age. No part of a path.

Caches have their own bounds. This is about what nobody holds any more, and the system has not got back.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from asyncio import selector_events, sslproto, unix_events
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
"""`M_…` of glibc's `malloc.h`."""
MIB = 1 << 20
TIDY_EVERY_S = 30.0
MAPPED_FROM = 128 << 10
"""What takes so many bytes or more has pages of its own, and leaves no hole in the heap."""
READ_AT_ONCE = 16 << 10
"""Bytes. What a shorter message leaves of their room is found by what else is as large; of 64 KiB it is not."""
NAMES = 45_000
"""As many as find room in a table that the modules of a daemon fill to more than a half."""
ASYNCIO_READS = (
    (selector_events, "_SelectorTransport"),
    (unix_events, "_UnixReadPipeTransport"),
    (sslproto, "SSLProtocol"),
)
"""What reads for asyncio, sockets, pipes and TLS, and has a `max_size`."""


def set_up_heap() -> bool:
    """Keep one heap for all threads, and nothing of what was large and is freed. Twice is safe.

    Called before any thread is started. Left alone, glibc makes a heap for each of the store's and the helpers'
    threads, none of which uses what is free in another. And once a file of 25 MB was freed, it keeps up to 50 MB for
    the next one. Said here, and not in the environment: tools would inherit that, and who starts a daemon by hand
    would not have it.

    False where there is no glibc: other allocators are left as they are.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # Each of the thresholds ends glibc's own way of raising both.
    wanted = ((ARENA_MAX, 1), (MMAP_THRESHOLD, MAPPED_FROM), (TRIM_THRESHOLD, 2 * MIB))
    return all([libc.mallopt(what, value) == 1 for what, value in wanted])


def read_less_at_once() -> None:
    """Have asyncio take 16 KiB for each read of a socket or a pipe, where it takes 256 by itself.

    Nearly all of it is given back at once, and whatever settles in between makes a hole that is too small for the next
    read: the heap grows by half a megabyte an hour. Mapped, each read would cost two calls of the system more.
    """
    for module, name in ASYNCIO_READS:
        reads: Any = getattr(module, name, None)  # asyncio has no other way to say it
        if hasattr(reads, "max_size"):
            reads.max_size = READ_AT_ONCE


def leave_alone_what_is_there() -> None:
    """Never look for garbage among what exists now: a daemon that is ready keeps what it was built of.

    Python looks through everything only after it grew by a quarter: the less there is, the sooner it finds what is new.
    """
    gc.freeze()


def make_room_for_names() -> None:
    """Have Python's table of interned names made anew now, and not in the first hours.

    Each part of a path that is looked at takes a place there (`pathlib`), which is free again only when all are taken
    and the table is made anew, for three times what it holds: a mebibyte more, once, after some thousand messages.
    """
    if sys.version_info[:2] == (3, 12):  # where no name is ever forgotten
        return
    for n in range(NAMES):
        sys.intern(f"a name of nothing {n}")


async def keep_tidy(every_s: float = TIDY_EVERY_S) -> None:
    """Look for what nobody holds any more, until cancelled.

    Closed connections and exceptions hold themselves in cycles; left to Python they lie there for a quarter of an hour,
    a megabyte of them. Costs 6 ms of CPU each time, and 20 at most.
    """
    await asyncio.sleep(every_s)
    make_room_for_names()
    while True:
        gc.collect()
        await asyncio.sleep(every_s)
