"""What `dragoman check` refuses of the store is what a start refuses, in the same words, and it is left as it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store import look_at_store, open_store
from gateway.store.sqlite.opening import APPLICATION_ID
from tests.support.clock import FakeClock


def random(store: Path) -> None:
    store.write_bytes(b"\x07" * 200)


def folder(store: Path) -> None:
    store.mkdir()


def linked(store: Path) -> None:
    store.touch()
    os.link(store, store.with_name("copy.db"))


def marked(store: Path, application: int, version: int) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute(f"PRAGMA application_id = {application}")
        db.execute(f"PRAGMA user_version = {version}")


def newer(store: Path) -> None:
    marked(store, APPLICATION_ID, 99)


def foreign(store: Path) -> None:
    marked(store, 7, 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (random, "is no SQLite database."),
        (folder, "cannot be opened: Is a directory."),
        (linked, "has another name: it is a hard link"),
        (newer, "has schema 99; this version of Dragoman knows"),
        (foreign, "is the database of another program."),
    ],
)
def test_what_is_no_store_of_ours_is_refused(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    store = tmp_path / "dragoman.db"
    make(store)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StoreError) as looked:
        look_at_store(f"sqlite://{store}")
    assert sorted(os.listdir(tmp_path)) == before
    with pytest.raises(StoreError) as opened:
        open_store(f"sqlite://{store}", FakeClock())
    assert says in looked.value.message
    assert (looked.value.message, looked.value.cure) == (opened.value.message, opened.value.cure)


@pytest.mark.parametrize("url", ["sqlite:///no/such/dragoman.db", "memory://"])
def test_one_that_is_not_there_yet_is_not_made(url: str) -> None:
    look_at_store(url)
