"""Red twins: every one still fits the code, and those that take seconds go red: one in every run, all with `--all`."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import twins
from tests.twins import Twin, copy_of_the_project, goes_red

EVERY = twins.twins()
ROOT = Path(__file__).parents[2]
KEPT = [
    f"I{number:02}"
    for numbers in (range(1, 9), range(10, 19), range(20, 35), range(38, 50), range(53, 59))
    for number in numbers
]
"""The invariants of the safety table that tests keep, each by one twin or more."""


def test_no_invariant_is_without_a_twin() -> None:
    assert sorted({*KEPT} - {twin.invariant for twin in EVERY}) == []


@pytest.mark.parametrize("twin", EVERY, ids=lambda twin: twin.name)
def test_it_fits(twin: Twin) -> None:
    text = (ROOT / twin.file).read_text(encoding="utf-8")
    assert twin.applied(text) != text
    assert re.fullmatch(r"I\d\d", twin.invariant)
    assert twin.name.startswith(f"{twin.invariant}-")
    for test in twin.tests:
        file, *within = re.sub(r"\[.*", "", test).split("::")
        code = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
        absent = [one for one in within if not re.search(rf"\b(?:def|class) {one}\b", code)]
        assert (ROOT / file).exists(), f"{twin.name} names {test}, which is not there"
        assert absent == [], f"{twin.name} names {test}, which is not in that file"


@pytest.fixture(scope="module")
def copy() -> Generator[Path]:
    with copy_of_the_project() as folder:
        yield folder


FIRST, *OTHERS = (pytest.param(twin, id=twin.name) for twin in EVERY if twin.fast)


@pytest.mark.parametrize("twin", [FIRST])
def test_it_goes_red(twin: Twin, copy: Path) -> None:
    _goes_red(copy, twin)


@pytest.mark.whole("the first twin stays: it shows that tests notice what is broken")
@pytest.mark.parametrize("twin", OTHERS)
def test_others_go_red(twin: Twin, copy: Path) -> None:
    _goes_red(copy, twin)


def _goes_red(copy: Path, twin: Twin) -> None:
    red, said = goes_red(copy, twin)
    assert red, f"{twin.breaks}, and no test of {', '.join(twin.tests)} noticed:\n{said}"
