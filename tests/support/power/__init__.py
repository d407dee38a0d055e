"""A disk that forgets what was not synced: recordings of a process's writes, and what a power cut leaves of them.

`sitecustomize`, run by the process that is watched, makes a recording. `Disk` plays it up to any place and says what
files are there when the power goes: what was synced, and of the rest whatever `Fate` decides, sector by sector.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent
RECORD = "DRAGOMAN_TEST_RECORD"
"""The environment's name for the file to record into."""
SECTOR = 512


def watched(environment: Mapping[str, str], record: Path) -> dict[str, str]:
    """The environment of a process that is to be watched."""
    path = os.pathsep.join(filter(None, (str(FOLDER), environment.get("PYTHONPATH"))))
    return {**environment, "PYTHONPATH": path, RECORD: str(record)}


class Fate(StrEnum):
    """Outcome of unsynced writes when the power goes."""

    LOST = "lost"
    """None of them reached the disk."""
    KEPT = "kept"
    """All did."""
    TORN = "torn"
    """Each sector did or did not, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Something that was done to a file."""

    what: str
    name: str
    number: int
    """The place of a write, the size of a cut; for a removal, whether the folder was synced with it."""
    content: bytes
    end: int
    """Offset at which the recording continues."""


def read(recording: bytes) -> Iterator[Record]:
    """Yield what was recorded, in order. A last record that is not whole, of a killed process, is left out."""
    place = 0
    while (line_end := recording.find(b"\n", place)) >= 0:
        what, number, count, name = recording[place:line_end].decode().split(" ", 3)
        place = line_end + 1 + int(count)
        if place <= len(recording):
            content = recording[line_end + 1 : place]
            yield Record(what=what, name=name, number=int(number), content=content, end=place)


Change = tuple[int, bytes | None]
"""A write at a place, or a cut to a size."""


@dataclass(slots=True)
class _Stored:
    """A file, whatever its name: what is on the disk for certain, and what was done since, in order."""

    certain: bytearray = field(default_factory=bytearray)
    since: list[Change] = field(default_factory=list[Change])
    synced_folder: bool = True
    """True if the folder was synced since its name was made: SQLite does so with a journal's first sync."""

    def left(self, fate: Fate, dice: Random) -> bytes:
        content = bytearray(self.certain)
        for place, piece in self.since:
            if piece is None and fate is not Fate.LOST and (fate is Fate.KEPT or dice.random() < 0.5):
                _cut(content, place)
            elif piece is not None:
                for at, sector in _sectors(place, piece):
                    if fate is Fate.KEPT or (fate is Fate.TORN and dice.random() < 0.5):
                        _write(content, at, sector)
        return bytes(content)


class Disk:
    """Files of a recording as they are on the disk. Records apply in order, with a power cut at any point."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._names: dict[str, _Stored] = {}
        self._certain: dict[str, _Stored] = {}
        self._folder: list[tuple[str, _Stored | None]] = []
        """Names made and removed since the folder was synced, in order."""

    def do(self, record: Record) -> None:
        """Do what was done."""
        name = record.name
        if record.what == "create":
            self._names[name] = _Stored(synced_folder=False)
            self._folder.append((name, self._names[name]))
        elif record.what == "open":
            if name not in self._names:  # made by somebody else, empty
                self._names[name] = self._certain[name] = _Stored()
        elif record.what == "write":
            self._names[name].since.append((record.number, record.content))
        elif record.what == "truncate":
            self._names[name].since.append((record.number, None))
        elif record.what == "delete":
            self._names.pop(name, None)
            self._folder.append((name, None))
            if record.number:
                self._sync_folder()
        elif record.what == "sync":
            self._sync(self._names[name])
        else:
            raise ValueError(f"a record of no kind: {record.what}")

    def after_a_cut(self, fate: Fate, dice: Random) -> dict[str, bytes]:
        """Return the files that are there when the power comes back, by name."""
        names = dict(self._certain)
        # Folders are journalled: what was done to one is kept up to some moment.
        kept = {Fate.LOST: 0, Fate.KEPT: len(self._folder), Fate.TORN: dice.randint(0, len(self._folder))}[fate]
        for name, stored in self._folder[:kept]:
            if stored is None:
                names.pop(name, None)
            else:
                names[name] = stored
        return {name: stored.left(fate, dice) for name, stored in names.items()}

    def _sync(self, stored: _Stored) -> None:
        for place, piece in stored.since:
            if piece is None:
                _cut(stored.certain, place)
            else:
                _write(stored.certain, place, piece)
        stored.since.clear()
        if not stored.synced_folder:
            stored.synced_folder = True
            self._sync_folder()

    def _sync_folder(self) -> None:
        for name, stored in self._folder:
            if stored is None:
                self._certain.pop(name, None)
            else:
                self._certain[name] = stored
        self._folder.clear()


def _sectors(place: int, piece: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a write where the disk's sectors begin."""
    end = place + len(piece)
    for at in range(place - place % SECTOR, end, SECTOR):
        first, last = max(at, place), min(at + SECTOR, end)
        yield first, piece[first - place : last - place]


def _write(content: bytearray, place: int, piece: bytes) -> None:
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(piece)] = piece


def _cut(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))
