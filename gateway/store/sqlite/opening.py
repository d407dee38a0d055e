"""Opening of the store's file: lock, ownership, check after a crash, migrations. Used by `open_sqlite`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from gateway.errors import StartError, StoreDamaged, StoreError, StoreInUse, StoreTooNew
from gateway.store.sqlite.failures import store_error
from gateway.store.sqlite.statements import SchemaMigration

APPLICATION_ID = 0x4472676E
"""`Drgn`: application id in the file's header."""
OLDEST_SQLITE = (3, 35, 0)
"""First version with RETURNING."""
CHECK_AT_MOST = 32 << 20
"""Bytes, about a second of checking. A larger file is not checked after a crash, so that the start is not delayed."""
HEADER = b"SQLite format 3\0"
_HEADER_BYTES, _VERSION_AT, _APPLICATION_AT = 100, 60, 68
"""Length of the header in bytes, and offsets of two four-byte numbers in it."""
_READERS_AT, _READERS = 0x40000002, 510
"""Byte range of the file that SQLite's readers lock, from its file format."""
_OWN_FILE = "Let store.url name a file of its own."
STATEMENTS_KEPT = 256


class FileLock:
    """Lock file beside the store. Held until `release` or the end of this process."""

    def __init__(self, path: str) -> None:
        """Acquire the lock. Raises `StoreInUse` with the holder's process id."""
        self.path = f"{path}.lock"
        self._fd = _open_lock(self.path, os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise StoreInUse(f"The store {path} is in use by process {holder}.") from None
        # The process id is only for the refusal's text; a full disk has no room for it.
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. Idempotent. The file stays: removing it would race with the next holder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def check_lock(path: str) -> None:
    """Raise `StoreError` for a lock file that exists and cannot be opened. Takes no lock."""
    if os.path.lexists(f"{path}.lock"):
        os.close(_open_lock(f"{path}.lock"))


def _open_lock(path: str, flags: int = 0) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        raise StoreError(
            f"The lock file {path} cannot be opened: {error.strerror}.",
            cure="Give it and the folder to the daemon's user.",
        ) from error


def keep_from_moving(path: str) -> None:
    """Hold a reader's lock, so that SQLite leaves the log as it is when its last connection closes.

    Held until this process ends, since closing the descriptor would release SQLite's own locks. Only Linux has such
    locks; elsewhere this does nothing. Raises `OSError`.
    """
    if sys.platform != "linux":
        return
    held = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, _READERS_AT, _READERS, 0)
    fcntl.fcntl(held, fcntl.F_OFD_SETLK, lock)


def check_library() -> None:
    """Raise `StartError` when this Python's SQLite is too old or not thread-safe."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = "{}.{}".format(*OLDEST_SQLITE)
        raise StartError(
            f"Python was built with SQLite {sqlite3.sqlite_version}; the store needs {needed} or newer.",
            cure="Use a Python with a newer SQLite.",
        )
    if sqlite3.threadsafety < 1:
        raise StartError(
            "Python's SQLite was built without thread safety.", cure="Use a Python with a thread-safe SQLite."
        )


def make_file(path: str) -> None:
    """Create the folder (0700) and the file (0600), less the umask, when absent. Existing ones stay as they are."""
    folder = Path(path).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _not_opened(path, error) from error
    check_file(path)


def check_file(path: str, newest: int | None = None) -> None:
    """Raise `StoreError` for a file that is no store, by its first bytes. Opens no database, changes nothing.

    `newest`: the schema that this version knows. After an unclean close a newer one may be in the log alone.
    """
    # Checked first: opening a pipe would wait for its writer.
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise StoreError(f"The store {path} is not a file.", cure=_OWN_FILE)
    try:
        with open(path, "rb") as file:
            header, names = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_nlink
    except OSError as error:
        raise _not_opened(path, error) from error
    if names > 1:  # by its other name another daemon could hold it, with a separate lock and log
        raise StoreError(
            f"The store {path} has another name: it is a hard link, as some backups make.",
            cure=f"Make it a file of its own: cp -p {path} {path}.copy, then mv {path}.copy {path}",
        )
    # SQLite takes a file of a few bytes for an empty one and would overwrite it.
    if header and header[: len(HEADER)] != HEADER:
        raise StoreError(f"{path} is no SQLite database.", cure=_OWN_FILE)
    if newest is not None and len(header) == _HEADER_BYTES:
        version, application = (int.from_bytes(header[at : at + 4], "big") for at in (_VERSION_AT, _APPLICATION_AT))
        _refuse(path, application, version, newest, empty=application == version == 0)


def _not_opened(path: str, error: OSError) -> StoreError:
    return StoreError(
        f"The store {path} cannot be opened: {error.strerror}.",
        cure="Name a file in a folder that the daemon's user may write.",
    )


def _refuse(path: str, application: int, version: int, newest: int, *, empty: bool) -> None:
    if application != APPLICATION_ID and not empty:
        raise StoreError(f"{path} is the database of another program.", cure=_OWN_FILE)
    if version > newest:
        raise StoreTooNew(f"The store {path} has schema {version}; this version of Dragoman knows {newest}.")


def open_writer(path: str, sql: Mapping[str, str], migrations: tuple[SchemaMigration, ...]) -> sqlite3.Connection:
    """Open the one connection that writes: checked, migrated, marked as not cleanly closed. Raises `StoreError`."""
    try:
        db = connect(path)
        try:
            _refuse_foreign(db, path, sql, migrations)
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "temp_store", "cache_size"):
                db.execute(sql[name]).fetchall()
            db.execute(sql["wal_autocheckpoint"]).fetchall()
            _verify(db, path, sql, {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000})
            _bring_up_to_date(db, path, sql, migrations)
            _check_after_crash(db, path, sql)
            db.execute(sql["mark_open"])
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return db


def last_rev(db: sqlite3.Connection, path: str, sql: Mapping[str, str]) -> int:
    """Return the store's last revision. Raises `StoreError`."""
    try:
        (rev,) = db.execute(sql["read_rev"]).fetchone()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return rev


def open_reader(path: str, sql: Mapping[str, str]) -> sqlite3.Connection:
    """Open a read-only connection."""
    try:
        db = connect(path)
        try:
            for name in ("busy_timeout", "temp_store", "cache_size_of_reader", "query_only"):
                db.execute(sql[name]).fetchall()
            _verify(db, path, sql, {"query_only": 1, "busy_timeout": 5000})
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return db


def connect(path: str) -> sqlite3.Connection:
    """Open the file without implicit transactions. One thread at a time uses it, not always the same."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT)


def migrate(
    db: sqlite3.Connection,
    sql: Mapping[str, str],
    migrations: tuple[SchemaMigration, ...],
    before: Callable[[str], None] | None = None,
) -> None:
    """Bring the schema up to date, each migration in one transaction. `before` is called with each statement."""
    version = _number(db, sql["read_user_version"])
    for migration in migrations[version:]:
        db.execute(sql["begin"])
        try:
            for statement in (*migration.statements, sql["commit"]):
                if before is not None:
                    before(statement)
                db.execute(statement).fetchall()
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute(sql["rollback"])
            raise


def _bring_up_to_date(
    db: sqlite3.Connection, path: str, sql: Mapping[str, str], migrations: tuple[SchemaMigration, ...]
) -> None:
    """Migrate. Raises `StoreError` for a file that has what a migration makes: it is from between two releases."""
    try:
        migrate(db, sql, migrations)
    except sqlite3.OperationalError as error:
        if not any(words in str(error) for words in ("duplicate column", "already exists", "no such index")):
            raise
        raise StoreError(
            f"The store {path} cannot be brought to this version: {error}. A version between two releases made it.",
            cure="Copy it with that version to an empty Redis (`dragoman migrate`), and with this one back to a file.",
        ) from error


def _refuse_foreign(
    db: sqlite3.Connection, path: str, sql: Mapping[str, str], migrations: tuple[SchemaMigration, ...]
) -> None:
    """Raise `StoreError` when the file is another program's or of a newer version. Changes nothing."""
    application, version = _number(db, sql["read_application_id"]), _number(db, sql["read_user_version"])
    empty = application == 0 and version == 0 and _number(db, sql["table_count"]) == 0
    _refuse(path, application, version, len(migrations), empty=empty)


def _verify(db: sqlite3.Connection, path: str, sql: Mapping[str, str], wanted: Mapping[str, str | int]) -> None:
    for name, value in wanted.items():
        (found,) = db.execute(sql[f"read_{name}"]).fetchone()
        if found != value:
            raise StoreError(
                f"The store {path} runs with {name} = {found} instead of {value}.",
                cure="Put the store on a local disk: network file systems cannot hold it.",
            )


def _check_after_crash(db: sqlite3.Connection, path: str, sql: Mapping[str, str]) -> None:
    if _number(db, sql["read_clean"]) or Path(path).stat().st_size > CHECK_AT_MOST:
        return
    (found,) = db.execute(sql["quick_check"]).fetchone()
    if found != "ok":
        raise StoreDamaged(f"The store {path} is damaged: {found}.")


def _number(db: sqlite3.Connection, statement: str) -> int:
    with closing(db.cursor()) as cursor:
        return int(cursor.execute(statement).fetchone()[0])
