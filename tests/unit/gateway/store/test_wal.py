"""Parser of write-ahead logs: it reads the frames that SQLite reads."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.store.sqlite.damage import judge
from gateway.store.sqlite.wal import HEADER, read_frames, read_header, read_index
from tests.unit.gateway.store.logs import Files, begun_anew, rolled_back, summed, transactions, unfinished, written


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A log with everything in it: more frames than are summed at once, an older life behind, a tail without an end."""
    older = (transactions(*[3] * 60), begun_anew)
    newer = (transactions(2, 1, 30, 1, 1, 5, 40), rolled_back(30), transactions(1, 2), unfinished(20))
    return written(tmp_path_factory.mktemp("wal") / "made", *older, *newer)


def kept(log: bytes) -> int:
    return judge(log, b"").kept


def test_every_committed_frame_is_found(files: Files, tmp_path: Path) -> None:
    header, index = read_header(files.log), read_index(files.index)
    assert header is not None
    assert index is not None
    assert 64 < index.frames == kept(files.log) == files.taken(tmp_path) < files.frames
    assert index.salts == header.salts
    frames = read_frames(files.log, header)
    assert len(frames) == files.frames
    assert not frames[-1].ours, "frames of an earlier life stay behind"


def test_a_bad_frame_ends_it_where_it_ends_for_sqlite(files: Files, tmp_path: Path) -> None:
    dice = random.Random(6)
    for n in range(60):
        place = dice.randrange(HEADER, files.end_of(100))
        folder = tmp_path / str(n)
        folder.mkdir()
        damaged = files.flipped(place, dice.choice((1, 2, 600)))
        assert kept(damaged.log) == damaged.taken(folder), f"flipped at {place}"


def test_a_short_log_ends_where_it_ends_for_sqlite(files: Files, tmp_path: Path) -> None:
    for n, length in enumerate((0, 20, HEADER, 3000, files.end_of(1), files.end_of(50) + 7, files.end_of(50) - 7)):
        folder = tmp_path / str(n)
        folder.mkdir()
        short = replace(files, log=files.log[:length])
        assert kept(short.log) == short.taken(folder), f"cut at {length}"


@pytest.mark.parametrize("place", range(0, HEADER, 4))
def test_a_log_with_a_bad_header_is_empty_for_sqlite(files: Files, tmp_path: Path, place: int) -> None:
    damaged = files.flipped(place + 3)
    assert read_header(damaged.log) is None
    if place != 4:  # another version of the format: SQLite says so itself
        assert damaged.taken(tmp_path) == 0


@pytest.mark.parametrize("end", ["little", "big"])
@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_other_machines_logs(tmp_path: Path, end: str, page: int) -> None:
    """Checksums may read numbers from either end; pages have many sizes."""
    made = written(tmp_path / "made", transactions(1, 20, 3), page=page)
    log = summed(made.log, end)
    assert kept(log) == replace(made, log=log).taken(tmp_path) == len(log[HEADER:]) // (24 + page)


@pytest.mark.parametrize("place", [12, 16, 20, 24, 33, 41, 48, 70, 95])
def test_an_index_that_is_not_whole_says_nothing(files: Files, place: int) -> None:
    index = bytearray(files.index)
    index[place] ^= 0xFF
    assert read_index(bytes(index)) is None


@pytest.mark.parametrize("index", [b"", b"\0" * 200, b"\xff" * 32768, b"junk" * 30])
def test_junk_is_no_index(index: bytes) -> None:
    assert read_index(index) is None
