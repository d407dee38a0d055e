"""Reasons of the tests that only `./run test --all` runs."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_whole_names_its_reason() -> None:
    marked = [
        path for path in TESTS.rglob("test_*.py") if "pytest.mark.whole" in path.read_text() and path != Path(__file__)
    ]
    assert marked
    bare = [path.name for path in marked if re.search(r'pytest\.mark\.whole(?!\("[^"]{10,}"\))', path.read_text())]
    assert bare == []


def test_module_sets_its_marks_once() -> None:
    """A second `pytestmark = …` replaces the first one without a word."""
    twice = [path.name for path in TESTS.rglob("test_*.py") if path.read_text().count("\npytestmark = ") > 1]
    assert twice == []
