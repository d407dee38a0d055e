"""Errors of opening a store's file, and ownership of the file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StartError, StoreDamaged, StoreError, StoreInUse, StoreTooNew
from gateway.store.sqlite import open_sqlite
from gateway.store.sqlite.opening import (
    APPLICATION_ID,
    FileLock,
    check_file,
    check_library,
    connect,
    make_file,
    open_reader,
    open_writer,
)
from gateway.store.sqlite.statements import load_migrations, load_statements
from tests.support.clock import FakeClock

OWN = "Let store.url name a file of its own."
SQL, MIGRATIONS = load_statements(), load_migrations()


def made(path: Path, *statements: str) -> str:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    return str(path)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A store that was closed."""
    path = tmp_path / "dragoman.db"
    open_writer(str(path), SQL, MIGRATIONS).close()
    return path


def refusal(path: str) -> tuple[str, str]:
    with pytest.raises(StoreError) as refused:
        open_writer(path, SQL, MIGRATIONS)
    return refused.value.message, refused.value.cure


def test_a_new_file_is_stamped_as_ours_with_the_newest_schema(ours: Path) -> None:
    with closing(connect(str(ours))) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    open_writer(str(ours), SQL, MIGRATIONS).close()  # and it opens again


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE theirs (a)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"]
)
def test_database_of_another_program_is_refused(tmp_path: Path, statement: str) -> None:
    path = made(tmp_path / "other.db", statement)

    assert refusal(path) == (f"{path} is the database of another program.", OWN)


def test_an_empty_database_is_taken(tmp_path: Path) -> None:
    open_writer(made(tmp_path / "empty.db", "VACUUM"), SQL, MIGRATIONS).close()


def test_a_newer_schema_says_both_numbers(ours: Path) -> None:
    newer = len(MIGRATIONS) + 1
    made(ours, f"PRAGMA user_version = {newer}")

    with pytest.raises(StoreTooNew) as refused:
        open_writer(str(ours), SQL, MIGRATIONS)
    known = f"this version of Dragoman knows {len(MIGRATIONS)}."
    assert refused.value.message == f"The store {ours} has schema {newer}; {known}"


@pytest.mark.parametrize("header", [b"x", b"SQLite format 3", b"SQLite format 4\0", b"\0" * 16])
def test_a_file_with_another_header_is_no_database(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(header)

    with pytest.raises(StoreError) as refused:
        make_file(str(path))
    assert (refused.value.message, refused.value.cure) == (f"{path} is no SQLite database.", OWN)
    assert path.read_bytes() == header


def test_a_store_is_known_by_its_first_bytes(ours: Path, tmp_path: Path) -> None:
    """Before it is opened, which could change it: what is older or empty passes, and no file is made."""
    known, newer = len(MIGRATIONS), len(MIGRATIONS) + 1
    (tmp_path / "empty.db").write_bytes(b"")
    for path, newest in ((ours, known), (ours, newer), (tmp_path / "empty.db", known), (ours, None)):
        check_file(str(path), newest)
    made(tmp_path / "vacuum.db", "VACUUM")
    check_file(str(tmp_path / "vacuum.db"), known)
    with pytest.raises(StoreTooNew, match=f"has schema {known}; this version of Dragoman knows {known - 1}"):
        check_file(str(ours), known - 1)
    for statement in ("PRAGMA application_id = 7", "PRAGMA user_version = 1"):
        other = made(tmp_path / f"{statement[7:12]}.db", "CREATE TABLE theirs (a)", statement)
        check_file(other)
        with pytest.raises(StoreError) as refused:
            check_file(other, known)
        assert (refused.value.message, refused.value.cure) == (f"{other} is the database of another program.", OWN)
    with pytest.raises(StoreError, match="cannot be opened: No such file or directory"):
        check_file(str(tmp_path / "none.db"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError) as refused:
        check_file(str(tmp_path / "pipe"))
    assert (refused.value.message, refused.value.cure) == (f"The store {tmp_path / 'pipe'} is not a file.", OWN)


def test_a_file_with_two_names_is_not_opened(tmp_path: Path) -> None:
    """A lock stands beside each name: two daemons would write one file, each with a log of its own."""
    path, copy = tmp_path / "dragoman.db", tmp_path / "copy.db"
    make_file(str(path))
    os.link(path, copy)

    for name in (path, copy):
        with pytest.raises(StoreError, match="has another name: it is a hard link") as refused:
            make_file(str(name))
        assert f"cp -p {name} {name}.copy" in refused.value.cure
    copy.unlink()
    make_file(str(path))


def test_a_lock_that_cannot_be_opened_is_reported_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "dragoman.db.lock").mkdir()
    with pytest.raises(StoreError, match=r"dragoman\.db\.lock cannot be opened") as refused:
        FileLock(str(tmp_path / "dragoman.db"))
    assert "daemon's user" in refused.value.cure


def test_a_folder_is_made_and_what_stands_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.db"
    for _ in range(2):
        make_file(str(path))
    assert path.read_bytes() == b""
    path.write_bytes(b"SQLite format 3\0and more")
    make_file(str(path))
    assert path.read_bytes() == b"SQLite format 3\0and more"


def test_unopenable_path_has_a_cure(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refused:
        make_file(str(tmp_path))
    assert refused.value.message == f"The store {tmp_path} cannot be opened: Is a directory."
    assert refused.value.cure == "Name a file in a folder that the daemon's user may write."

    with pytest.raises(StoreError) as refused:
        open_sqlite("dragoman.db", FakeClock())
    assert refused.value.message == "The store's path 'dragoman.db' is not absolute."
    assert refused.value.cure == "Use `sqlite:///` with an absolute path."


def test_a_place_where_the_log_cannot_be_kept_is_refused() -> None:
    """As on a network file system; a database in memory has no log either."""
    assert refusal(":memory:") == (
        "The store :memory: runs with journal_mode = memory instead of wal.",
        "Put the store on a local disk: network file systems cannot hold it.",
    )


def test_a_reader_cannot_write(ours: Path) -> None:
    with closing(open_reader(str(ours), SQL)) as db, pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM sessions")


def test_a_damaged_file_is_found_when_it_was_not_closed(ours: Path) -> None:
    with closing(open_writer(str(ours), SQL, MIGRATIONS)) as db:  # marked as open, and not as closed again
        db.execute("CREATE TABLE big (a)")
        db.execute("INSERT INTO big VALUES (zeroblob(100000))")
    data = bytearray(ours.read_bytes())
    data[-50_000:-30_000] = b"\xff" * 20_000
    ours.write_bytes(data)

    message, cure = refusal(str(ours))
    assert message.startswith(f"The store {ours} is damaged: ")
    assert cure == StoreDamaged.cure


def test_the_lock_names_who_has_it_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "dragoman.db")
    lock = FileLock(path)
    assert Path(lock.path).read_text() == f"{os.getpid()}\n"
    with pytest.raises(StoreInUse) as refused:
        FileLock(path)
    assert refused.value.message == f"The store {path} is in use by process {os.getpid()}."

    Path(lock.path).write_text("")
    with pytest.raises(StoreInUse, match="in use by process unknown"):
        FileLock(path)
    for _ in range(2):
        lock.release()
    FileLock(path).release()


@pytest.mark.parametrize(
    ("name", "value", "message", "cure"),
    [
        (
            "sqlite_version_info",
            (3, 34, 9),
            f"Python was built with SQLite {sqlite3.sqlite_version}; the store needs 3.35 or newer.",
            "Use a Python with a newer SQLite.",
        ),
        (
            "threadsafety",
            0,
            "Python's SQLite was built without thread safety.",
            "Use a Python with a thread-safe SQLite.",
        ),
    ],
)
def test_an_unfit_library_is_refused(
    name: str, value: object, message: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_library()
    monkeypatch.setattr(sqlite3, name, value)
    with pytest.raises(StartError) as refused:
        check_library()
    assert (refused.value.message, refused.value.cure) == (message, cure)
