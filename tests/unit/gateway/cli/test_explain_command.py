"""The commands `dragoman explain` and `dragoman rules test`, as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.gateway.cli.test_cli import Daemon, Done, dragoman


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


async def test_explain_needs_no_daemon(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[rules]]\ntool = "shell"\npattern = "git *"\ndecision = "allow"\n')
    done = await dragoman(state, "--config", str(config), "explain", "shell", "git status")
    assert (done.code, done.out.splitlines()[0]) == (0, "allow: config.toml:1 (rules[0]) allows 'git *'")

    done = await dragoman(state, "explain", "--json", "--kind", "dm", "shell", "ls", "--config", str(config))
    assert (done.code, json.loads(done.out)["decision"]) == (0, "deny")


async def test_rules_test_prints_each_case_that_fails(state: Path, tmp_path: Path) -> None:
    config, cases = tmp_path / "config.toml", tmp_path / "cases.toml"
    config.write_text('[[rules]]\ntool = "shell"\npattern = "git push *"\ndecision = "deny"\n')
    right = '[[case]]\ntool = "shell"\ntext = "git push"\ndecision = "deny"\nbecause = "config.toml:1 (rules[0])"\n'
    cases.write_text(right + right.replace('"deny"', '"allow"') + right.replace("config.toml:1", "elsewhere"))

    done = await dragoman(state, "rules", "test", str(cases), "--config", str(config))

    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0] == "cases.toml:6 (case[1]): shell git push in main"
    assert lines[1] == "  expected: allow, because: config.toml:1 (rules[0])"
    assert lines[2].startswith("  actual:   deny, because: A rule of the owner denies this: config.toml:1 (rules[0])")
    assert "cases.toml:11 (case[2]): shell git push in main" in lines
    assert lines[-1] == "1 of 3 cases are decided as expected."

    cases.write_text(right)
    done = await dragoman(state, "rules", "test", str(cases), "--config", str(config))
    assert (done.code, done.out) == (0, "1 of 1 cases are decided as expected.\n")


@pytest.mark.whole("starts a process; what needs no daemon stays")
async def test_rules_test_tells_a_malformed_file(state: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text('[[case]]\ntool = "shell"\n')
    done = await dragoman(state, "rules", "test", str(cases))
    assert done.code == 2
    assert f"Error: {cases}:1: case[0].decision: it is missing.\nAdd decision = …" in done.err


async def test_the_sample_of_cases_holds(state: Path) -> None:
    sample = Path(__file__).parents[4] / "config" / "cases.example.toml"
    done = await dragoman(state, "rules", "test", str(sample))
    assert (done.code, done.out) == (0, "4 of 4 cases are decided as expected.\n")


async def test_explain_asks_the_daemon_about_a_session(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        done = await dragoman(state, "explain", "--session", "main:ann", "shell", "make")
        both = await dragoman(state, "explain", "--session", "main:ann", "--kind", "main", "shell", "make")
    assert done == Done(code=0, out="allow: grant g1 allows it\n  rule: grant g1\n  1. available: always\n", err="")
    assert daemon.asked == [("explain", {"session": "main:ann", "tool": "shell", "text": "make"})]
    assert (both.code, "leave out --kind and --preset" in both.err) == (2, True)


@pytest.mark.whole("starts a process; what needs no daemon stays")
async def test_explain_takes_a_preset(state: Path) -> None:
    done = await dragoman(state, "explain", "--preset", "plan", "--json", "shell", "touch x")
    assert (done.code, json.loads(done.out)["decision"]) == (0, "deny")


@pytest.mark.whole("starts a process; what needs no daemon stays")
async def test_a_case_may_be_about_a_stored_session(state: Path, tmp_path: Path) -> None:
    cases, daemon = tmp_path / "cases.toml", Daemon()
    one = '[[case]]\ntool = "shell"\ntext = "make"\nsession = "main:ann"\nbecause = "grant g1"\n'
    cases.write_text(f'{one}decision = "allow"\n{one}decision = "deny"\n')
    async with daemon.at(state):
        done = await dragoman(state, "rules", "test", str(cases))
    assert daemon.asked == [("explain", {"session": "main:ann", "tool": "shell", "text": "make"})] * 2
    assert (done.code, done.out.splitlines()[0]) == (1, "cases.toml:7 (case[1]): shell make in main:ann")
    assert done.out.endswith("1 of 2 cases are decided as expected.\n")
