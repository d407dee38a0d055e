"""`dragoman check` reports the errors of a start, in the same words, and changes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from config.load import Loaded, load
from gateway.app.preflight import refusals
from gateway.errors import StoreError, StoreInUse
from gateway.store import check_store, open_store
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


def a_pipe(store: Path) -> None:
    os.mkfifo(store)


def locked_by_a_folder(store: Path) -> None:
    store.with_name("dragoman.db.lock").mkdir()


def in_a_circle(store: Path) -> None:
    store.symlink_to(store)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (random, "is no SQLite database."),
        (folder, "cannot be opened: Is a directory."),
        (linked, "has another name: it is a hard link"),
        (newer, "has schema 99; this version of Dragoman knows"),
        (foreign, "is the database of another program."),
        (a_pipe, "is not a file."),
        (locked_by_a_folder, "dragoman.db.lock cannot be opened: Is a directory."),
        (in_a_circle, "cannot be opened: Too many levels of symbolic links."),
    ],
)
def test_foreign_store_is_refused(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    store = tmp_path / "dragoman.db"
    make(store)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StoreError) as looked:
        check_store(f"sqlite://{store}")
    assert sorted(os.listdir(tmp_path)) == before
    with pytest.raises(StoreError) as opened:
        open_store(f"sqlite://{store}", FakeClock())
    assert says in looked.value.message
    assert (looked.value.message, looked.value.cure) == (opened.value.message, opened.value.cure)


@pytest.mark.parametrize("url", ["sqlite:///no/such/dragoman.db", "memory://"])
def test_missing_store_is_not_created(url: str) -> None:
    check_store(url)


async def test_one_behind_a_link_is_made_where_it_leads(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/dragoman.db"
    (tmp_path / "dragoman.db").symlink_to(tmp_path / "disk" / "x.db")
    check_store(url)
    assert os.listdir(tmp_path) == ["dragoman.db"]
    await open_store(url, FakeClock()).close()
    assert (tmp_path / "disk" / "x.db").is_file()


async def test_a_lock_is_not_taken_from_its_holder(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/dragoman.db"
    store = open_store(url, FakeClock())
    check_store(url)
    with pytest.raises(StoreInUse):
        open_store(url, FakeClock())
    await store.close()


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Return defaults with an empty state folder."""
    (tmp_path / "state").mkdir(mode=0o700)
    return load(None, tmp_path / "state", {"HOME": str(tmp_path)}, {})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("state.key", "is not a file. Move it away, and put the key of a backup there."),
        ("control.sock", "is in the way: it is not a socket. Move it away."),
        ("workspaces", "is not a folder: tools cannot work there. Remove what stands there."),
        ("outputs", "is not a folder: tools cannot work there. Remove what stands there."),
        ("dragoman.db", "is not a file. Let store.url name a file of its own."),
        ("dragoman.db.lock", ""),
    ],
)
def test_a_pipe_in_the_place_of_something_is_reported_at_once(loaded: Loaded, name: str, says: str) -> None:
    assert list(refusals(loaded)) == []
    os.mkfifo(loaded.state / name)
    assert [str(one) for one in refusals(loaded)] == ([f"{told(loaded, name)} {says}"] if says else [])
    assert os.listdir(loaded.state) == [name]


def test_a_key_that_is_not_there_is_not_made(loaded: Loaded, tmp_path: Path) -> None:
    (loaded.state / "state.key").symlink_to(tmp_path / "nowhere")
    assert list(refusals(loaded)) == []
    assert os.readlink(loaded.state / "state.key") == str(tmp_path / "nowhere")


def told(loaded: Loaded, name: str) -> str:
    path = str(loaded.state / name)
    return f"The store {path}" if name == "dragoman.db" else path


def test_folders_of_tools_may_be_links_to_another_disk(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (loaded.state / "workspaces").symlink_to(tmp_path / "disk")
    assert list(refusals(loaded)) == []
    (tmp_path / "disk").rmdir()
    (refused,) = refusals(loaded)
    assert "workspaces is not a folder" in refused.message
