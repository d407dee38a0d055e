"""Order of tests where several processes share them: long ones first. No part of the path of a message.

Each process begins with an even part of the list, and whoever has nothing left takes from the ends of the others. Long
tests at the end would leave a processor idle for a minute; at the beginning of all parts they would be in each other's
way. So two processes begin with the many short ones, which compute while the long ones wait.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FILE = Path(__file__).parents[2] / ".durations"
"""Seconds that each file took in the last run of `./run test`, as JSON."""
LONG_S = 8.0
"""Seconds that a file takes, by the last run, to be a long one."""
LONG = (
    "tests/fault/test_soak.py",
    "tests/fault/test_telegram_day.py",
    "tests/fault/test_random_kills.py",
    "tests/fault/test_telegram_limits.py",
    "tests/fault/test_memory.py",
    "tests/fault/test_schedules.py",
    "tests/fault/test_many_waits.py",
    "tests/fault/test_power.py",
    "tests/fault/test_twins.py",
    "tests/fault/",
    "tests/bench/",
    "tests/scenario/",
)
"""How the names of long tests begin, the longest first: where no run has been measured yet."""
APART = ("tests/fault/test_telegram_day.py", "tests/fault/test_telegram_limits.py")
"""Files whose tests are long each, and share nothing."""


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


def order(names: Sequence[str], processes: int, taken: Mapping[str, float]) -> list[int]:
    """Return the positions of tests in the order in which they are to run; those of most files stay together.

    `taken`: seconds of each file in the last run.
    """
    files: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        files.setdefault(name if name.startswith(APART) else name.partition("::")[0], []).append(position)
    ranks = {file: _rank(file, taken) for file in files}
    long = sorted((file for file in files if ranks[file] is not None), key=lambda file: ranks[file] or 0)
    short = [position for file, mine in files.items() if ranks[file] is None for position in mine]
    begins = max(processes - 2, min(processes - 1, 2), 1) if short else processes
    found: list[int] = []
    for number, size in enumerate(_parts(len(names), processes)):
        mine = [position for file in long[number::begins] for position in files[file]] if number < begins else []
        room = max(size - len(mine), 0)
        found += mine + short[:room]
        short = short[room:]
    return found + short


def _rank(name: str, taken: Mapping[str, float]) -> float | None:
    """Return where a long file stands among the others, the lowest first; None for a short one."""
    file = name.partition("::")[0]
    if file in taken:
        return -taken[file] if taken[file] >= LONG_S else None
    return next((float(rank) for rank, begins in enumerate(LONG) if name.startswith(begins)), None)


def _parts(count: int, processes: int) -> list[int]:
    """How many each begins with: as pytest-xdist cuts the list."""
    sizes: list[int] = []
    for left in range(processes, 0, -1):
        sizes.append((count - sum(sizes)) // left)
    return sizes
