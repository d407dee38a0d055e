"""Long tests begin first, in most of the processes; none is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.order import APART, LONG, order, seconds_by_file

ROOT = Path(__file__).parents[3]
SHORT = [f"tests/unit/test_{file}.py::test_{n}" for file in "abc" for n in range(6)]
DAY = [f"tests/fault/test_telegram_day.py::test_a_day[{mode}]" for mode in ("polling", "webhook")]
SOAK = "tests/fault/test_soak.py::test_a_soak"
BENCH = ["tests/bench/test_bench.py::test_a", "tests/bench/test_bench.py::test_b"]
OTHER = "tests/fault/test_clock.py::test_a_jump"
NAMES = [*BENCH, OTHER, SOAK, *DAY, *SHORT]


def ordered(processes: int) -> list[str]:
    return [NAMES[position] for position in order(NAMES, processes, {})]


@pytest.mark.parametrize("processes", [1, 2, 3, 8, 40])
def test_every_test_runs_once(processes: int) -> None:
    assert sorted(ordered(processes)) == sorted(NAMES)


def test_most_processes_begin_with_long_ones() -> None:
    found = ordered(3)
    first, second, third = found[:8], found[8:16], found[16:]
    assert first[:4] == [SOAK, DAY[1], *BENCH]
    assert second[:2] == [DAY[0], OTHER]
    assert [*first[4:], *second[2:], *third] == SHORT


@pytest.mark.parametrize(("processes", "begin_long"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 6)])
def test_two_of_many_begin_with_short_ones(processes: int, begin_long: int) -> None:
    days = [f"tests/fault/test_telegram_day.py::test_a_day[{n}]" for n in range(20)]
    names = [*days, *(f"tests/unit/test_a.py::test_{n}" for n in range(20 * processes - 20))]
    found = [names[position] for position in order(names, processes, {})]
    assert sum(one in days for one in found[::20]) == begin_long


def test_where_all_are_long_each_process_begins_with_one_of_the_longest() -> None:
    names = [BENCH[0], OTHER, SOAK, *DAY, BENCH[1]]
    found = [names[position] for position in order(names, 3, {})]
    assert found == [SOAK, OTHER, DAY[0], *BENCH, DAY[1]]


def test_one_process_begins_with_the_longest() -> None:
    assert ordered(1) == [SOAK, *DAY, OTHER, *BENCH, *SHORT]


def test_what_is_long_is_there() -> None:
    assert [name for name in (*LONG, *APART) if not (ROOT / name).exists()] == []


def test_the_last_run_says_what_is_long() -> None:
    taken = {"tests/unit/test_c.py": 90.0, "tests/bench/test_bench.py": 1.0, "tests/fault/test_soak.py": 60.0}
    found = [NAMES[position] for position in order(NAMES, 1, taken)]
    assert found[: 6 + 1] == [*SHORT[12:], SOAK]
    assert found[-14:] == [*BENCH, *SHORT[:12]]


def test_the_seconds_of_a_file_are_those_of_its_tests() -> None:
    cases = [("tests.unit.test_a", 1.5), ("tests.unit.test_a.TestIt", 2.0), ("tests.fault.test_b", 3.0)]
    assert seconds_by_file(cases) == {"tests/unit/test_a.py": 3.5, "tests/fault/test_b.py": 3.0}
