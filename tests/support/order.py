"""Order of test files where several processes share them: long ones first. No part of the path of a message.

Half of the processes take from the front of the line, where tests of daemons stand, which wait most of the time. The
others take from its back, where the other tests stand. They meet in the middle, at the shortest of both.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".durations"
"""Seconds that each file took in the last run of `./run test`, as JSON."""
BYTES_A_SECOND = 2000
"""Length of a file whose tests take about a second: a guess, where no run has been measured yet."""


def measured() -> dict[str, float]:
    """Return the seconds that each file took in the last run; nothing before the first, or when it cannot be read."""
    try:
        return dict(json.loads(FILE.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def seconds_by_file(cases: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Add up what tests took, given as `tests.unit.test_x.TestClass` with seconds, by file."""
    found = defaultdict[str, float](float)
    for name, seconds in cases:
        parts = [part for part in name.split(".") if part]
        last = next((n for n, part in enumerate(parts) if part.startswith("test_")), -1)
        found["/".join(parts[: last + 1]) + ".py"] += seconds
    return {file: round(seconds, 1) for file, seconds in found.items()}


def line_up(files: Sequence[str], taken: Mapping[str, float], front: Sequence[str]) -> list[str]:
    """Return the files in line: those of the folders `front` with the longest first, then the others, longest last.

    `taken`: seconds of each file in the last run.
    """
    folders = tuple(f"{folder}/" for folder in front)
    sizes = {file: taken[file] if file in taken else _guessed(file) for file in files}
    first = sorted((file for file in files if file.startswith(folders)), key=lambda file: -sizes[file])
    others = sorted((file for file in files if not file.startswith(folders)), key=lambda file: sizes[file])
    return first + others


def _guessed(file: str) -> float:
    """Return seconds that go by the length of a file, of those that exist."""
    path = ROOT / file
    return path.stat().st_size / BYTES_A_SECOND if path.exists() else 0.0
