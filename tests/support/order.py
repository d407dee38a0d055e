"""In which order tests run where several processes share them: what takes long first. No part of the path of a message.

Each process begins with an even part of the list, and whoever has nothing left takes from the ends of the others. Long
tests at the end would leave a processor idle for a minute; at the beginning of all parts they would be in each other's
way. So two processes begin with the many short ones, which compute while the long ones wait.
"""

from __future__ import annotations

from collections.abc import Sequence

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
"""How the names of long tests begin, the longest first."""
APART = ("tests/fault/test_telegram_day.py", "tests/fault/test_telegram_limits.py")
"""Files whose tests are long each, and share nothing."""


def order(names: Sequence[str], processes: int) -> list[int]:
    """Return the positions of tests in the order in which they are to run; those of most files stay together."""
    files: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        files.setdefault(name if name.startswith(APART) else name.partition("::")[0], []).append(position)
    long = sorted((file for file in files if file.startswith(LONG)), key=_rank)
    short = [position for file, mine in files.items() if not file.startswith(LONG) for position in mine]
    begins = max(processes - 2, min(processes - 1, 2), 1) if short else processes
    found: list[int] = []
    for number, size in enumerate(_parts(len(names), processes)):
        mine = [position for file in long[number::begins] for position in files[file]] if number < begins else []
        room = max(size - len(mine), 0)
        found += mine + short[:room]
        short = short[room:]
    return found + short


def _rank(file: str) -> int:
    return next(rank for rank, begins in enumerate(LONG) if file.startswith(begins))


def _parts(count: int, processes: int) -> list[int]:
    """How many each begins with: as pytest-xdist cuts the list."""
    sizes: list[int] = []
    for left in range(processes, 0, -1):
        sizes.append((count - sum(sizes)) // left)
    return sizes
