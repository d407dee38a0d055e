"""Mutation tests, for `./run mutants`. No part of the path of a message.

mutmut changes one thing at a time in a copy of the deciding modules; the tests of that module must fail.
`tests/mutants.toml` lists modules, tests, and the changes that no test can detect.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutmut.configuration import reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name, orig_function_and_class_names_from_key

from gateway.system.clock import SystemClock
from tests.prove import commit, machine
from tests.support.proof import SMALL
from tests.twins import copy_of_the_project

LIST = Path(__file__).with_suffix(".toml")
BAR = 0.85
"""The part of the mutants that tests must notice, where an area has no `bar` of its own. May only rise."""
WITHIN_S = 600
"""Seconds that a test may take, where an area says nothing."""
SEED = 1
"""Of samples, when nobody says: a second run takes the same."""
FAILED, SURVIVED, NO_TEST, NOT_RUN = 1, 0, 33, None
"""Exit codes in mutmut's files; anything else is an error of pytest or a test that hung."""
LENGTHS_AGREE, TEXT_OF_ASSERT = re.compile(r"strict=\w+"), re.compile(r', (None|"[^"]*")$')
"""Code without an effect while the rest is right: `strict` of a `zip`, the text of an `assert`."""
CONFIGURATION = """
[tool.mutmut]
source_paths = ["gateway", "channels", "agent_tools", "config"]
only_mutate = {files}
also_copy = ["README.md", "docs", "run", "deploy", "conftest.py"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "--timeout={within_s}", "--timeout-method=thread", "-m", "not whole"]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 3.0
timeout_constant = 30.0
use_git_change_detection = false
"""
"""Added to the copy's pyproject.toml. What takes three times as long as without the change, and 90 s more, hangs.

Only what a plain run has may notice: no test marked `whole`, and the small sizes.

The time limit of a test is longer than that, but where an area says `within_s`. On a busy machine a test that starts a
program passed the usual 60 s (`test_the_program_of_the_guide_works`, under `nice`), and counted as one that noticed.
A test that is out of time ends the process, whatever its threads wait for.
"""
CONFTEST = """
import functools
import sys

import structlog
from hypothesis import Phase, settings

plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
settings.register_profile(
    "mutants", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate], deadline=None
)
settings.load_profile("mutants")


@functools.cache
def caches():
    modules = [vars(one) for name, one in list(sys.modules.items()) if name.startswith("gateway.")]
    return [one for module in modules for one in module.values() if isinstance(one, functools._lru_cache_wrapper)]


def pytest_runtest_setup():
    for one in caches():
        one.cache_clear()
"""
"""Of the copy. What tests draw by chance is the same each time, and nobody wants the smallest example of a mutant. Nor
its local variables in a log: they hold all the other mutants, and take 10 s to be written. A mutant begins as a copy
of a process that ran the tests, and is tried by those that were seen to call it: no result may come from a cache.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One mutant, as the list names it: mutmut's own numbers move with every line of code."""

    function: str
    """With its module: `gateway.policy.routing.route`, `gateway.approvals.button_token.ButtonTokens.make`."""
    old: str
    """The lines that go, without indentation, joined by spaces."""
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Modules and the tests that decide about them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    """As pytest takes them. Of these, a mutant is given those that call its function."""
    without: tuple[str, ...] = ()
    """Of the modules, those that run where no mutant is chosen: in a process whose environment we make."""
    sample: int = 0
    """Default number of mutants to try; 0: all."""
    bar: float = BAR
    """Part of the mutants that its tests must notice."""
    within_s: int = WITHIN_S
    """Seconds that a test may take: far more than any of them does, on whatever machine."""
    equivalent: Mapping[Change, str]
    """Changes that no test can notice, and why."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Results of an area's mutants."""

    killed: int = 0
    equivalent: int = 0
    hung: list[Change] = field(default_factory=list[Change])
    """Among the killed: not by a test that said no, twice. On a machine that is busy with other things, doubtful."""
    survivors: list[tuple[Change, str]] = field(default_factory=list[tuple[Change, str]])
    """With what was noticed about each."""
    sampled_from: int = 0
    """Mutants of the area, when only a sample was tried; 0: all were tried."""
    bar: float = BAR
    """As in `Area`."""
    stale: list[str] = field(default_factory=list[str])
    """Entries to remove from the list: each names no mutant, or a killed one."""

    @property
    def score(self) -> float:
        """Killed ones among those that can be."""
        return self.killed / (self.killed + len(self.survivors)) if self.killed + len(self.survivors) else 0.0

    @property
    def good(self) -> bool:
        """Return True if enough were killed, and the list of exceptions fits."""
        return self.score >= self.bar and not self.stale


def areas() -> dict[str, Area]:
    """Read the list."""
    table: dict[str, Any] = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {name: _area(name, one) for name, one in table.items()}


def _area(name: str, table: Mapping[str, Any]) -> Area:
    return Area(
        name=name,
        files=tuple(table["files"]),
        tests=tuple(table["tests"]),
        without=tuple(table.get("without", ())),
        sample=table.get("sample", 0),
        bar=table.get("bar", BAR),
        within_s=table.get("within_s", WITHIN_S),
        equivalent={
            Change(function=one["in"], old=one["old"], new=one["new"]): group["because"]
            for group in table.get("equivalent", ())
            for one in group["changes"]
        },
    )


# --- trying them ----------------------------------------------------------------------------------


def try_area(area: Area, *, only: str, sample: int | None, seed: int, at_once: int) -> Found | None:
    """Try an area's mutants on a copy of the project; None when it has none with `only` in their names.

    Raises `RuntimeError` when they could not be tried.
    """
    with copy_of_the_project() as folder, chdir(folder):
        files = [str(one) for pattern in area.files for one in sorted(Path().glob(pattern))]
        files = [one for one in files if one not in area.without]
        with Path("pyproject.toml").open("a", encoding="utf-8") as project:
            lists = {"files": json.dumps(files), "tests": json.dumps(area.tests)}
            project.write(CONFIGURATION.format(**lists, within_s=area.within_s))
        Path("conftest.py").write_text(CONFTEST, encoding="utf-8")
        reset_config()
        names = [name for name in names_of(files) if only in name]
        most = area.sample if sample is None else sample
        chosen = sorted(random.Random(seed).sample(names, most)) if 0 < most < len(names) else names
        if not chosen:
            return None
        print(f"{area.name}: {len(chosen)} of {len(names)} mutants of {len(files)} files", flush=True)
        _run_mutmut(chosen if only or len(chosen) < len(names) else [], at_once)
        if hung := hung_among(chosen, files):
            _run_mutmut(hung, 1)
        found = looked_at(area, files, frozenset(chosen))
        found.sampled_from = len(names) if len(chosen) < len(names) else 0
        return found


def names_of(files: Sequence[str]) -> list[str]:
    """Make the mutants of files, which stand under the current folder, and return mutmut's names of them."""
    return [
        get_mutant_name(Path(file), name)
        for file in files
        for name in mutate_file_contents(file, Path(file).read_text(encoding="utf-8")).mutant_names
    ]


def _run_mutmut(names: Sequence[str], at_once: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {SMALL: "1"}
    command = [str(Path(sys.executable).with_name("mutmut")), "run", f"--max-children={at_once}", *names]
    said = Path("mutmut.log")
    with (
        said.open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as ran,
    ):
        try:
            ran.wait()
        finally:
            with suppress(ProcessLookupError):  # servers of tests that hung
                os.killpg(ran.pid, signal.SIGKILL)
    if ran.returncode != 0:
        lines = said.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
        raise RuntimeError("\n".join(["mutmut could not try them:", *lines[-30:]]))


def hung_among(chosen: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the mutants that no test judged: out of time. They are tried once more, alone: the machine may be busy."""
    codes = {name: code for file in files for name, code in exit_codes(file).items()}
    return [name for name in chosen if codes.get(name) not in (FAILED, SURVIVED, NO_TEST, NOT_RUN)]


def exit_codes(file: str) -> dict[str, int | None]:
    """Read what mutmut wrote under the current folder about a file."""
    codes: dict[str, int | None] = json.loads(Path("mutants", f"{file}.meta").read_text())["exit_code_by_key"]
    return codes


def looked_at(area: Area, files: Sequence[str], chosen: frozenset[str]) -> Found:
    """Read what mutmut wrote under the current folder, and compare it with the list."""
    found, exists = Found(bar=area.bar), set[Change]()
    listed = {change.function for change in area.equivalent}
    for file in files:
        for name, code in exit_codes(file).items():
            if code == FAILED and _function(name, file) not in listed:  # most of them, and telling takes 10 ms
                found.killed += name in chosen
            elif name in chosen or _function(name, file) in listed:
                change = _change(name, file)
                exists.add(change)
                if name in chosen:
                    count(found, area, change, code)
    gone = [one for one in area.equivalent if one not in exists]
    found.stale += [f"{one.function}: there is no such mutant any more: {one.old} -> {one.new}" for one in gone]
    return found


def count(found: Found, area: Area, change: Change, code: int | None) -> None:
    """Count one mutant by what mutmut says of it; what was not run, or is called by no test, survived."""
    listed = change in area.equivalent
    if code is NOT_RUN:
        found.survivors.append((change, "it was not run"))
    elif code not in (SURVIVED, NO_TEST):
        found.killed += 1
        if code != FAILED:
            found.hung.append(change)
        if listed:
            found.stale.append(f"{change.function}: a test notices this now: {change.old} -> {change.new}")
    elif listed or is_for_developers(change):
        found.equivalent += 1
    else:
        found.survivors.append((change, "no test calls it" if code == NO_TEST else ""))


def is_for_developers(change: Change) -> bool:
    """Return whether only a `strict=True` of `zip` or the text of an assert changes: all that runs is the same."""
    said = TEXT_OF_ASSERT if change.old.startswith("assert ") else LENGTHS_AGREE
    return said.sub("", change.old) == said.sub("", change.new)


def _function(name: str, file: str) -> str:
    function, of = orig_function_and_class_names_from_key(name)
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return ".".join(filter(None, (module, of, function)))


def _change(name: str, file: str) -> Change:
    lines = get_diff_for_mutant(name, path=file).splitlines()[2:]
    return Change(
        function=_function(name, file),
        old=" ".join(line[1:].strip() for line in lines if line.startswith("-")),
        new=" ".join(line[1:].strip() for line in lines if line.startswith("+")),
    )


# --- saying it ------------------------------------------------------------------------------------


def say(area: Area, found: Found) -> bool:
    """Print what came of an area. Return whether it is good enough."""
    for change, note in found.survivors:
        print(f"  survived  {change.function}{f' ({note})' if note else ''}\n    - {change.old}\n    + {change.new}")
    for change in found.hung:
        print(f"  hung      {change.function}\n    - {change.old}\n    + {change.new}")
    for line in found.stale:
        print(f"  to be taken off {LIST.name}: {line}")
    survived = len(found.survivors)
    total = found.killed + found.equivalent + survived
    killed = f"{found.killed} killed ({len(found.hung)} hung)"
    print(
        f"{'ok    ' if found.good else 'FAILED'}  {area.name}: {total} mutants, {killed}, "
        f"{found.equivalent} equivalent, {survived} survived: {found.score:.1%} (at least {found.bar:.0%})",
        flush=True,
    )
    return found.good


def as_json(found: Mapping[str, Found]) -> dict[str, Any]:
    """Return the results of areas, for `--json`."""
    return {
        "date": SystemClock().now().date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "bar": BAR,
        "areas": [
            {
                "area": name,
                "sampled_from": one.sampled_from,
                "killed": one.killed,
                "hung": len(one.hung),
                "equivalent": one.equivalent,
                "survived": len(one.survivors),
                "stale": len(one.stale),
                "score": one.score,
                "bar": one.bar,
                "good": one.good,
            }
            for name, one in found.items()
        ],
    }


def main(arguments: Sequence[str]) -> int:
    """Try the named areas, all without a name. Return the exit code."""
    every = areas()
    parser = argparse.ArgumentParser(prog="./run mutants", description="Change the code; a test must notice.")
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(every)}")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose name contains this")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, the same each time; 0: all")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"which ones a sample takes ({SEED})")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file for ./run proof")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.areas if name not in every]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(every)}")
    found: dict[str, Found] = {}
    for name in asked.areas or every:
        how = {"only": asked.only, "sample": asked.sample, "seed": asked.seed, "at_once": asked.at_once}
        tried = try_area(every[name], **how)
        if tried is None:
            continue
        found[name] = tried
        say(every[name], tried)
        if asked.json:
            asked.json.write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    if not found:
        parser.error(f"no mutant there has {asked.only!r} in its name; without --only all are tried")
    return 0 if all(one.good for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
