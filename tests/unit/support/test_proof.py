"""Figures stated by tests become lines, and lines become a page that an owner can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import prove
from tests.bench.figures import Decision, Figure
from tests.mutants import Change, Found, as_json
from tests.support.proof import KILLS, LOST, TWICE, counted, dice, figure, seed, times
from tests.support.proof_page import NO, Fault, Proof, page, read_lines
from tests.support.proof_renewal import OTHERS, Reports, renewed

ROOT = Path(__file__).parents[3]
FAULTS = (
    Fault(id="F01", trouble="kill -9 at every point", tests=("tests/fault/test_kills.py",)),
    Fault(id="F14", trouble="Telegram refuses", tests=("tests/fault/test_telegram_limits.py",), missing="Anger."),
    Fault(id="F31", trouble="a day of load"),
)


@pytest.fixture
def stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv("DRAGOMAN_PROOF", str(path))
    monkeypatch.setenv("DRAGOMAN_SEED", "7")
    return path


def proof(lines: list[Any], **more: Any) -> Proof:
    given: dict[str, Any] = {"faults": FAULTS, "passed": 3, "seed": 7, "command": "./run proof --seed 7", **more}
    return Proof(date="2026-01-02", commit="abc", machine="2 cores", lines=lines, **given)


def test_a_figure_is_kept_with_its_bar_its_test_and_its_seed(stated: Path) -> None:
    figure("F14", "sent into a ban", 0, 0, of=3)
    (line,) = read_lines(stated.read_text())
    assert (line["fault"], line["value"], line["bar"], line["of"], line["held"]) == ("F14", 0, 0, 3, True)
    assert line["seed"] == 7
    assert line["test"].endswith("::test_a_figure_is_kept_with_its_bar_its_test_and_its_seed")


@pytest.mark.parametrize(("value", "bar", "least"), [(1.5, 1, False), (0.5, 1, True)])
def test_a_figure_that_misses_fails_the_test_and_is_kept(value: float, bar: float, least: bool, stated: Path) -> None:
    with pytest.raises(AssertionError, match="F14 slow"):
        figure("F14", "slow", value, bar, "s", least=least)
    assert read_lines(stated.read_text())[0]["held"] is False


def test_without_a_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_PROOF", raising=False)
    monkeypatch.chdir(tmp_path)
    figure("F14", "sent into a ban", 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_seed_gives_the_same_numbers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SEED", "8")
    first = dice("a flood").random()
    assert dice("a flood").random() == first
    assert dice("a death").random() != first
    monkeypatch.setenv("DRAGOMAN_SEED", "soon")
    with pytest.raises(ValueError, match="whole number"):
        seed()


def test_all_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_LARGE", "1")
    assert times(1, 5) == 5
    monkeypatch.delenv("DRAGOMAN_LARGE")
    assert times(1, 5) == 1
    monkeypatch.setenv("DRAGOMAN_SMALL", "1")
    assert (times(2, 5), times(2, 5, small=1)) == (2, 1)


def test_the_page_adds_up_counts_and_shows_the_worst_of_times(stated: Path) -> None:
    counted(KILLS, 2, "F01")
    for number in (1, 2):
        figure("F01", LOST, 0, 0, of=4 * number)
        figure("F01", TWICE, 0, 0, of=4 * number)
        figure("F14", "alert", number, 10, "s")
    text = page(proof(read_lines(stated.read_text())))
    assert "Every bar held." in text
    assert "killed 2 times. Of 12 messages 0 were lost and 0 taken" in text
    assert "| messages lost | 1 × | 0 of 12 | 0 | yes |" in text
    assert "| alert | 1 × | 2 s | ≤ 10 s | yes |" in text
    assert text.index("## F01: kill -9") < text.index("2 kills.") < text.index("## F14: Telegram refuses")
    assert "Not tried yet: Anger." in text
    assert "- F31: a day of load." in text
    assert "`./run proof --seed 7` on 2026-01-02, commit abc, seed 7, 2 cores; 3 tests passed, 0 failed." in text


def measured(*figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of the bench."""
    return {"date": "2026-11-23", "commit": "0123456789ab", "machine": "2 cores", "figures": figures}


def test_the_page_begins_with_what_does_not_hold(stated: Path) -> None:
    with pytest.raises(AssertionError):
        figure("F14", "sent into a ban", 2, 0, of=3)
    budget = {"what": "warm turn", "value": 11.0, "unit": "ms", "floor": 2, "budget": 10.0, "at_least": False}
    text = page(
        proof(
            read_lines(stated.read_text()),
            failed=["test_x test_y"],
            twins=[("I24", "a call runs again", True), ("I06", "an approval counts twice", False)],
            bench=measured({**budget, "holds": "NO"}),
            partial=True,
        )
    )
    head, _, rest = text.partition("## F01")
    assert "5 did not hold" in head
    assert "part of the whole" in head
    for miss in ("F14 sent into a ban: 2 of 3", "F01: its tests", "test_x", "an approval counts twice", "warm turn"):
        assert miss in head
    assert f"| sent into a ban | 1 × | 2 of 3 | 0 | {NO} |" in rest
    assert "1 of 2 were noticed" in rest
    assert f"| warm turn | 11 ms | 2 | ≤ 10 | {NO} |" in rest


def test_budget_miss_allowed_by_a_decision_is_noted_as_no_miss() -> None:
    cpu = Decision(number="0026", times=4.65, of="floor")
    known: dict[str, Any] = {
        "what": "warm turn, CPU",
        "unit": "ms",
        "floor": 2.0,
        "budget": 4.5,
        "times": 3.75,
        "decided": cpu,
    }
    within, over = Figure(value=9.0, **known), Figure(value=9.5, **known)
    found = proof([], faults=(), bench=measured(within.as_json()))
    assert found.misses() == []
    text = page(found)
    assert "Every bar held, or is missed no further than a decision allows." in text
    assert "Missed no further than a decision in `gateway/decisions` allows:\n- warm turn, CPU: decided (0026)" in text
    row = "| warm turn, CPU | 9 ms | 2 | ≤ 4.5 (3.75 × the floor; decision 0026: 4.65 × the floor) |"
    assert f"{row} decided (0026) |" in text
    assert "Made on 2026-11-23, commit 0123456789ab, 2 cores." in text
    text = page(proof([], faults=(), bench=measured(over.as_json())))
    assert "- over its budget: warm turn, CPU" in text
    assert "decision in `gateway/decisions` allows" not in text
    assert f"{row.replace('9 ms', '9.5 ms')} {NO} |" in text


def test_the_page_has_the_soaks_lives_and_its_figures() -> None:
    rise = {"an_hour": 0.25, "error": 0.1, "over_s": 1500.0}
    none = {"an_hour": 0.0, "error": 0.0, "over_s": 0.0}
    most = {"rss_mb": 95.5, "most_descriptors": 41, "most_tasks": 30, "wal_mb": 4.0, "database_mb": 9.0}
    lost = {"fault": "F31", "what": LOST, "value": 1, "bar": 0, "unit": "", "least": False, "of": 3600, "held": False}
    kills = {"fault": "F31", "what": KILLS, "count": 6, "test": "soak", "seed": 5}
    soak = {
        **{"minutes": 60, "seed": 5, "kills": 6, "counts": {"messages": 3600}},
        **{"date": "2026-01-01", "commit": "def", "machine": "2 cores"},
        "lines": [{**lost, "test": "soak", "seed": 5}, kills],
        "lives": [{"life": 1, "over_s": 1980.0, "rss": rise, **most}, {"life": 2, "over_s": 60.0, "rss": none, **most}],
    }
    faults = [Fault(id="F31", trouble="an hour of load", tests=("tests/fault/test_soak.py",))]
    text = page(proof([], faults=faults, soak=soak))
    assert "killed 6 times. Of 3,600 messages 1 were lost" in text
    assert "- F31 messages lost: 1 of 3,600, allowed 0" in text.partition("## F31")[0]
    assert "60 minutes, 3,600 messages, 6 kills, seed 5; made on 2026-01-01, commit def, 2 cores." in text
    assert "| 1 | 33 | +0.25 ± 0.10 | 95.5 | 41 | 30 | 4 | 9 |" in text
    assert "| 2 | 1 |  | 95.5 |" in text
    worth = "3,600 messages at 8 a second, as many as 8 hours have at one a second, 6 kills, seed 5;"
    assert worth in page(proof([], faults=faults, soak={**soak, "per_s": 8}))


def test_page_lists_the_mutants_and_failing_areas_first() -> None:
    same = Change(function="gateway.policy.routing.route", old="1", new="2")
    good = Found(killed=90, equivalent=4, survivors=[(same, "")] * 10)
    poor = Found(killed=8, survivors=[(same, "")] * 2, stale=["gone"], sampled_from=3_000)
    found = proof([], faults=(), mutants=json.loads(json.dumps(as_json({"routing": good, "permission": poor}))))
    assert found.misses() == ["mutants of permission: 80.0% of 10 were noticed, and 1 exceptions are none any more"]
    text = page(found)
    assert "| routing | 90 | 100 | 4 | 90.0% | yes |" in text
    assert f"| permission, chosen by chance of 3,000 | 8 | 10 | 0 | 80.0% | {NO} |" in text
    assert "Its tests must notice 85%." in text


def test_results_of_other_commands_are_read(tmp_path: Path) -> None:
    file = tmp_path / "mutants.json"
    file.write_text(json.dumps(as_json({})))
    options = prove.parsed(["--mutants", str(file)])
    assert prove.read(options.mutants) == as_json({})
    assert prove.read(options.fuzz) is None


def test_findings_of_a_larger_run_count_too() -> None:
    made = {"unit": "", "bar": 0, "least": False, "held": True, "fault": "F01", "seed": 7, "test": "test_kills.py"}
    lost = [{**made, "what": LOST, "value": 0, "of": of} for of in (5, 10_000)]
    killed = {"fault": "F01", "what": KILLS, "count": 1_000, "test": "test_kills.py", "seed": 7}
    large = proof([lost[1], killed], command="./run proof --only F01 --large", failed=["test_kills died"])
    text = page(proof([lost[0]], larger=[json.loads(json.dumps(large.as_json()))]))
    assert "killed 1,000 times. Of 10,005 messages 0 were lost" in text
    assert "| messages lost | 2 × | 0 of 10,005 | 0 | yes |" in text
    assert "- the test test_kills died failed in ./run proof --only F01 --large" in text.partition("## F01")[0]
    assert "The figures of `./run proof --only F01 --large` are among those below; 2026-01-02, commit abc" in text


def test_missing_file_of_a_larger_run_is_refused_with_a_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prove.parsed(["--larger", "nowhere.json"])
    assert "./run proof --only FAULT --large --json nowhere.json writes it" in capsys.readouterr().err


@pytest.mark.parametrize("name", prove.REPORTS)
def test_a_file_that_is_not_there_is_refused_with_how_to_make_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prove.parsed([f"--{name}", "nowhere.json"])
    assert f"./run {name} --json nowhere.json writes it" in capsys.readouterr().err


def lost(fault: str, of: int, value: int = 0, kills: int = 0) -> list[dict[str, Any]]:
    """Return the statements of a fault's tests."""
    made = {"unit": "", "bar": 0, "least": False, "fault": fault, "seed": 7, "test": "test_x.py"}
    killed = [{"fault": fault, "what": KILLS, "count": kills, "test": "test_x.py", "seed": 7}] if kills else []
    return [{**made, "what": LOST, "value": value, "of": of, "held": not value}, *killed]


def test_a_page_with_a_fault_seen_again_says_where_that_was() -> None:
    red = ("I06", "an approval counts twice", True)
    old = page(
        proof([*lost("F01", 5, kills=2), *lost("F14", 3, 1)], failed=["test_x died"], bench=measured(), twins=[red])
    )
    again = proof(lost("F01", 40, kills=7), faults=FAULTS[:1], command="./run proof --only F01", partial=True)
    more = proof(lost("F01", 1_000, kills=30), faults=FAULTS[:1], command="./run proof --only F01 --large")
    now = renewed(old, json.loads(json.dumps([again.as_json(), more.as_json()])), FAULTS)

    head, _, rest = now.partition("## F01")
    assert "killed 37 times. Of 1,043 messages 1 were lost" in head
    assert "**2 did not hold:**\n- F14 messages lost: 1 of 3, allowed 0\n- the test test_x died failed" in head
    assert (
        f"`./run proof --seed 7` on 2026-01-02, commit abc, seed 7, 2 cores; 3 tests passed, 1 failed.\n{OTHERS}"
        in head
    )
    mine, _, others = rest.partition("## F14")
    assert (
        "37 kills. Seen by `./run proof --only F01` (2026-01-02, commit abc, 2 cores; 3 passed, 0 failed) and" in mine
    )
    assert "| messages lost | 2 × | 0 of 1,040 | 0 | yes |" in mine
    assert others == old.partition("## F14")[2]
    assert renewed(now, [json.loads(json.dumps(more.as_json()))], FAULTS).count("Seen by") == 1


def test_a_miss_that_was_mended_goes_and_a_new_one_comes() -> None:
    old = page(proof([*lost("F01", 5, 2), *lost("F14", 3)]))
    good = proof(lost("F01", 5), faults=FAULTS[:1]).as_json()
    poor = proof(lost("F14", 4, 1), faults=FAULTS[1:2], command="./run proof --only F14", failed=["test_y died"])
    assert "Every bar held." in renewed(old, [good], FAULTS)
    head = renewed(old, [good, poor.as_json()], FAULTS).partition("## F01")[0]
    assert "- F14 messages lost: 1 of 4, allowed 0\n- the test test_y died failed in ./run proof --only F14\n" in head
    assert "F01" not in head
    again = renewed(
        renewed(old, [good, poor.as_json()], FAULTS), [proof(lost("F14", 4), faults=FAULTS[1:2]).as_json()], FAULTS
    )
    assert "Every bar held." in again


def test_results_of_other_commands_are_renewed() -> None:
    budget = {"what": "warm turn", "value": 11.0, "unit": "ms", "floor": 2, "budget": 10.0, "at_least": False}
    slow, green = measured({**budget, "holds": "NO"}), ("I06", "an approval counts twice", False)
    old = page(proof(lost("F01", 5), bench=slow, twins=[green]))
    assert "3 did not hold" in old  # the third: F14 has tests, and stated nothing
    good = measured({**budget, "value": 9.0, "holds": "yes"})
    twins = [("I06", "an approval counts twice", True), ("I24", "a call runs again", True)]
    reports = Reports(bench=good, twins=twins, tried="Tried on 2026-01-03, commit def.")
    now = renewed(old, [proof(lost("F14", 5), faults=FAULTS[1:2]).as_json()], FAULTS, reports)
    assert "Every bar held." in now
    assert "a test must notice. 2 of 2 were noticed. Tried on 2026-01-03, commit def." in now
    assert "| warm turn | 9 ms | 2 | ≤ 10 | yes |" in now
    assert now.index("## F14") < now.index("## Red twins") < now.index("## Budgets")
    assert renewed(old, [], FAULTS).count("did not hold") == 1


def test_section_missing_in_the_old_page_is_added_in_its_place() -> None:
    old = page(proof(lost("F14", 3), faults=FAULTS[1:2]))
    run = proof(lost("F14", 4), faults=FAULTS[1:2]).as_json()
    assert "## Not tried yet\n\n- F01: kill -9 at every point. Its tests were not run for this page.\n- F31" in (
        renewed(old, [run], FAULTS)
    )
    now = renewed(old, [proof(lost("F01", 4), faults=FAULTS[:1]).as_json()], FAULTS)
    assert now.index("## F01") < now.index("## F14")
    with pytest.raises(ValueError, match="the page has no fault"):
        renewed("# Something else\n", [run], FAULTS)


def test_a_part_of_a_fault_is_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prove.parsed(["--only", "F02", "-k", "three_nodes"])
    assert "-k: a part of a fault is no page of its own; add --json FILE" in capsys.readouterr().err
    options = prove.parsed(["--only", "F02", "-k", "three_nodes", "--json", "x.json"])
    assert prove.command(7, options) == './run proof --seed 7 --only F02 -k "three_nodes"'


def test_lines_are_in_the_same_order_however_they_came() -> None:
    made = {"unit": "", "bar": 0, "least": False, "of": 1, "held": True, "value": 0, "seed": 7}
    lines = [{**made, "fault": f, "what": w, "test": w} for f in ("F14", "F01") for w in ("b", "a")]
    assert page(proof(lines)) == page(proof(lines[::-1]))


def test_a_line_that_was_cut_off_is_left_out() -> None:
    whole = json.dumps({"fault": "F01"})
    assert read_lines(f'{whole}\n{{"fault": "F0') == [{"fault": "F01"}]


def test_every_named_test_is_there() -> None:
    found = prove.faults()
    assert [fault.id for fault in found] == [*(f"F{n:02}" for n in range(1, 33)), "NODES", "STORE", "REACH"]
    for name in [test for fault in found for test in fault.tests]:
        path, _, function = name.partition("::")
        assert (ROOT / path).is_file(), name
        assert f"def {function}(" in (ROOT / path).read_text() or not function, name


def test_a_fault_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prove.parsed(["--only", "F99"])
    assert "there is no fault F99; there are: F01" in capsys.readouterr().err
