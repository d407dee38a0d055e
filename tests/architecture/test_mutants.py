"""List of `./run mutants` fits the code: its names exist, and each exception has a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import Area, Change, Found, count

ROOT = Path(__file__).resolve().parents[2]
AREAS = mutants.areas()


@pytest.mark.parametrize("area", AREAS.values(), ids=lambda area: area.name)
def test_files_and_tests_are_there(area: Area) -> None:
    assert [pattern for pattern in (*area.files, *area.without) if not any(ROOT.glob(pattern))] == []
    assert [one for one in area.tests if one.startswith("tests/") and not (ROOT / one).exists()] == []


@pytest.mark.parametrize("area", AREAS.values(), ids=lambda area: area.name)
def test_an_exception_fits_the_code_and_has_a_reason(area: Area) -> None:
    texts = {file: " ".join(file.read_text().split()) for pattern in area.files for file in ROOT.glob(pattern)}
    for change, because in area.equivalent.items():
        standing = [file for file, text in texts.items() if " ".join(change.old.split()) in text]
        assert standing, f"{change.function} does not say {change.old} any more"
        assert len(because.split()) >= 4
        assert change.old != change.new


SAME = Change(function="gateway.policy.routing.route", old="1", new="2")
OTHER = Change(function="gateway.policy.routing.route", old="1", new="3")


@pytest.mark.parametrize(
    ("change", "code", "killed", "equivalent", "survived", "stale"),
    [
        (OTHER, 1, 1, 0, 0, 0),
        (OTHER, -24, 1, 0, 0, 0),  # it hung
        (OTHER, 0, 0, 0, 1, 0),
        (OTHER, 33, 0, 0, 1, 0),  # no test calls it
        (OTHER, None, 0, 0, 1, 0),  # closed by default
        (SAME, 0, 0, 1, 0, 0),
        (SAME, 1, 1, 0, 0, 1),
    ],
)
def test_mutant_outcome_is_counted(
    change: Change, code: int | None, killed: int, equivalent: int, survived: int, stale: int
) -> None:
    area, found = Area(name="a", files=(), tests=(), equivalent={SAME: "It is the same."}), Found()

    count(found, area, change, code)

    assert (found.killed, found.equivalent, len(found.survivors), len(found.stale)) == (
        killed,
        equivalent,
        survived,
        stale,
    )


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("for a, b in zip(c, d, strict=True):", "for a, b in zip(c, d, strict=None):", True),
        ("for a, b in zip(c, d, strict=True):", "for a, b in zip(c, d, ):", True),
        ("for a, b in zip(c, d, strict=True):", "for a, b in zip(c, None, strict=True):", False),
        ('assert a is not None, "it is loaded"', "assert a is not None, None", True),
        ('assert a is not None, "it is loaded"', 'assert a is None, "it is loaded"', False),
        ('said(a, "it is loaded")', 'said(a, "XXit is loadedXX")', False),
    ],
)
def test_mutant_of_a_developers_message_is_equivalent(old: str, new: str, same: bool) -> None:
    change, found = Change(function="gateway.store.open_store", old=old, new=new), Found()
    count(found, Area(name="a", files=(), tests=(), equivalent={}), change, 0)
    assert (found.equivalent, len(found.survivors)) == (int(same), int(not same))


def test_mutant_out_of_time_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    codes = {"slow": -24, "loud": 3, "killed": 1, "alive": 0, "uncalled": 33, "waiting": None}
    Path("mutants").mkdir()
    Path("mutants", "a.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    chosen = [one for one in codes if one != "loud"]
    assert mutants.hung_among(chosen, ["a.py"]) == ["slow"]
    assert mutants.hung_among(["loud"], ["a.py"]) == ["loud"]


@pytest.mark.parametrize(("killed", "survived", "good"), [(85, 15, True), (84, 16, False), (0, 0, False), (9, 0, True)])
def test_the_bar(killed: int, survived: int, good: bool) -> None:
    area = Area(name="a", files=(), tests=(), equivalent={})
    assert mutants.say(area, Found(killed=killed, survivors=[(OTHER, "")] * survived)) is good


def test_command_policy_areas_have_a_higher_bar() -> None:
    assert {name for name, area in AREAS.items() if area.bar >= 0.95} >= {"grants", "layers", "rules", "shell"}
    assert Found(bar=0.95, killed=95, survivors=[(OTHER, "")] * 5).good
    assert not Found(bar=0.95, killed=94, survivors=[(OTHER, "")] * 6).good
