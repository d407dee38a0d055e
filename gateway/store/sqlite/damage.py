"""Check for committed transactions that SQLite would drop when it opens the store. Runs at start, before that.

At a bad frame in the write-ahead log SQLite silently drops that frame and all after it. After a power cut that is
right: the last transaction was not acknowledged, and only a part of it has reached the disk. After a bad disk, or a
change by hand, acknowledged messages would be lost.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gateway.errors import StoreDamaged, StoreError
from gateway.store.sqlite.wal import (
    HEADER,
    INDEX,
    OF_A_FRAME,
    USUAL_PAGE,
    Bytes,
    Frame,
    Header,
    WalIndex,
    read_frames,
    read_header,
    read_index,
)
from gateway.system.logging_setup import log as log_of

SECTOR = 512
"""Bytes that any disk writes atomically."""


class Tail(StrEnum):
    """State of the end of a log."""

    WHOLE = "whole"
    """No committed transaction is dropped: frames after the end, if any, belong to an unfinished one."""
    TORN = "torn"
    """One transaction's end lies behind a bad frame: the one being written at the power cut."""
    DAMAGED = "damaged"
    """More is behind a bad frame, or missing, than a power cut explains: it was acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageFinding:
    """Result of opening a log, as SQLite would read it."""

    tail: Tail
    kept: int
    """Frames that SQLite reads, in whole transactions."""
    lost: int = 0
    """Committed frames after them, as far as can be determined."""
    commits: int = 0
    """Transaction ends still readable among the lost frames."""


def refuse_damaged(path: str) -> None:
    """Raise `StoreDamaged` when opening the store would drop committed transactions. Changes nothing.

    The caller holds the store's lock and has none of its files open: closing one would release SQLite's locks on it.
    """
    log = Path(f"{path}-wal")
    try:
        # The index first: a concurrent writer extends the log before the index.
        index = _beginning(Path(f"{path}-shm"), INDEX)
        if Path(path).stat().st_size == 0 and _beginning(log, HEADER):
            raise StoreDamaged(f"The store {path} is damaged: it is empty, but its write-ahead log {log.name} is not.")
        found = _look(log, index)
    except OSError as error:
        raise StoreError(
            f"The store's files beside {path} cannot be read: {error.strerror}.",
            cure="Give the daemon's user the right to read and write them.",
        ) from error
    if found.tail is Tail.DAMAGED:
        raise StoreDamaged(_describe(log, found))
    if found.tail is Tail.TORN:
        log_of("store").warning(
            "left out a transaction that was not wholly written when the machine went down", log=log.name
        )


def judge(log: Bytes, index: bytes) -> DamageFinding:
    """Return the finding about a log: the part that SQLite would read, and the fate of the rest. Pure."""
    header, known = read_header(log), read_index(index)
    if header is None:
        return _without_header(log, known)
    frames = read_frames(log, header)
    sound = next((n for n, frame in enumerate(frames) if not (frame.ours and frame.follows)), len(frames))
    kept = max((n + 1 for n in range(sound) if frames[n].commits), default=0)
    if known is not None and known.salts == header.salts:
        if known.frames > kept:
            ends = [n for n in _ends(frames, sound, header) if n < known.frames]
            return DamageFinding(tail=Tail.DAMAGED, kept=kept, lost=known.frames - kept, commits=len(ends))
        # At most the last commit is not in the index yet. Then the index is current and nothing is missing: ends of
        # transactions behind it belong to failed commits that shorter ones overwrote.
        if sum(frame.commits for frame in frames[known.frames : kept]) <= 1:
            return DamageFinding(tail=Tail.WHOLE, kept=kept)
    return _behind(frames, sound, kept, header)


def _without_header(log: Bytes, known: WalIndex | None) -> DamageFinding:
    """Judge a log that SQLite takes for empty. A header is never torn: it is one sector, synced before any frame."""
    missing = known.frames - known.moved if known else 0
    held = (len(log) - HEADER) // (OF_A_FRAME + USUAL_PAGE) if log[:].strip(b"\0") else 0
    lost = max(missing, held, 0)
    return DamageFinding(tail=Tail.DAMAGED if lost else Tail.WHOLE, kept=0, lost=lost)


def _behind(frames: list[Frame], sound: int, kept: int, header: Header) -> DamageFinding:
    """Judge by the frames alone: the index is missing or outdated."""
    ends = _ends(frames, sound, header)
    if not ends:
        return DamageFinding(tail=Tail.WHOLE, kept=kept)
    # Each commit is synced before the next one begins, so a power cut tears one transaction, which has one end.
    # No frame is appended after an end that failed.
    after = [n for n in ends if n + 1 < len(frames) and frames[n + 1].ours and frames[n + 1].follows]
    tail = Tail.DAMAGED if len(ends) > 1 or after else Tail.TORN
    return DamageFinding(tail=tail, kept=kept, lost=ends[-1] + 1 - kept, commits=len(ends))


def _ends(frames: list[Frame], sound: int, header: Header) -> list[int]:
    """Return the places of frames behind the sound ones that are marked as ends of this log's transactions."""
    size = OF_A_FRAME + header.page
    return [
        n
        for n, frame in enumerate(frames[sound:], sound)
        # Where a sector begins inside the frame header, a torn write may combine our salts with an older commit mark.
        if frame.ours and frame.commits and (HEADER + n * size + 8) % SECTOR
    ]


def _look(log: Path, index: bytes) -> DamageFinding:
    if not _beginning(log, 1):
        return judge(b"", index)
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return judge(content, index)


def _beginning(file: Path, count: int) -> bytes:
    """Return the first bytes of a file; empty when it is absent."""
    try:
        with file.open("rb") as opened:
            return opened.read(count)
    except FileNotFoundError:
        return b""


def _describe(log: Path, found: DamageFinding) -> str:
    taken = f"only its first {found.kept} frames" if found.kept else "nothing of it"
    return (
        f"The store's write-ahead log {log} is damaged: {taken} can be read, and {found.lost} more, "
        f"with at least {max(1, found.commits)} committed transactions, lie behind the damage or are missing."
    )
