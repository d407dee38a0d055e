"""Fault suite that writes `gateway/PROOF.md`, for `./run proof`. No part of a message's path.

    ./run proof                      the fault suite, the state machine and the red twins
    ./run proof --seed 7             the same random deaths and floods as when the page said seed 7
    ./run proof --only F14 F17       these faults alone; the page says that it is a part
    ./run proof --large              everything larger and more often: hours
    ./run proof --bench FILE         with the budgets that `./run bench --json FILE` wrote
    ./run proof --soak FILE          with the hour that `./run soak --json FILE` wrote
    ./run proof --fuzz FILE          with the parsers that `./run fuzz --json FILE` fuzzed
    ./run proof --mutants FILE       with the mutants that `./run mutants --json FILE` tried
    ./run proof --only F02 --large --json FILE     what was found goes into a file, and no page is written
    ./run proof --larger FILE        with what was found there, beside the usual size of it
    ./run proof --only F02 --large -k three_nodes --json FILE    only such tests of a fault
    ./run proof --renew FILE FILE    runs nothing: the page, with these faults as they were found there; also with
                                     --bench, --fuzz and --mutants, and --twins, which tries the red twins

Figures that miss their bar are named at the top of the page, and the exit code is 1. A miss that a decision allows is
named there too, and is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gateway.system.clock import SystemClock
from tests import twins
from tests.checks import FEW_PROCESSES, LARGE_TIMEOUT_S, browser_environment, find_chromium
from tests.support.proof import LARGE, PROOF, SEED
from tests.support.proof_page import DID_NOT_HOLD, Fault, Proof, page, read_lines
from tests.support.proof_renewal import Reports, renewed
from tests.twins import Twin

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "gateway" / "PROOF.md"
FAULTS = Path(__file__).with_name("fault") / "faults.toml"
REPORTS = ("bench", "soak", "fuzz", "mutants")
"""Commands whose figures the page takes over."""
SUITE = "tests/fault"
TWINS = "tests/fault/test_twins.py"
"""Tried by themselves: each runs tests of its own, on a copy."""


def faults() -> list[Fault]:
    """Every kind of trouble, in the order of the file. Raises `TypeError` for a key that is none."""
    entries: dict[str, dict[str, Any]] = tomllib.loads(FAULTS.read_text(encoding="utf-8"))
    return [Fault(id=id, tests=tuple(entry.pop("tests", ())), **entry) for id, entry in entries.items()]


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; leave with words when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="./run proof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="of everything random (default: another one each time)")
    parser.add_argument("--only", nargs="+", metavar="FAULT", default=[], help="only these faults")
    parser.add_argument("--large", action="store_true", help="everything larger and more often")
    parser.add_argument("-k", dest="such", metavar="WORDS", default="", help="only tests that pytest -k finds")
    for name in REPORTS:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"a file that ./run {name} --json wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found here, and no page")
    parser.add_argument("--larger", type=Path, metavar="FILE", action="append", default=[], help="a file of --json")
    parser.add_argument("--renew", type=Path, metavar="FILE", nargs="*", help="files of --json, for the page")
    parser.add_argument("--twins", action="store_true", help="with --renew: try the red twins too")
    options = parser.parse_args(arguments)
    known = [fault.id for fault in faults()]
    if unknown := [one for one in options.only if one not in known]:
        parser.error(f"there is no fault {', '.join(unknown)}; there are: {', '.join(known)}")
    if options.seed is not None and options.seed < 0:
        parser.error("--seed: write a whole number that is not negative")
    for name in REPORTS:
        file: Path | None = getattr(options, name)
        if file is not None and not file.is_file():
            parser.error(f"--{name}: there is no file {file}; ./run {name} --json {file} writes it")
    given: dict[str, list[Path]] = {"larger": options.larger, "renew": options.renew or []}
    for name, files in given.items():
        if lacking := [one for one in files if not one.is_file()]:
            cure = f"./run proof --only FAULT --large --json {lacking[0]} writes it"
            parser.error(f"--{name}: there is no file {lacking[0]}; {cure}")
    if options.such and not options.json:
        parser.error("-k: a part of a fault is no page of its own; add --json FILE")
    return options


def main(arguments: Sequence[str]) -> int:
    """Try what was asked for, write the page, print it. Return the exit code."""
    options = parsed(arguments)
    if options.renew is not None:
        return renew(options)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    chosen = [fault for fault in faults() if not options.only or fault.id in options.only]
    proof = prove(chosen, seed, options)
    if options.json:
        options.json.write_text(json.dumps(proof.as_json(), indent=1) + "\n", encoding="utf-8")
    else:
        PAGE.write_text(page(proof), encoding="utf-8")
    say(page(proof))
    return 1 if proof.misses() else 0


def renew(options: argparse.Namespace) -> int:
    """Write the page with what files say of some faults, and other commands of the rest. Return the exit code."""
    reports = Reports(
        bench=read(options.bench),
        fuzz=read(options.fuzz),
        mutants=read(options.mutants),
        twins=tried(fitting_twins()) if options.twins else (),
        tried=f"Tried on {SystemClock().now().date().isoformat()}, commit {commit()}.",
    )
    text = renewed(PAGE.read_text(encoding="utf-8"), [*map(read, options.renew)], faults(), reports)
    PAGE.write_text(text, encoding="utf-8")
    return 1 if DID_NOT_HOLD in text else 0


def prove(chosen: Sequence[Fault], seed: int, options: argparse.Namespace) -> Proof:
    """Run all of it."""
    partial = bool(options.only)
    every = [] if partial else fitting_twins()
    with tempfile.TemporaryDirectory(prefix="proof-") as place:
        wanted = selected(chosen, partial=partial)
        lines, (passed, failed) = run_tests(wanted, Path(place), seed, everything=options.large, such=options.such)
    return Proof(
        date=SystemClock().now().date().isoformat(),
        commit=commit(),
        seed=seed,
        command=command(seed, options),
        machine=machine(),
        faults=chosen,
        lines=lines,
        passed=passed,
        failed=failed,
        twins=tried(every),
        bench=read(options.bench),
        soak=read(options.soak),
        fuzz=read(options.fuzz),
        mutants=read(options.mutants),
        larger=[read(file) for file in options.larger],
        partial=partial,
        trouble=[] if passed or failed else ["no test ran"],
    )


def read(file: Path | None) -> Any:
    """Return the output of another command, if it was given."""
    return json.loads(file.read_text(encoding="utf-8")) if file else None


def selected(chosen: Sequence[Fault], *, partial: bool) -> list[str]:
    """Return the arguments for pytest: the whole suite and its parts in other folders, or only some tests."""
    named = list(dict.fromkeys(test for fault in chosen for test in fault.tests))
    return named if partial else [SUITE, *(test for test in named if not test.startswith(f"{SUITE}/"))]


def run_tests(
    tests: Sequence[str], place: Path, seed: int, *, everything: bool, such: str = ""
) -> tuple[list[Mapping[str, object]], tuple[int, list[str]]]:
    """Run tests; return what they stated, how many passed, and which failed."""
    if not tests:
        return [], (0, [])
    stated, results = place / "figures.jsonl", place / "results.xml"
    spread = ["-n", str(FEW_PROCESSES), "--dist", "worksteal", f"--ignore={TWINS}"]
    more = [*([f"--timeout={LARGE_TIMEOUT_S}"] if everything else []), *(["-k", such] if such else [])]
    asked = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={results}", *spread, *more, *tests]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wanted = {PROOF: str(stated), SEED: str(seed), LARGE: "1" if everything else "0"}
    environment = {**inherited, **browser_environment(find_chromium()), **wanted}
    subprocess.run(asked, cwd=ROOT, env=environment, check=False)
    return read_lines(stated.read_text(encoding="utf-8") if stated.exists() else ""), outcomes(results)


def outcomes(results: Path) -> tuple[int, list[str]]:
    """Return the number of passed tests, and those that failed, from pytest's own file."""
    if not results.exists():
        return 0, ["pytest did not write its results: it ended early"]
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    names = {f"{case.get('classname', '').rpartition('.')[2]} {case.get('name')}" for case in broken}
    return len(cases) - len(broken), sorted(names)


def fitting_twins() -> list[Twin]:
    """All red twins. Raises `ValueError` for one that does not fit the code any more: now, and not hours later."""
    every = twins.twins()
    for twin in every:
        twin.applied((ROOT / twin.file).read_text(encoding="utf-8"))
    return every


def tried(every: Sequence[Twin]) -> list[tuple[str, str, bool]]:
    """Try red twins; return the invariant of each, what it breaks, and whether a test noticed."""
    green = {trouble.partition(" (")[0] for trouble in twins.try_all(every)}
    return [(twin.invariant, twin.breaks, twin.name not in green) for twin in every]


# --- what is said of the run ----------------------------------------------------------------------


def commit() -> str:
    """The commit that was tried, and whether files differed from it; the page itself does not count."""
    found = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    return (found or "unknown") + (" with changes" if changed else "")


def git(*words: str) -> str:
    """Return the output of git; empty without git, or outside of a clone."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def command(seed: int, options: argparse.Namespace) -> str:
    """Return the command that repeats this run."""
    words = ["./run proof", f"--seed {seed}", *(["--large"] if options.large else [])]
    such = [f'-k "{options.such}"'] if options.such else []
    return " ".join([*words, *(["--only", *options.only] if options.only else []), *such])


def machine() -> str:
    """Return the facts of the machine that figures depend on, without its owner."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def say(text: str) -> None:
    """Print."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
