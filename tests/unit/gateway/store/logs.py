"""Write-ahead logs written by SQLite, as a kill leaves them: bytes to damage, and the frames SQLite then reads."""

from __future__ import annotations

import random
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.store.sqlite.wal import HEADER, OF_A_FRAME, checksum

PAGE = 4096
SIZE = OF_A_FRAME + PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The three files of a store that was killed."""

    database: bytes
    log: bytes
    index: bytes

    @property
    def frames(self) -> int:
        """Return the number of frames in the log."""
        return (len(self.log) - HEADER) // SIZE

    def end_of(self, frame: int) -> int:
        """Return the offset in the log after so many frames."""
        return HEADER + frame * SIZE

    def flipped(self, place: int, count: int = 1) -> Files:
        """Return a copy with some bytes of the log inverted."""
        turned = bytes(byte ^ 0xFF for byte in self.log[place : place + count])
        return replace(self, log=self.log[:place] + turned + self.log[place + count :])

    def put(self, folder: Path) -> Path:
        """Write the files into a folder; return the database's path."""
        path = folder / "dragoman.db"
        path.write_bytes(self.database)
        path.with_name("dragoman.db-wal").write_bytes(self.log)
        path.with_name("dragoman.db-shm").write_bytes(self.index)
        return path

    def taken(self, folder: Path) -> int:
        """Return how many frames SQLite reads."""
        with closing(sqlite3.connect(self.put(folder), isolation_level=None)) as db:
            _, frames, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return int(frames)


Work = Callable[[sqlite3.Connection], None]


def written(folder: Path, *work: Work, page: int = PAGE) -> Files:
    """Have SQLite write a log and copy its files while they are open, as a kill would leave them."""
    folder.mkdir()
    path = folder / "made.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (f"page_size = {page}", "journal_mode = WAL", "synchronous = OFF", "wal_autocheckpoint = 0"):
            db.execute(f"PRAGMA {statement}").fetchall()
        db.execute("CREATE TABLE things (n INTEGER PRIMARY KEY, text)")
        db.execute("PRAGMA cache_spill = 10")
        db.execute("PRAGMA cache_size = 10")
        for one in work:
            one(db)
        names = ("made.db", "made.db-wal", "made.db-shm")
        database, log, index = [(folder / name).read_bytes() for name in names]
        if db.in_transaction:
            db.execute("ROLLBACK")
    return Files(database=database, log=log, index=index)


def transactions(*pages: int) -> Work:
    """Commit transactions of about so many pages each."""

    def work(db: sqlite3.Connection) -> None:
        for count in pages:
            db.execute("BEGIN")
            _write(db, count)
            db.execute("COMMIT")

    return work


def unfinished(pages: int) -> Work:
    """Begin a transaction too large for SQLite's cache, so that a part of it is in the log already."""

    def work(db: sqlite3.Connection) -> None:
        db.execute("BEGIN")
        _write(db, pages)

    return work


def rolled_back(pages: int) -> Work:
    """Roll back such a transaction. Its frames stay in the log until overwritten."""

    def work(db: sqlite3.Connection) -> None:
        unfinished(pages)(db)
        db.execute("ROLLBACK")

    return work


def begun_anew(db: sqlite3.Connection) -> None:
    """Checkpoint all, so that the next transaction overwrites the log's beginning."""
    db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def _write(db: sqlite3.Connection, pages: int) -> None:
    for _ in range(pages):
        db.execute("INSERT INTO things (text) VALUES (?)", (random.Random(pages).randbytes(PAGE - 200).hex()[:4000],))


def summed(log: bytes, end: str, first: int = 0) -> bytes:
    """Return the log with checksums of header and frames recomputed number by number: slow, by the specification.

    `end`: which end of a number comes first, `little` or `big`. Frames before the place `first` stay as they are.
    """
    order = "big" if end == "big" else "little"
    magic = 0x377F0682 + (order == "big")
    page = struct.unpack_from(">I", log, 8)[0]
    head = struct.pack(">I", magic) + log[4 : HEADER - 8]
    sums = checksum(head, order)
    made = head + struct.pack(">II", *sums)
    size = OF_A_FRAME + page
    for place in range(HEADER, len(log) - size + 1, size):
        frame = log[place : place + size]
        if (place - HEADER) // size < first:
            made += frame
            sums = struct.unpack_from(">II", frame, 16)
            continue
        sums = checksum(frame[:8] + frame[OF_A_FRAME:], order, sums)
        made += frame[:16] + struct.pack(">II", *sums) + frame[OF_A_FRAME:]
    return made
