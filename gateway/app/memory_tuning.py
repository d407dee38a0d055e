"""Memory tuning of the process, so that a daemon's memory does not grow with its age. Called by `app.run`.

Caches have their own bounds. This module returns freed memory to the system.
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
"""Seconds between garbage collections."""
MAPPED_FROM = 128 << 10
"""Bytes from which an allocation is mapped on its own pages, so that it leaves no hole in the heap."""
READ_AT_ONCE = 16 << 10
"""Bytes per read. Allocations of this size reuse the hole that a shorter message leaves; a hole of 64 KiB stays."""
NAMES = 45_000
"""More names than the intern table has room for: 43,690, or 87,381 beside the 43,000 of the daemon's modules."""
ASYNCIO_READS = (
    (selector_events, "_SelectorTransport"),
    (unix_events, "_UnixReadPipeTransport"),
    (sslproto, "SSLProtocol"),
)
"""Reader classes of asyncio with a `max_size`: sockets, pipes, TLS."""


def set_up_heap() -> bool:
    """Use one heap for all threads, and return large freed blocks to the system. Idempotent.

    Call before any thread is started. By default glibc makes a heap for each thread of the store and the helpers, and
    no thread uses free memory of another heap. Once a file of 25 MB was freed, it retains up to 50 MB for the next
    one. Set here and not in the environment: tools would inherit that, and a daemon started by hand would lack it.

    Return False without glibc: other allocators are left as they are.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # Setting either threshold stops glibc from raising both dynamically.
    wanted = ((ARENA_MAX, 1), (MMAP_THRESHOLD, MAPPED_FROM), (TRIM_THRESHOLD, 2 * MIB))
    return all([libc.mallopt(what, value) == 1 for what, value in wanted])


def read_less_at_once() -> None:
    """Set asyncio's read buffers for sockets and pipes to 16 KiB; the default is 256.

    Nearly all of a buffer is freed at once. An allocation that settles in between leaves a hole too small for the next
    read: the heap grows by half a megabyte an hour. Mapped buffers would cost two more system calls a read.
    """
    for module, name in ASYNCIO_READS:
        reads: Any = getattr(module, name, None)  # asyncio has no public setting for it
        if hasattr(reads, "max_size"):
            reads.max_size = READ_AT_ONCE


def freeze_existing_objects() -> None:
    """Exclude all existing objects from garbage collection: a ready daemon never frees the objects it was built of.

    Python runs a full collection only after the heap grew by a quarter; a smaller heap is collected sooner.
    """
    gc.freeze()


def make_room_for_names() -> None:
    """Resize Python's intern table now instead of in the first hours.

    `pathlib` interns each part of a path. Slots are reused only after the full table is rebuilt at three times its
    content: one more mebibyte, once, after some thousand messages.
    """
    if sys.version_info[:2] == (3, 12):  # interned names are immortal there
        return
    for n in range(NAMES):
        sys.intern(f"a name of nothing {n}")


async def keep_tidy(every_s: float = TIDY_EVERY_S) -> None:
    """Collect garbage periodically until cancelled.

    Closed connections and exceptions form reference cycles; without this they stay for a quarter of an hour and hold a
    megabyte. Each collection costs 6 ms of CPU, at most 20.
    """
    await asyncio.sleep(every_s)
    make_room_for_names()
    while True:
        gc.collect()
        await asyncio.sleep(every_s)
