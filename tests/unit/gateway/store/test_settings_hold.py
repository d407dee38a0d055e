"""A store does not open when SQLite's settings do not hold: each is read back after it was set."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store.sqlite.opening import make_file, open_reader, open_writer
from gateway.store.sqlite.statements import load_migrations, load_statements


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "dragoman.db")
    make_file(path)
    return path


@pytest.mark.parametrize(
    ("name", "statement", "found"),
    [
        ("journal_mode", "PRAGMA journal_mode = DELETE;", "journal_mode = delete instead of wal"),
        ("synchronous", "PRAGMA synchronous = NORMAL;", "synchronous = 1 instead of 2"),
        ("foreign_keys", "PRAGMA foreign_keys = OFF;", "foreign_keys = 0 instead of 1"),
        ("busy_timeout", "PRAGMA busy_timeout = 0;", "busy_timeout = 0 instead of 5000"),
    ],
)
def test_a_writer_with_another_setting_is_refused(path: str, name: str, statement: str, found: str) -> None:
    with pytest.raises(StoreError, match=found):
        open_writer(path, {**load_statements(), name: statement}, load_migrations())


def test_a_reader_that_could_write_is_refused(path: str) -> None:
    open_writer(path, load_statements(), load_migrations()).close()
    with pytest.raises(StoreError, match="query_only = 0 instead of 1"):
        open_reader(path, {**load_statements(), "query_only": "PRAGMA query_only = OFF;"})
