"""The fuzzing counts what its bars are about: what was raised, what took too long, and how much memory it took."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import __main__ as command
from tests.fuzz import engine
from tests.fuzz.engine import MEMORY_AT_MOST_MB, Failure, Parser, Report, failure, fuzz
from tests.support.daemon import ROOT
from tests.support.proof_reports import fuzz_misses, of_fuzz, short

pytestmark = pytest.mark.whole("of a helper of tests; it computes for seconds")

MB = 1024 * 1024


def parser(reads: Callable[[bytes], None]) -> Parser:
    """One that nothing is kept for: its first input is empty, and others are made of that."""
    return Parser(name="of-a-test", target=reads, reads=[engine])


def nothing(_: bytes) -> None:
    """Take anything."""


def fuzzed(reads: Callable[[bytes], None], seconds: float = 0.2) -> tuple[Report, list[Failure]]:
    told: list[Failure] = []
    return fuzz(parser(reads), seconds, 1, told.append), told


def alone(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Return the output of Python in its own process: one that ran other tests may use more memory than the bar."""
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=False)


TAKEN_WELL = f"""
import json
from {__name__} import fuzzed, nothing
report, told = fuzzed(nothing)
print(json.dumps([len(told), report.held, report.runs, report.slowest_s, report.peak_mb]))
"""


def test_accepted_input_is_counted_and_timed() -> None:
    ran = alone("-c", TAKEN_WELL)
    assert (ran.returncode, ran.stderr) == (0, b"")
    told, held, runs, slowest_s, peak_mb = json.loads(ran.stdout)
    assert (told, held) == (0, True)
    assert runs > 10
    assert 0.0 < slowest_s < 0.5
    assert 10 < peak_mb < MEMORY_AT_MOST_MB


def test_raised_error_is_a_fault_named_once() -> None:
    def reads(data: bytes) -> None:
        if data:
            raise KeyError("nobody said so")

    report, told = fuzzed(reads)
    assert len(told) == len(report.failures) == 1
    assert told[0].what.startswith("KeyError at ")
    assert (told[0].slow, report.held) == (False, False)


def test_an_input_that_takes_too_long_is_one() -> None:
    def reads(_: bytes) -> None:
        while True:
            pass

    found = failure(parser(reads), b"x", 0.05)
    assert found is not None
    assert (found.slow, found.what.partition(" ")[0]) == (True, "TooSlow")
    assert not Report(failures={found.what: found}).held


def test_memory_is_of_this_parser_alone() -> None:
    """The memory of an earlier parser is forgotten."""
    held: list[bytearray] = []

    def reads(_: bytes) -> None:
        if not held:
            held.append(bytearray(b"x" * 200 * MB))
            held[0] = bytearray()

    large, _ = fuzzed(reads, 0.05)
    small, _ = fuzzed(nothing, 0.05)
    assert large.peak_mb > small.peak_mb + 150


def test_too_much_memory_misses_the_bar() -> None:
    assert Report(peak_mb=MEMORY_AT_MOST_MB).held
    assert not Report(peak_mb=MEMORY_AT_MOST_MB + 1).held


def test_the_command_writes_what_the_page_shows(tmp_path: Path) -> None:
    file = tmp_path / "fuzz.json"
    words = ["command", "web_frame", "--seconds", "0.1", "--seed", "7", "--json", str(file)]
    ran = alone("-m", "tests.fuzz", *words)
    assert (ran.returncode, ran.stderr) == (0, b"")
    found = json.loads(file.read_text())
    assert [one["parser"] for one in found["parsers"]] == ["command", "web_frame"]
    assert fuzz_misses(found) == []
    text = "\n".join(of_fuzz(found))
    assert f"2 of {found['known']} parsers of what others wrote, seed 7" in text
    assert "more than 1 s of processor time, and at most 512 MB of memory" in text
    first = found["parsers"][0]
    assert first["seconds"] > 0
    assert f"| command | {short(first['seconds'])} | {short(first['inputs'])} |" in text
    assert text.count("| 0 | 0 |") == 2
    assert b"0 faults" in ran.stdout


def test_the_page_begins_with_parsers_that_broke() -> None:
    report = Report(runs=9, peak_mb=600.0, slowest_s=1.0)
    for what in ("KeyError at x.py:1", "TooSlow at x.py"):
        report.failures[what] = Failure(data=b"x", what=what, trace="")
    found = command.as_json({"command": report}, 1)
    assert fuzz_misses(found) == ["fuzzing command: 1 faults, 1 inputs that took too long, 600 MB of memory"]
    assert "| command | 0 | 9 | 0 of 0 | 1 | 1 | 1.000 | 600 | **NO** |" in of_fuzz(found)


def test_a_parser_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parsed(["prose"])
    assert "there is no parser prose; there are: telegram_update, " in capsys.readouterr().err
