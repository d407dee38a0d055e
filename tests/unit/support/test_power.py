"""The disk that forgets: what it records is what SQLite does, what it keeps is what was synced, and it does forget."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.power import Disk, Fate, Record, read, watched

PROGRAM = """
import os, sqlite3, sys
path, record, synchronous = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute(f"PRAGMA synchronous = {synchronous}")
db.execute("CREATE TABLE said (n)")
for n in range(20):
    db.execute("INSERT INTO said VALUES (?)", (n,))
    print(n, os.stat(record).st_size, flush=True)
os.kill(os.getpid(), 9)
"""


def done(disk: Disk, what: str, name: str = "a", number: int = 0, content: bytes = b"") -> None:
    disk.do(Record(what=what, name=name, number=number, content=content, end=0))


def left(disk: Disk, fate: Fate = Fate.LOST, seed: int = 1) -> dict[str, bytes]:
    return disk.after_a_cut(fate, random.Random(seed))


@pytest.fixture
def disk() -> Disk:
    """With a file in it."""
    disk = Disk()
    done(disk, "open")
    done(disk, "write", content=b"one")
    done(disk, "sync")
    return disk


def test_unsynced_write_is_forgotten(disk: Disk) -> None:
    done(disk, "write", number=3, content=b"two")
    assert left(disk) == {"a": b"one"}
    assert left(disk, Fate.KEPT) == {"a": b"onetwo"}
    done(disk, "truncate", number=2)
    assert left(disk) == {"a": b"one"}
    assert left(disk, Fate.KEPT) == {"a": b"on"}
    done(disk, "sync")
    assert left(disk) == {"a": b"on"}


def test_a_write_is_torn_at_sectors_and_leaves_zeros_before_it(disk: Disk) -> None:
    done(disk, "write", number=500, content=b"x" * 1_000)
    found = {left(disk, Fate.TORN, seed)["a"] for seed in range(50)}
    pieces = {content.ljust(1_500, b".") for content in found}
    sectors = {(one[500:512], one[512:1_024], one[1_024:]) for one in pieces}
    assert len(sectors) == 8, "each of its three sectors is there or not"
    assert all(content.startswith(b"one") for content in found)
    assert b"one" + bytes(1_021) + b"x" * 476 in found


def test_names_are_synced_with_a_journals_first_sync(disk: Disk) -> None:
    done(disk, "create", "b")
    done(disk, "write", "b", content=b"new")
    assert left(disk) == {"a": b"one"}
    assert left(disk, Fate.KEPT) == {"a": b"one", "b": b"new"}
    done(disk, "sync", "b")
    assert left(disk) == {"a": b"one", "b": b"new"}
    done(disk, "delete", "b")
    assert left(disk) == {"a": b"one", "b": b"new"}
    assert left(disk, Fate.KEPT) == {"a": b"one"}
    done(disk, "create", "c")
    done(disk, "sync", "c")
    assert left(disk) == {"a": b"one", "c": b""}
    done(disk, "delete", "c", number=1)
    assert left(disk) == {"a": b"one"}


def test_a_name_that_is_made_again_is_another_file(disk: Disk) -> None:
    done(disk, "create", "b")
    done(disk, "write", "b", content=b"old")
    done(disk, "sync", "b")
    done(disk, "delete", "b")
    done(disk, "create", "b")
    done(disk, "write", "b", content=b"n")
    assert left(disk)["b"] == b"old"
    assert {left(disk, Fate.TORN, seed).get("b") for seed in range(50)} == {b"old", None, b"", b"n"}


@pytest.mark.parametrize(("synchronous", "keeps"), [("FULL", True), ("NORMAL", False), ("OFF", False)])
def test_a_program_is_watched(tmp_path: Path, synchronous: str, keeps: bool) -> None:
    """All that it did is recorded, up to its death; and only one that syncs keeps its word."""
    path, record = tmp_path / "made.db", tmp_path / "recording"
    command = [sys.executable, "-c", PROGRAM, str(path), str(record), synchronous]
    child = subprocess.run(command, env=watched(os.environ, record), capture_output=True, text=True, check=False)
    assert child.returncode == -9, child.stderr
    said = [tuple(map(int, line.split())) for line in child.stdout.splitlines()]
    assert len(said) == 20
    disk, kept, records = Disk(), 0, iter(read(record.read_bytes()))
    for n, at in said:
        for one in records:
            disk.do(one)
            if one.end >= at:
                break
        kept += n in rows(left(disk), tmp_path / "cut")
    assert (kept == 20) is keeps
    assert left(disk, Fate.KEPT)["made.db-wal"] == path.with_name("made.db-wal").read_bytes()


def rows(files: dict[str, bytes], folder: Path) -> set[int]:
    """Return the rows in the database after a cut."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with closing(sqlite3.connect(folder / "made.db")) as db:
        if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return set()
        return {n for (n,) in db.execute("SELECT n FROM said")}
