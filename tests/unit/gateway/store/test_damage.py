"""Frames behind a bad one: none, a transaction torn by a power cut, or acknowledged ones."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import StoreDamaged, StoreError
from gateway.store.sqlite import open_sqlite
from gateway.store.sqlite.damage import DamageFinding, Tail, judge, refuse_damaged
from gateway.store.sqlite.wal import HEADER
from tests.support.clock import FakeClock
from tests.support.proof import times
from tests.unit.gateway.store.logs import (
    SIZE,
    Files,
    begun_anew,
    rolled_back,
    summed,
    transactions,
    unfinished,
    written,
)

SECTOR = 512
JUNK = b"\xa5" * 32768
NO_INDEX = b""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A log of fifty transactions and nothing else."""
    return written(tmp_path_factory.mktemp("damage") / "made", transactions(*[1, 4] * 25))


def last_transaction(files: Files) -> int:
    """Return the number of frames before the last transaction."""
    return judge(files.log[:-SIZE], NO_INDEX).kept


# --- what is not damage ---------------------------------------------------------------------


HONEST = {
    "nothing at all": (),
    "whole": (transactions(*[2] * 20),),
    "an unfinished transaction": (transactions(*[2] * 20), unfinished(50)),
    "one that was taken back": (transactions(*[2] * 20), rolled_back(50)),
    "one that was taken back and written over": (transactions(*[2] * 20), rolled_back(50), transactions(1, 2)),
    "over a longer one": (transactions(*[2] * 60), begun_anew, transactions(*[2] * 20)),
    "over one that was taken back": (rolled_back(60), begun_anew, transactions(*[2] * 20), unfinished(50)),
    "begun anew, and not written yet": (transactions(*[2] * 60), begun_anew),
    "all at once": (
        transactions(*[2] * 60),
        begun_anew,
        transactions(1),
        rolled_back(90),
        transactions(40),
        rolled_back(30),
        transactions(1),
        unfinished(20),
    ),
}


@pytest.mark.parametrize("index", ["whole", "gone", "junk"])
@pytest.mark.parametrize("work", HONEST.values(), ids=HONEST.keys())
def test_log_left_by_a_kill_is_whole(tmp_path: Path, work: tuple[Callable[..., None], ...], index: str) -> None:
    files = written(tmp_path / "made", *work)
    known = {"whole": files.index, "gone": NO_INDEX, "junk": JUNK}[index]
    assert judge(files.log, known) == DamageFinding(tail=Tail.WHOLE, kept=files.taken(tmp_path))


def test_a_commit_that_the_index_does_not_have_yet_is_whole(tmp_path: Path) -> None:
    """Killed between the two."""
    before = written(tmp_path / "before", transactions(1, 2))
    log = before.log + written(tmp_path / "after", transactions(1, 2, 3)).log[len(before.log) :]
    log = resalted(log, before)
    assert judge(log, before.index) == DamageFinding(tail=Tail.WHOLE, kept=(len(log) - HEADER) // SIZE)


def resalted(log: bytes, like: Files) -> bytes:
    """The log with another one's salts throughout."""
    salts = like.log[16:24]
    frames = [log[place : place + SIZE] for place in range(HEADER, len(log), SIZE)]
    return summed(like.log[:HEADER] + b"".join(one[:8] + salts + one[16:] for one in frames), "little")


@pytest.mark.parametrize("behind", ["older frames", "nothing", "one that was taken back"])
def test_a_power_cut_tears_one_transaction(tmp_path: Path, behind: str) -> None:
    """Each sector that was not synced is there or not. Whatever comes of it is whole or torn, never damaged."""
    tail = rolled_back(60) if behind == "one that was taken back" else transactions()
    before, dice = written(tmp_path / "before", transactions(*[2] * 20), tail), random.Random(7)
    kept = judge(before.log, NO_INDEX).kept
    # The last transaction in the same log, by the book: 50 frames, the last of which ends it.
    frames = [frame(n + 1, 256 if n == 49 else 0, before.log[16:24], dice.randbytes(SIZE - 24)) for n in range(50)]
    wanted = summed(before.log[: before.end_of(kept)] + b"".join(frames), "little", kept)
    assert judge(wanted, NO_INDEX) == DamageFinding(tail=Tail.WHOLE, kept=kept + 50)
    old = before.log
    if behind == "older frames":
        # Each ends a transaction, and one of them lies so that a sector begins behind what says so.
        assert any((before.end_of(kept + n) + 8) % SECTOR == 0 for n in range(49))
        old = old[: before.end_of(kept)] + frame(1, 256, b"earlier!", bytes(SIZE - 24)) * 50
    old, found = old.ljust(len(wanted), b"\0"), set[Tail]()
    wanted += old[len(wanted) :]
    for chance in (0.01, 0.5, 0.99) * 30:
        places = range(0, len(wanted), SECTOR)
        log = b"".join((old if dice.random() < chance else wanted)[place : place + SECTOR] for place in places)
        finding = judge(log, NO_INDEX)
        found.add(finding.tail)
        assert finding.kept in (kept, kept + 50)
    assert found == {Tail.WHOLE, Tail.TORN}


def frame(page: int, pages: int, salts: bytes, content: bytes) -> bytes:
    """One without its checksum; with `pages`, it ends a transaction."""
    return page.to_bytes(4, "big") + pages.to_bytes(4, "big") + salts + bytes(8) + content


def test_a_log_of_nothing_but_zeros_is_empty() -> None:
    """A power cut can leave a new file so, which has its length and nothing else."""
    assert judge(b"\0" * 8272, NO_INDEX) == DamageFinding(tail=Tail.WHOLE, kept=0)
    assert judge(b"", NO_INDEX) == DamageFinding(tail=Tail.WHOLE, kept=0)


def test_failed_commits_are_not_missed_while_the_index_knows(tmp_path: Path, made: Files) -> None:
    """A disk that cannot sync leaves whole transactions behind, which SQLite took back and writes over."""
    committed = written(tmp_path / "made", transactions(*[1, 4] * 4))
    failed = resalted(made.log, committed)[len(committed.log) :]
    # What they followed was written over, so the first of them follows nothing any more.
    left = replace(committed, log=committed.log + failed).flipped(len(committed.log) + 16)
    assert judge(left.log, committed.index) == DamageFinding(tail=Tail.WHOLE, kept=committed.frames)
    assert judge(left.log, NO_INDEX).tail is Tail.DAMAGED


def test_an_index_of_an_earlier_time_is_not_believed(tmp_path: Path, made: Files) -> None:
    """A power cut may leave one: it knows less than there is, or other salts."""
    early = written(tmp_path / "early", transactions(*[1, 4] * 2))
    log = resalted(made.log, early)
    assert judge(log, early.index).kept == made.frames
    damaged = replace(made, log=log).flipped(made.end_of(60) + 100)
    assert judge(damaged.log, early.index).tail is Tail.DAMAGED
    assert judge(made.log, early.index) == DamageFinding(tail=Tail.WHOLE, kept=made.frames)


# --- what is --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["whole", "gone", "junk"])
@pytest.mark.parametrize("count", [1, 600, 20_000])
@pytest.mark.parametrize("percent", [0.1, 10, 30, 60, 90])
def test_damage_among_what_was_committed(made: Files, percent: float, count: int, index: str) -> None:
    known = {"whole": made.index, "gone": NO_INDEX, "junk": JUNK}[index]
    damaged = made.flipped(HEADER + int(len(made.log) * percent / 100), count)
    finding = judge(damaged.log, known)
    assert finding.tail is Tail.DAMAGED
    assert finding.kept + finding.lost == made.frames
    assert finding.commits > 1


def test_any_flip_before_the_last_transaction_is_reported(made: Files) -> None:
    dice, last = random.Random(8), last_transaction(made)
    for _ in range(times(60, 60, small=20)):
        place = dice.randrange(made.end_of(last))
        assert judge(made.flipped(place).log, NO_INDEX).tail is not Tail.WHOLE, f"at {place}"
        assert judge(made.flipped(place).log, made.index).tail is Tail.DAMAGED, f"at {place}"


def test_damage_in_the_last_transaction_is_found_by_the_index(made: Files) -> None:
    """Without it nobody can tell damage from a power cut: the store opens, and the log says what was left out."""
    last = last_transaction(made)
    damaged = made.flipped(made.end_of(last) + 1000)
    lost = made.frames - last
    assert judge(damaged.log, made.index) == DamageFinding(tail=Tail.DAMAGED, kept=last, lost=lost, commits=1)
    assert judge(damaged.log, NO_INDEX) == DamageFinding(tail=Tail.TORN, kept=last, lost=lost, commits=1)


def test_frames_after_a_commit_prove_its_success(tmp_path: Path) -> None:
    """One end only lies behind, but the next transaction had begun."""
    made = written(tmp_path / "made", transactions(2, 2, 4), unfinished(60))
    committed = judge(made.log, NO_INDEX).kept
    before = max(n for n in range(committed) if judge(made.log[: made.end_of(n)], NO_INDEX).kept == n)
    damaged = made.flipped(made.end_of(before) + 1000)
    finding = judge(damaged.log, NO_INDEX)
    assert (finding.tail, finding.kept, finding.commits) == (Tail.DAMAGED, before, 1)


@pytest.mark.parametrize("frames", [0, 1, 30, 60])
@pytest.mark.parametrize("more", [0, 7, 3000])
def test_a_log_that_was_cut_short_is_reported_by_its_index(made: Files, frames: int, more: int) -> None:
    short = made.log[: made.end_of(frames) + more]
    finding = judge(short, made.index)
    assert finding.tail is Tail.DAMAGED
    assert finding.kept + finding.lost == made.frames
    assert judge(short, NO_INDEX).tail is Tail.WHOLE, "nothing else remembers what was there"


@pytest.mark.parametrize("log", [b"", b"\0" * 5000])
def test_a_log_that_is_gone_is_reported_by_its_index(made: Files, log: bytes) -> None:
    assert judge(log, made.index) == DamageFinding(tail=Tail.DAMAGED, kept=0, lost=made.frames)


def test_missing_log_is_no_damage_when_all_of_it_was_moved(tmp_path: Path) -> None:
    def moved(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    made = written(tmp_path / "made", transactions(*[2] * 20), moved)
    assert judge(b"", made.index) == DamageFinding(tail=Tail.WHOLE, kept=0)


@pytest.mark.parametrize("place", [0, 8, 16, 20, 24, 31])
@pytest.mark.parametrize("count", [1, 600])
def test_a_bad_header(made: Files, place: int, count: int) -> None:
    for index in (made.index, NO_INDEX):
        assert judge(made.flipped(place, count).log, index) == DamageFinding(
            tail=Tail.DAMAGED, kept=0, lost=made.frames
        )
    zeros = b"\0" * 4096 + made.log[4096:]
    assert judge(zeros, NO_INDEX).tail is Tail.DAMAGED


# --- what is said of it ---------------------------------------------------------------------


def test_damaged_store_is_refused_with_a_reason_and_unchanged(made: Files, tmp_path: Path) -> None:
    damaged = made.flipped(made.end_of(60) + 100)
    path = damaged.put(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreDamaged) as refused:
            refuse_damaged(str(path))
        finding = judge(damaged.log, damaged.index)
        said = str(refused.value)
        assert f"{path}-wal" in said
        assert f"only its first {finding.kept} frames" in said
        assert f"{finding.lost} more" in said
        assert f"at least {finding.commits} committed" in said
        assert "copy the state folder away" in said
        assert "deploy/RUNBOOK.md" in said
    names = ("dragoman.db", "dragoman.db-wal", "dragoman.db-shm")
    left = [(tmp_path / name).read_bytes() for name in names]
    assert left == [damaged.database, damaged.log, damaged.index]


def test_such_a_store_does_not_open(made: Files, tmp_path: Path) -> None:
    path = made.flipped(made.end_of(60) + 100).put(tmp_path)
    with pytest.raises(StoreDamaged):
        open_sqlite(str(path), FakeClock())


@pytest.mark.parametrize("database", [b"", None], ids=["empty", "whole"])
def test_a_log_without_its_database_is_refused(made: Files, tmp_path: Path, database: bytes | None) -> None:
    """SQLite would delete the log: an empty database has none."""
    path = (made if database is None else replace(made, database=database)).put(tmp_path)
    if database is None:
        refuse_damaged(str(path))
        return
    with pytest.raises(StoreDamaged, match=r"damaged: it is empty, but its write-ahead log dragoman\.db-wal is not"):
        refuse_damaged(str(path))
    assert (tmp_path / "dragoman.db-wal").read_bytes() == made.log


def test_a_torn_end_is_reported_in_the_log(made: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = replace(made.flipped(made.end_of(last_transaction(made)) + 1000), index=NO_INDEX)
    refuse_damaged(str(torn.put(tmp_path)))
    said = capsys.readouterr()
    assert "left out a transaction that was not wholly written" in said.out + said.err
    assert "dragoman.db-wal" in said.out + said.err


@pytest.mark.parametrize("which", ["-wal", "-shm"])
def test_a_file_beside_it_that_cannot_be_read_is_reported(made: Files, tmp_path: Path, which: str) -> None:
    path = made.put(tmp_path)
    Path(f"{path}{which}").unlink()
    Path(f"{path}{which}").mkdir()
    with pytest.raises(StoreError) as refused:
        refuse_damaged(str(path))
    assert refused.value.message == f"The store's files beside {path} cannot be read: Is a directory."
    assert refused.value.cure == "Give the daemon's user the right to read and write them."
