"""Mapping of SQLite's errors to the store's errors. Used by opening, writer and readers."""

from __future__ import annotations

import os
import sqlite3

from gateway.errors import StoreDamaged, StoreError, StoreFull

ROOM = 1 << 20
"""Bytes. With less free on the disk an I/O error counts as a full disk: SQLite reports that as either."""

FAILURES = (sqlite3.Error, MemoryError)
"""Exceptions of SQLite's functions. Python maps SQLite's out-of-memory code to `MemoryError`."""

_WHOLE_BATCH = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code, 0 when the error came from Python's own checks."""
    # The extended code's low byte is the primary one.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def concerns_the_file(error: sqlite3.Error | MemoryError) -> bool:
    """Return whether the whole batch fails: the file, the disk, the lock or memory is at fault."""
    return isinstance(error, MemoryError) or code_of(error) in _WHOLE_BATCH


def store_error(error: sqlite3.Error | MemoryError, path: str) -> StoreError:
    """Return the error for the caller, with its cure. Nothing of the transition was written."""
    if isinstance(error, MemoryError):
        return StoreError(
            f"No memory was left to write to the store {path}: nothing was written and nothing was lost.",
            cure="Give the daemon more memory, or free some, then repeat the request.",
        )
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)):
        return StoreFull(f"The disk of the store {path} is full: nothing was written and nothing was lost.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"Another program keeps the store {path} locked.",
            cure="End the program that has the file open (`fuser` names it); work goes on by itself.",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"The store {path} is damaged or is no SQLite database: {error}.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return StoreError(
            f"The store {path} cannot be opened for writing: {error}.",
            cure="Give the daemon's user the right to write the file and its folder.",
        )
    return StoreError(
        f"The store {path} failed: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)}).",
        cure="Check the disk's health and the system's log.",
    )


def gone(path: str) -> StoreError:
    """Return the error for a store whose files are not the opened ones any more."""
    return StoreError(
        f"The store {path}, its -wal or its -shm was moved, removed or replaced while the daemon runs: "
        "nothing was written.",
        cure="Put the files back as they were. If something wrote into them since, or they are gone, stop the daemon "
        "and start it again on what stands there now.",
    )


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < ROOM
