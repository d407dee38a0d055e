"""Order of test files: those of daemons in front with the longest first, the longest of the others at the back."""

from __future__ import annotations

from tests.support.order import line_up, seconds_by_file

DAEMONS = ["tests/fault/test_a.py", "tests/fault/test_b.py", "tests/scenario/test_c.py"]
OTHERS = ["tests/unit/test_d.py", "tests/unit/test_e.py", "tests/unit/test_f.py"]
TAKEN = dict(zip([*DAEMONS, *OTHERS], [1.0, 9.0, 5.0, 0.1, 8.0, 2.0], strict=True))


def test_the_longest_stand_at_both_ends() -> None:
    found = line_up([*OTHERS, *DAEMONS], TAKEN, ("tests/fault", "tests/scenario"), {})
    assert [TAKEN[file] for file in found] == [9.0, 5.0, 1.0, 0.1, 2.0, 8.0]


def test_a_file_that_was_never_run_counts_by_its_length() -> None:
    here = "tests/unit/support/test_order.py"
    assert line_up([here, *OTHERS], TAKEN, (), {}) == [OTHERS[0], here, OTHERS[2], OTHERS[1]]


def test_files_that_share_a_browser_stand_as_one() -> None:
    keys, page = (f"tests/unit/gateway/server/page/static/test_{name}.py" for name in ("keys", "page"))
    found = line_up([keys, *OTHERS, page], TAKEN | {keys: 5.0, page: 6.0}, (), {})
    assert found[-1] == "tests/unit/gateway/server/page/static"
    assert found[:-1] == [OTHERS[0], OTHERS[2], OTHERS[1]]


def test_a_file_of_many_minutes_stands_first_in_parts() -> None:
    found = line_up([*OTHERS, *DAEMONS], TAKEN, ("tests/fault",), {DAEMONS[0]: 2, "tests/absent.py": 3})
    assert found[:3] == [f"{DAEMONS[0]}#0/2", f"{DAEMONS[0]}#1/2", DAEMONS[1]]
    assert DAEMONS[0] not in found


def test_the_seconds_of_a_file_are_those_of_its_tests() -> None:
    cases = [("tests.unit.test_a", 1.5), ("tests.unit.test_a.TestIt", 2.0), ("tests.fault.test_b", 3.0)]
    assert seconds_by_file(cases) == {"tests/unit/test_a.py": 3.5, "tests/fault/test_b.py": 3.0}
