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
TOGETHER = (
    "tests/unit/agent_tools/browser",
    "tests/unit/gateway/llm",
    "tests/unit/gateway/server/page/static",
)
"""Folders whose files stand in the line as one, because they share a browser or the import of a large library: two
seconds of CPU each.
"""
PARTS = {
    "tests/fault/test_takeover.py": 6,
    "tests/contract/test_redis_machine.py": 1,
    "tests/contract/test_copies.py": 1,
}
"""Files that take many minutes with `--all`, and in how many parts they stand first in the line."""
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


def line_up(
    files: Sequence[str], taken: Mapping[str, float], front: Sequence[str], parts: Mapping[str, int]
) -> list[str]:
    """Return the line: files of the folders `front` with the longest first, then the others, longest last.

    Files of a folder of `TOGETHER` stand there as that folder. Before all stand the files of `parts`, in so many parts:
    `tests/test_x.py#0/2` and `tests/test_x.py#1/2`.

    `taken`: seconds of each file in the last run.
    """
    folders = tuple(f"{folder}/" for folder in front)
    sizes = defaultdict[str, float](float)
    for file in [one for one in files if one not in parts]:
        place = next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)
        sizes[place] += taken[file] if file in taken else _guessed(file)
    first = sorted((one for one in sizes if one.startswith(folders)), key=lambda one: -sizes[one])
    others = sorted((one for one in sizes if not one.startswith(folders)), key=lambda one: sizes[one])
    divided = [f"{file}#{n}/{parts[file]}" for file in files if file in parts for n in range(parts[file])]
    return divided + first + others


def _guessed(file: str) -> float:
    """Return seconds that go by the length of a file, of those that exist."""
    path = ROOT / file
    return path.stat().st_size / BYTES_A_SECOND if path.exists() else 0.0
