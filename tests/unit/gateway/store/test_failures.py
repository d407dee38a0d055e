"""Mapping of SQLite's errors to the store's errors and their cures."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gateway.errors import StoreDamaged, StoreError, StoreFull
from gateway.store.sqlite.failures import code_of, concerns_the_file, store_error

HERE = "/tmp/dragoman.db"
NO_ROOM = next(f"{folder}/dragoman.db" for folder in ("/proc", "/dev") if Path(folder).exists())
"""On a file system that never has a byte left: Linux has one there, macOS here."""
NOWHERE = "/nonexistent/dragoman.db"
OF_ONE = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, 0)
OF_THE_FILE = (
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
)


def error(code: int, name: str = "SQLITE_SOMETHING") -> sqlite3.Error:
    found = sqlite3.OperationalError("it says so")
    found.sqlite_errorcode, found.sqlite_errorname = code, name
    return found


@pytest.mark.parametrize("code", OF_THE_FILE)
def test_error_of_the_file_fails_the_whole_batch(code: int) -> None:
    assert concerns_the_file(error(code))
    assert concerns_the_file(error(code | 7 << 8))  # an extended code


@pytest.mark.parametrize("code", OF_ONE)
def test_error_of_one_transition_does_not_concern_the_file(code: int) -> None:
    assert not concerns_the_file(error(code))


def test_an_error_of_pythons_own_checks_has_no_code() -> None:
    assert code_of(sqlite3.ProgrammingError("Cannot operate on a closed database.")) == 0
    assert code_of(error(sqlite3.SQLITE_IOERR | 3 << 8)) == sqlite3.SQLITE_IOERR


@pytest.mark.parametrize(
    ("code", "path", "full"),
    [
        (sqlite3.SQLITE_FULL, HERE, True),
        (sqlite3.SQLITE_IOERR, NO_ROOM, True),
        (sqlite3.SQLITE_CANTOPEN, NO_ROOM, True),
        (sqlite3.SQLITE_IOERR | 3 << 8, NO_ROOM, True),
        (sqlite3.SQLITE_IOERR, HERE, False),
        (sqlite3.SQLITE_CANTOPEN, HERE, False),
        (sqlite3.SQLITE_IOERR, NOWHERE, False),
        (sqlite3.SQLITE_CORRUPT, NO_ROOM, False),
        (sqlite3.SQLITE_BUSY, NO_ROOM, False),
    ],
)
def test_a_full_disk_is_distinguished_from_a_bad_one(code: int, path: str, full: bool) -> None:
    found = store_error(error(code), path)

    assert isinstance(found, StoreFull) is full
    if full:
        assert found.message == f"The disk of the store {path} is full: nothing was written and nothing was lost."


@pytest.mark.parametrize(
    ("code", "message", "cure"),
    [
        (
            sqlite3.SQLITE_BUSY,
            "Another program keeps the store /tmp/dragoman.db locked.",
            "End the program that has the file open (`fuser` names it); work goes on by itself.",
        ),
        (
            sqlite3.SQLITE_LOCKED,
            "Another program keeps the store /tmp/dragoman.db locked.",
            "End the program that has the file open (`fuser` names it); work goes on by itself.",
        ),
        (
            sqlite3.SQLITE_CORRUPT,
            "The store /tmp/dragoman.db is damaged or is no SQLite database: it says so.",
            StoreDamaged.cure,
        ),
        (
            sqlite3.SQLITE_NOTADB,
            "The store /tmp/dragoman.db is damaged or is no SQLite database: it says so.",
            StoreDamaged.cure,
        ),
        (
            sqlite3.SQLITE_READONLY,
            "The store /tmp/dragoman.db cannot be opened for writing: it says so.",
            "Give the daemon's user the right to write the file and its folder.",
        ),
        (
            sqlite3.SQLITE_CANTOPEN,
            "The store /tmp/dragoman.db cannot be opened for writing: it says so.",
            "Give the daemon's user the right to write the file and its folder.",
        ),
        (
            sqlite3.SQLITE_IOERR,
            "The store /tmp/dragoman.db failed: it says so (SQLITE_SOMETHING).",
            "Check the disk's health and the system's log.",
        ),
    ],
)
def test_each_failure_has_its_cure(code: int, message: str, cure: str) -> None:
    found = store_error(error(code), HERE)

    assert type(found) is (StoreDamaged if cure == StoreDamaged.cure else StoreError)
    assert (found.message, found.cure) == (message, cure)


def test_an_error_without_a_name_is_called_by_its_class() -> None:
    found = store_error(sqlite3.ProgrammingError("closed"), HERE)

    assert found.message == "The store /tmp/dragoman.db failed: closed (ProgrammingError)."
