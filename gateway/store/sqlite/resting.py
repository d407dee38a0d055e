"""Read-only access to a store that no daemon holds. Used by `dragoman explain`. File and log stay as they are."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import quote

from gateway.domain.grants import Grant
from gateway.domain.ids import SessionId
from gateway.domain.sessions import Session
from gateway.errors import StoreError
from gateway.ports import Clock
from gateway.store.codec import to_us
from gateway.store.decode import UNREADABLE, session_of
from gateway.store.sqlite.failures import store_error
from gateway.store.sqlite.grants import live_grants
from gateway.store.sqlite.opening import FileLock, check_file
from gateway.store.sqlite.statements import load_migrations, load_statements
from gateway.store.sqlite.tx import ReadTx

GRANTS_READ = 1000
"""Grants that are read at most."""


def resting_session(path: str, session: SessionId, clock: Clock) -> tuple[Session, Sequence[Grant]] | None:
    """Return a stored session with the live grants of the store; None when there is no such session.

    Raises `StoreInUse` while a daemon holds the store, and `StoreError` for a file that cannot be read.
    """
    path = os.path.realpath(path)
    if not os.path.exists(path):
        raise StoreError(f"There is no store at {path}.", cure="Start the daemon once: dragoman run.")
    check_file(path, len(load_migrations()))
    lock = FileLock(path)
    try:
        with _reader(path, clock) as reader:
            _refuse_older(path, reader)
            found = reader.one("session", session)
            return None if found is None else (session_of(found), live_grants(reader, GRANTS_READ))
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except UNREADABLE as error:
        raise StoreError(f"The session {session} cannot be read: {type(error).__name__}.") from error
    finally:
        lock.release()


def _refuse_older(path: str, reader: ReadTx) -> None:
    version, newest = reader.one("read_user_version"), len(load_migrations())
    if version is not None and version[0] < newest:
        raise StoreError(
            f"The store {path} has schema {version[0]}; this version reads {newest}.",
            cure="Start the daemon of this version on it once: it brings the file up to date.",
        )


@contextmanager
def _reader(path: str, clock: Clock) -> Generator[ReadTx]:
    # Without a log the file is whole, and nothing is made beside it. A log is what a crash left: it is read, not moved.
    way = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"file:{quote(path)}?{way}", uri=True, isolation_level=None)) as db:
        yield ReadTx(db, load_statements(), to_us(clock.now()))
